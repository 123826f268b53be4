/* A driver that runs nothing: it notes its calls, keeps memory of the host, and fails when told. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int result;

static char calls[1 << 16];
static char failing[64];
static int error, devices = 1, major = 8, minor = 0;
static int noted = 0, pointed = 0;
static uint64_t last_args[16];
static void *last_stream;

#define FOREIGN ((void *)7)

static result note(const char *name) {
    size_t used = strlen(calls);
    if (used + strlen(name) + 2 < sizeof calls)
        sprintf(calls + used, "%s ", name);
    return strcmp(failing, name) ? 0 : error;
}

/* Notes a call with its stream: "own", or the number that a caller gave it. */
static result note_on(const char *name, void *stream) {
    char text[96];
    if (stream == &major)
        snprintf(text, sizeof text, "%s(own)", name);
    else
        snprintf(text, sizeof text, "%s(%d)", name, (int)(uintptr_t)stream);
    note(text);
    return strcmp(failing, name) ? 0 : error;
}

const char *fake_calls(void) { return calls; }
void fake_forget(void) { calls[0] = 0; }
void fake_fail(const char *name, int code) { strcpy(failing, name), error = code; }
void fake_devices(int count, int of_major, int of_minor) {
    devices = count, major = of_major, minor = of_minor;
}
/* Whether launches write the code of an assertion where their last argument, the report, points. */
void fake_note(int is_noted) { noted = is_noted; }
/* The number of the device that all memory is on. */
void fake_pointed(int number) { pointed = number; }
/* An argument of the last launch, and its stream. */
uint64_t fake_arg(int n) { return last_args[n]; }
uint64_t fake_stream(void) { return last_stream == &major ? 0 : (uint64_t)(uintptr_t)last_stream; }

result cuInit(unsigned flags) { return note("cuInit"); }
result cuDeviceGetCount(int *count) { *count = devices; return note("cuDeviceGetCount"); }
result cuDeviceGet(int *device, int number) { *device = number; return note("cuDeviceGet"); }
result cuDeviceGetName(char *name, int size, int device) {
    strncpy(name, "Fake", size);
    return note("cuDeviceGetName");
}
result cuDeviceTotalMem_v2(size_t *size, int device) {
    *size = (size_t)1 << 30;
    return note("cuDeviceTotalMem_v2");
}
result cuDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
    case 1: case 2: case 3: *value = 1024; break;
    case 4: *value = 64; break;
    case 8: *value = 49152; break;
    case 10: *value = 32; break;
    case 16: *value = 4; break;
    case 75: *value = major; break;
    case 76: *value = minor; break;
    default: return 1;
    }
    return note("cuDeviceGetAttribute");
}
result cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = &devices;
    return note("cuDevicePrimaryCtxRetain");
}
result cuCtxSetCurrent(void *context) { return context == &devices ? 0 : 201; }
result cuStreamCreate(void **stream, unsigned flags) {
    *stream = &major;
    return note("cuStreamCreate");
}
result cuStreamSynchronize(void *stream) {
    return stream == &major || stream == FOREIGN ? note("cuStreamSynchronize") : 400;
}
result cuStreamQuery(void *stream) { return note("cuStreamQuery"); }
result cuEventCreate(void **event, unsigned flags) {
    *event = malloc(1);
    return note("cuEventCreate");
}
result cuEventDestroy_v2(void *event) {
    free(event);
    return note("cuEventDestroy_v2");
}
result cuEventRecord(void *event, void *stream) { return note_on("cuEventRecord", stream); }
result cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    return note_on("cuStreamWaitEvent", stream);
}
result cuPointerGetAttribute(void *value, int attribute, uint64_t address) {
    *(int *)value = pointed;
    return attribute == 9 ? note("cuPointerGetAttribute") : 1;
}
result cuModuleLoadDataEx(void **module, const char *text, unsigned count, int *options,
                          void **values) {
    *module = strdup(text);
    if (count == 2 && options[0] == 5 && options[1] == 6 && !strcmp(failing, "cuModuleLoadDataEx"))
        snprintf(values[0], (size_t)values[1], "line 1: no good");
    return note("cuModuleLoadDataEx");
}
result cuModuleGetFunction(void **function, void *module, const char *name) {
    char entry[256];
    snprintf(entry, sizeof entry, ".entry %s(", name);
    *function = strstr(module, entry);
    return *function ? note("cuModuleGetFunction") : 500;
}
result cuMemAlloc_v2(uint64_t *address, size_t size) {
    result code = note("cuMemAlloc_v2");
    if (!code && size > (size_t)1 << 30)
        return 2;
    *address = code ? 0 : (uint64_t)(uintptr_t)calloc(1, size);
    return code;
}
result cuMemFree_v2(uint64_t address) {
    free((void *)(uintptr_t)address);
    return note("cuMemFree_v2");
}
result cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *stream) {
    memcpy((void *)(uintptr_t)to, from, size);
    return note("cuMemcpyHtoDAsync_v2");
}
result cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, void *stream) {
    memcpy(to, (void *)(uintptr_t)from, size);
    return note("cuMemcpyDtoHAsync_v2");
}
result cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *stream) {
    memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, size);
    return note("cuMemcpyDtoDAsync_v2");
}
result cuLaunchKernel(void *function, unsigned bx, unsigned by, unsigned bz, unsigned tx,
                      unsigned ty, unsigned tz, unsigned shared, void *stream, void **args,
                      void **extra) {
    char text[128];
    int count = 0;
    const char *end = strchr(function, ')');
    for (const char *p = function; (p = strstr(p, ".param .")) && p < end; p += 8)
        count++;
    sprintf(text, "cuLaunchKernel(%u,%u,%u:%u,%u,%u)", bx, by, bz, tx, ty, tz);
    note(text);
    last_stream = stream;
    for (int i = 0; i < count && i < 16; i++)
        last_args[i] = *(uint64_t *)args[i];
    if (noted) {
        int32_t *report = *(void **)args[count - 1];
        report[0] = 1, report[3] = 3;
    }
    return note("cuLaunchKernel") ? error : 0;
}
result cuGetErrorString(result code, const char **text) {
    *text = "as the test says";
    return 0;
}
