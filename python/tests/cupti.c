/* Stands for libcupti in tests: keeps the callbacks that are registered, and hands out records that a script plants.
 *
 * A record of a kernel or a copy comes once that has ended, as CUPTI's does; one that has not when all is flushed by force
 * comes without its end. CUPTI_REFUSES is the status that every registration gets. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MEMCPY = 1, MEMSET = 2, DRIVER = 4, RUNTIME = 5, KERNEL = 10 };
enum { MOST_WAITING = 1 << 16 };

typedef void (*request)(uint8_t **, size_t *, size_t *);
typedef void (*completed)(void *, uint32_t, uint8_t *, size_t, size_t);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static request ask;
static completed hand_out;
static uint64_t (*clock_of)(void);
static int enabled[32];
static int clocks;
static size_t dropped;
/* One buffer for calls, one for the device's work. */
static struct buffer {
  uint8_t *bytes;
  size_t size, used;
} buffers[2];
static struct waiting {
  uint8_t bytes[208];
  uint64_t end;
} *waiting;
static size_t waits;

static size_t size_of(uint32_t kind) {
  return kind == KERNEL ? 208 : kind == MEMCPY ? 96 : kind == MEMSET ? 88 : 40;
}

static int refused(void) {
  const char *code = getenv("CUPTI_REFUSES");
  return code ? atoi(code) : 0;
}

static void flush(struct buffer *buffer) {
  if (buffer->bytes) hand_out(0, 0, buffer->bytes, buffer->size, buffer->used);
  memset(buffer, 0, sizeof *buffer);
}

static void add(const uint8_t *record, uint32_t kind) {
  struct buffer *buffer = &buffers[kind == DRIVER || kind == RUNTIME];
  size_t length = size_of(kind), most;
  if (buffer->bytes && buffer->used + length > buffer->size) flush(buffer);
  if (!buffer->bytes) ask(&buffer->bytes, &buffer->size, &most);
  if (!buffer->bytes) {
    dropped++;
    return;
  }
  memcpy(buffer->bytes + buffer->used, record, length);
  buffer->used += length;
}

/* Hands on what has ended by now; where `all`, also what has not, as far as it is known. */
static void settle(int all) {
  uint64_t now = clock_of();
  size_t kept = 0;
  for (size_t at = 0; at < waits; at++) {
    uint32_t kind;
    memcpy(&kind, waiting[at].bytes, 4);
    if (waiting[at].end > now && !all) {
      waiting[kept++] = waiting[at];
      continue;
    }
    if (waiting[at].end > now) memset(waiting[at].bytes + 24, 0, 8);
    add(waiting[at].bytes, kind);
  }
  waits = kept;
}

static void put(uint8_t *record, size_t at, uint64_t value, size_t bytes) { memcpy(record + at, &value, bytes); }

static void plant(uint8_t *record, uint32_t kind, uint64_t end) {
  pthread_mutex_lock(&lock);
  if (enabled[kind] && (kind == DRIVER || kind == RUNTIME)) {
    add(record, kind);
  } else if (enabled[kind]) {
    if (!waiting) waiting = malloc(sizeof *waiting * MOST_WAITING);
    if (waits < MOST_WAITING) {
      memcpy(waiting[waits].bytes, record, size_of(kind));
      waiting[waits++].end = end;
    }
  }
  pthread_mutex_unlock(&lock);
}

/* What a script plants. */

void plant_kernel(const char *name, uint64_t start, uint64_t end, uint32_t device, uint32_t stream, uint32_t correlation) {
  uint8_t record[208] = {0};
  put(record, 0, KERNEL, 4), put(record, 16, start, 8), put(record, 24, end, 8);
  put(record, 40, device, 4), put(record, 48, stream, 4), put(record, 92, correlation, 4);
  put(record, 104, (uint64_t)strdup(name), 8);
  plant(record, KERNEL, end);
}

void plant_copy(uint64_t bytes, int pinned, uint64_t start, uint64_t end, uint32_t stream, uint32_t correlation) {
  uint8_t record[208] = {0};
  put(record, 0, MEMCPY, 4), put(record, 4, 1, 1), put(record, 5, pinned ? 2 : 1, 1), put(record, 6, 3, 1);
  put(record, 8, bytes, 8), put(record, 16, start, 8), put(record, 24, end, 8);
  put(record, 40, stream, 4), put(record, 44, correlation, 4);
  plant(record, MEMCPY, end);
}

void plant_call(uint32_t function, uint64_t start, uint64_t end, uint32_t thread, uint32_t correlation) {
  uint8_t record[208] = {0};
  put(record, 0, RUNTIME, 4), put(record, 4, function, 4), put(record, 8, start, 8), put(record, 16, end, 8);
  put(record, 28, thread, 4), put(record, 32, correlation, 4);
  plant(record, RUNTIME, end);
}

void plant_drops(size_t count) { dropped += count; }

int is_enabled(void) { return enabled[KERNEL]; }
int clocks_registered(void) { return clocks; }

/* What CUPTI has. */

int cuptiGetVersion(uint32_t *version) {
  *version = 28;
  return 0;
}

int cuptiActivityRegisterTimestampCallback(uint64_t (*callback)(void)) {
  clock_of = callback;
  clocks++;
  return refused();
}

int cuptiActivityRegisterCallbacks(request asks, completed takes) {
  ask = asks;
  hand_out = takes;
  return refused();
}

int cuptiActivityEnable(uint32_t kind) {
  enabled[kind] = 1;
  return 0;
}

int cuptiActivityDisable(uint32_t kind) {
  enabled[kind] = 0;
  return 0;
}

int cuptiActivityFlushAll(uint32_t forced) {
  pthread_mutex_lock(&lock);
  settle(forced);
  flush(&buffers[0]);
  flush(&buffers[1]);
  pthread_mutex_unlock(&lock);
  return 0;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record) {
  uint32_t kind;
  uint8_t *next = buffer;
  if (*record) {
    memcpy(&kind, *record, 4);
    next = *record + size_of(kind);
  }
  if (next >= buffer + valid) return 12;
  *record = next;
  return 0;
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count) {
  *count = dropped;
  dropped = 0;
  return 0;
}

int cuptiGetResultString(uint32_t status, const char **text) {
  *text = status == 35 ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED";
  return 0;
}

int cuptiGetCallbackName(uint32_t domain, uint32_t function, const char **text) {
  const char *names[] = {"cudaGetDevice", "cudaLaunchKernel", "cudaMemcpyAsync"};
  if (domain != 2 || function >= 3) return 1;
  *text = names[function];
  return 0;
}
