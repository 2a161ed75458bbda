/* A tool that reads NVTX, as far as the program calls it: writes a line for each range that begins and ends to the file
 * that NVTX_LOG names: `thread push domain name payload` and `thread pop`. The names and numbers are those of NVIDIA's
 * nvtxTypes.h; with -DNVIDIA it is built against that header. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef NVIDIA
#include <nvtx3/nvToolsExt.h>
typedef nvtxEventAttributes_t Attributes;
enum {
    CALLBACKS = NVTX_ETID_CALLBACKS, CORE2 = NVTX_CB_MODULE_CORE2,
    PUSH = NVTX_CBID_CORE2_DomainRangePushEx, POP = NVTX_CBID_CORE2_DomainRangePop,
    REGISTER = NVTX_CBID_CORE2_DomainRegisterStringA, CREATE = NVTX_CBID_CORE2_DomainCreateA,
    SIZE = NVTX_CBID_CORE2_SIZE, REGISTERED = NVTX_MESSAGE_TYPE_REGISTERED,
    UNSIGNED = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64
};
#else
typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t colorType;
    uint32_t color;
    int32_t payloadType, reserved0;
    union { uint64_t ullValue; } payload;
    int32_t messageType;
    union { const char *ascii; void *registered; } message;
} Attributes;
typedef const void *(*NvtxGetExportTableFunc_t)(uint32_t);
typedef struct {
    size_t struct_size;
    int (*GetModuleFunctionTable)(int, void (****)(void), unsigned *);
} NvtxExportTableCallbacks;
enum {
    CALLBACKS = 1, CORE2 = 5, PUSH = 4, POP = 5, REGISTER = 10, CREATE = 12, SIZE = 16, REGISTERED = 3, UNSIGNED = 1
};
#endif

static FILE *file;

static void *create(const char *name) { return strdup(name); }
static void *intern(void *domain, const char *text) { return strdup(text); }
static int push(void *domain, const Attributes *range) {
    if (range->size != sizeof *range || range->messageType != REGISTERED || range->payloadType != UNSIGNED) abort();
    fprintf(file, "%ld push %s %s %llu\n", syscall(SYS_gettid), (char *)domain, (char *)range->message.registered,
            (unsigned long long)range->payload.ullValue);
    return 0;
}
static int pop(void *domain) {
    fprintf(file, "%ld pop\n", syscall(SYS_gettid));
    return 0;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get) {
    const NvtxExportTableCallbacks *callbacks = get(CALLBACKS);
    void (***table)(void) = 0;
    unsigned size = 0;
    if (!callbacks || callbacks->struct_size < sizeof *callbacks) return 0;
    if (!callbacks->GetModuleFunctionTable(CORE2, (void *)&table, &size) || size != SIZE) return 0;
    file = fopen(getenv("NVTX_LOG"), "w");
    if (!file) return 0;
    if (getenv("NVTX_DEAF")) return 1;
    *table[CREATE] = (void (*)(void))create;
    *table[REGISTER] = (void (*)(void))intern;
    *table[PUSH] = (void (*)(void))push;
    *table[POP] = (void (*)(void))pop;
    return 1;
}
