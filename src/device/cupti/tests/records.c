/* Writes activity records as NVIDIA's own header lays them out, the same that the Rust test writes by hand. What is not
 * set holds 0xa5. Then, as text, the lengths of older records and the numbers that the library is called with. */
#include <cupti_activity.h>
#include <stdio.h>
#include <string.h>

#define RECORD(type, name)       \
  type name;                     \
  memset(&name, 0xa5, sizeof name)
#define WRITE(name) fwrite(&name, sizeof name, 1, file)
#define PRINT(value) printf(#value " %ld\n", (long)(value))

int main(int count, char **arguments) {
  FILE *file = fopen(arguments[1], "wb");

  RECORD(CUpti_ActivityAPI, call);
  call.kind = CUPTI_ACTIVITY_KIND_DRIVER;
  call.cbid = 307;
  call.start = 5;
  call.end = 8;
  call.threadId = 77;
  call.correlationId = 1;
  WRITE(call);

  RECORD(CUpti_ActivityKernel9, kernel);
  kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  kernel.start = 10;
  kernel.end = 25;
  kernel.deviceId = 1;
  kernel.streamId = 7;
  kernel.correlationId = 2;
  kernel.name = (const char *)0x1000;
  WRITE(kernel);

  RECORD(CUpti_ActivityMemcpy6, copy);
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  copy.srcKind = CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
  copy.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  copy.bytes = 4096;
  copy.start = 11;
  copy.end = 19;
  copy.deviceId = 1;
  copy.streamId = 13;
  copy.correlationId = 3;
  WRITE(copy);

  RECORD(CUpti_ActivityMemcpy6, back);
  back.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  back.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
  back.srcKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  back.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
  back.bytes = 8;
  back.start = 26;
  back.end = 27;
  back.deviceId = 1;
  back.streamId = 7;
  back.correlationId = 4;
  WRITE(back);

  RECORD(CUpti_ActivityMemset4, set);
  set.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  set.bytes = 512;
  set.start = 30;
  set.end = 31;
  set.deviceId = 1;
  set.streamId = 7;
  set.correlationId = 5;
  WRITE(set);

  PRINT(sizeof(CUpti_ActivityKernel8));
  PRINT(sizeof(CUpti_ActivityMemcpy5));
  PRINT(sizeof(CUpti_ActivityMemset4));
  PRINT(CUPTI_ACTIVITY_KIND_RUNTIME);
  PRINT(CUPTI_ERROR_MAX_LIMIT_REACHED);
  PRINT(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  PRINT(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
  PRINT(CUPTI_CB_DOMAIN_DRIVER_API);
  PRINT(CUPTI_CB_DOMAIN_RUNTIME_API);
  return fclose(file);
}
