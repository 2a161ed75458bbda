/* As much of libcupti as is called, for tests without a GPU.
 *
 * REFUSES: every kind is refused, as by a library of a CUDA newer than the driver's.
 * OLD: as CUDA 12.4, without cuptiActivityEnableDriverApi.
 * A flush hands out one buffer with 4 calls of the driver's, as far as they are enabled, 2 of them launches. */
#include <stdint.h>
#include <string.h>

typedef void (*Request)(uint8_t **, size_t *, size_t *);
typedef void (*Completed)(void *, uint32_t, uint8_t *, size_t, size_t);
typedef struct {
    uint32_t kind, cbid;
    uint64_t start, end;
    uint32_t process, thread, correlation, returned;
} Call;

enum { DRIVER = 4, LAUNCH = 307, QUERY = 120, LIMIT_REACHED = 12, NOT_COMPATIBLE = 18 };

static Request request;
static Completed completed;
static uint64_t (*now)(void);
static int all_calls, one_call[4096], done;

int cuptiGetVersion(uint32_t *version) {
#ifdef REFUSES
    *version = 130000;
#elif defined(OLD)
    *version = 22;
#else
    *version = 28;
#endif
    return 0;
}
int cuptiGetResultString(int status, const char **text) {
    *text = status == NOT_COMPATIBLE ? "CUPTI_ERROR_NOT_COMPATIBLE" : "CUPTI_ERROR_UNKNOWN";
    return 0;
}
int cuptiGetCallbackName(uint32_t domain, uint32_t cbid, const char **name) {
    if (domain != 1 || (cbid != LAUNCH && cbid != QUERY)) return 1;
    *name = cbid == LAUNCH ? "cuLaunchKernel" : "cuEventQuery";
    return 0;
}
int cuptiActivityRegisterCallbacks(Request r, Completed c) { request = r; completed = c; return 0; }
int cuptiActivityRegisterTimestampCallback(uint64_t (*clock)(void)) { now = clock; return 0; }
int cuptiActivityEnable(uint32_t kind) {
#ifdef REFUSES
    return NOT_COMPATIBLE;
#endif
    if (kind == DRIVER) all_calls = 1;
    return 0;
}
int cuptiActivityDisable(uint32_t kind) {
    if (kind == DRIVER) all_calls = 0;
    return 0;
}
#ifndef OLD
int cuptiActivityEnableDriverApi(uint32_t cbid, uint8_t enable) { one_call[cbid] = enable; return 0; }
#endif
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped) { *dropped = 0; return 0; }
int cuptiActivityFlushAll(uint32_t flags) {
    uint32_t cbids[] = {LAUNCH, QUERY, QUERY, LAUNCH};
    uint8_t *buffer;
    size_t size, most, valid = 0;
    if (done++) return 0;
    request(&buffer, &size, &most);
    if (!buffer) return 0;
    for (uint32_t n = 0; n < 4; n++) {
        if (!all_calls && !one_call[cbids[n]]) continue;
        Call call = {DRIVER, cbids[n], now(), now() + 1, 1, 2, n + 1, 0};
        memcpy(buffer + valid, &call, sizeof call);
        valid += sizeof call;
    }
    completed(0, 0, buffer, size, valid);
    return 0;
}
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record) {
    uint8_t *next = *record ? *record + sizeof(Call) : buffer;
    if (next + sizeof(Call) > buffer + valid) return LIMIT_REACHED;
    *record = next;
    return 0;
}
