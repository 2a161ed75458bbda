/* As much of libcuda.so.1 as doctor and NVRTC ask: one H100, and the CUDA version that CUDA_VERSION says (12090 is 12.9). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { *version = atoi(getenv("CUDA_VERSION")); return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int length, int device) { snprintf(name, length, "Imitation H100"); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)80 << 30; return 0; }
int cuDeviceGetPCIBusId(char *id, int length, int device) { snprintf(id, length, "0000:3B:00.0"); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 75 ? 9 : 0;
    return 0;
}
/* NVRTC 12.9 and later ask for tables of the driver's, and go on without. */
int cuGetExportTable(const void **table, const void *id) { *table = NULL; return 500; }
