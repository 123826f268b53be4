/* A compiled model as a library of AOTInductor's: see tilesmith_aoti.h. */
#include "tilesmith_aoti.h"

#include "arenas.h"
#include "shapes.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))
#define MOST_AXES 64 /* of a tensor */
#define TEXT 512     /* bytes of a message */

enum { SUCCESS, FAILURE }; /* what the functions below return */

typedef struct tensor *tensor_handle;

/* PyTorch's functions; they return 0 for success. */
int32_t aoti_torch_device_type_cpu(void);
int32_t aoti_torch_dtype_bfloat16(void);
int32_t aoti_torch_dtype_float16(void);
int32_t aoti_torch_dtype_float32(void);
int32_t aoti_torch_dtype_float64(void);
int32_t aoti_torch_dtype_uint8(void);
int32_t aoti_torch_dtype_uint16(void);
int32_t aoti_torch_dtype_uint32(void);
int32_t aoti_torch_dtype_uint64(void);
int32_t aoti_torch_dtype_int8(void);
int32_t aoti_torch_dtype_int16(void);
int32_t aoti_torch_dtype_int32(void);
int32_t aoti_torch_dtype_int64(void);
int32_t aoti_torch_dtype_bool(void);
int32_t aoti_torch_delete_tensor_object(tensor_handle);
int32_t aoti_torch_get_data_ptr(tensor_handle, void **data);
int32_t aoti_torch_get_dim(tensor_handle, int64_t *rank);
int32_t aoti_torch_get_sizes(tensor_handle, int64_t **sizes);
int32_t aoti_torch_get_strides(tensor_handle, int64_t **strides);
int32_t aoti_torch_get_dtype(tensor_handle, int32_t *dtype);
int32_t aoti_torch_get_device_type(tensor_handle, int32_t *type);
int32_t aoti_torch_empty_strided(int64_t rank, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                                 int32_t device_type, int32_t device_index, tensor_handle *made);
int32_t aoti_torch_copy_(tensor_handle to, tensor_handle from, int32_t non_blocking);

/* PyTorch's numbers of our element types. */
static const struct {
    const char *type;
    int32_t (*number)(void);
} TYPES[] = {
    {"bf16", aoti_torch_dtype_bfloat16}, {"f16", aoti_torch_dtype_float16}, {"f32", aoti_torch_dtype_float32},
    {"f64", aoti_torch_dtype_float64},   {"u8", aoti_torch_dtype_uint8},    {"u16", aoti_torch_dtype_uint16},
    {"u32", aoti_torch_dtype_uint32},    {"u64", aoti_torch_dtype_uint64},  {"i8", aoti_torch_dtype_int8},
    {"i16", aoti_torch_dtype_int16},     {"i32", aoti_torch_dtype_int32},   {"i64", aoti_torch_dtype_int64},
    {"bool", aoti_torch_dtype_bool},
};

/* The number of a type that `export_aot` has checked. */
static int32_t number_of(const char *type) {
    size_t i = 0;
    while (strcmp(TYPES[i].type, type))
        i++;
    return TYPES[i].number();
}

/* One loaded package.  Any number of runs may use it at once. */
struct container {
    struct tilesmith_model *model;
    arena_spares spares;
};

static _Thread_local char last_error[TEXT];

/* Note why a call failed.  It is also printed, as by AOTInductor's own libraries: older versions of PyTorch do not ask. */
static int32_t failed(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s\n", last_error);
    return FAILURE;
}

static int32_t failed_in(const struct container *c, int32_t code, const void *arena) {
    char text[TEXT];
    tilesmith_model_error(c->model, code, arena, text, sizeof text);
    return failed("%s", text);
}

static const struct tilesmith_description *description(void) { return tilesmith_aoti_model.description; }

EXPORTED int32_t AOTInductorGetLastError(const char **text) {
    *text = last_error;
    return SUCCESS;
}

EXPORTED int32_t AOTInductorModelContainerCreateWithDevice(struct container **made, size_t models, const char *device,
                                                           const char *folder) {
    struct tilesmith_options options = {.abi = TILESMITH_ABI, .size = sizeof options};
    (void)models, (void)folder;
    *made = NULL;
    if (strncmp(device, "cpu", 3))
        return failed("the model was compiled for the CPU, expected device cpu, found %s", device);
    struct container *c = calloc(1, sizeof *c);
    if (!c)
        return failed("the system has no memory");
    options.threads = tilesmith_aoti_model.threads;
    int32_t code = tilesmith_model_create(description(), &options, &c->model);
    if (code) {
        failed_in(c, code, NULL);
        free(c);
        return FAILURE;
    }
    *made = c;
    return SUCCESS;
}

EXPORTED int32_t AOTInductorModelContainerDelete(struct container *c) {
    free_arenas(c->spares);
    tilesmith_model_destroy(c->model);
    free(c);
    return SUCCESS;
}

/* Runs. */

/* The strides of a dense row-major tensor, and its number of elements. */
static int64_t dense(int64_t rank, const int64_t *sizes, int64_t *strides) {
    int64_t count = 1;
    for (int64_t axis = rank; axis--;) {
        strides[axis] = count;
        count *= sizes[axis];
    }
    return count;
}

static bool is_dense(int64_t rank, const int64_t *sizes, const int64_t *strides, const int64_t *wanted) {
    for (int64_t axis = 0; axis < rank; axis++)
        if (sizes[axis] != 1 && strides[axis] != wanted[axis])
            return false;
    return true;
}

/* A new tensor on the CPU. */
static int32_t make(const struct tilesmith_tensor *t, const int64_t *sizes, const int64_t *strides, tensor_handle *made) {
    return aoti_torch_empty_strided(t->rank, sizes, strides, number_of(t->type), aoti_torch_device_type_cpu(), 0, made);
}

/* What takes the place of tensors without elements, which have no address. */
static void *const NOWHERE = (void *)(uintptr_t)TILESMITH_ALIGNMENT;

/* Check an input, and find its elements.  A tensor that is not dense is replaced by a dense copy. */
static int32_t read_input(const struct tilesmith_tensor *t, tensor_handle *input, int64_t *extents, const void **data) {
    int64_t rank, *sizes, *strides, wanted[MOST_AXES], expected;
    int32_t dtype, device;
    void *address;
    if (aoti_torch_get_dim(*input, &rank) || aoti_torch_get_sizes(*input, &sizes) ||
        aoti_torch_get_strides(*input, &strides) || aoti_torch_get_dtype(*input, &dtype) ||
        aoti_torch_get_device_type(*input, &device))
        return failed("input %s: it is no tensor with strides", t->name);
    if (device != aoti_torch_device_type_cpu())
        return failed("input %s: expected a tensor on the CPU", t->name);
    if (dtype != number_of(t->type))
        return failed("input %s: expected elements of type %s, found another type", t->name, t->type);
    if (rank != t->rank)
        return failed("input %s: expected rank %lld, found %lld", t->name, (long long)t->rank, (long long)rank);
    int64_t axis = tilesmith_match(t, sizes, extents, &expected);
    if (axis >= 0)
        return failed("input %s: expected extent %lld of axis %lld, found %lld", t->name, (long long)expected,
                      (long long)axis, (long long)sizes[axis]);
    int64_t count = dense(rank, sizes, wanted);
    if (count && !is_dense(rank, sizes, strides, wanted)) {
        tensor_handle copy;
        if (make(t, sizes, wanted, &copy))
            return failed("input %s: PyTorch has no memory for a copy", t->name);
        int32_t code = aoti_torch_copy_(copy, *input, 0);
        aoti_torch_delete_tensor_object(*input);
        *input = copy;
        if (code)
            return failed("input %s: PyTorch can't copy it", t->name);
    }
    if (aoti_torch_get_data_ptr(*input, &address))
        return failed("input %s: it has no memory", t->name);
    *data = count ? address : NOWHERE;
    return SUCCESS;
}

static int32_t make_output(const struct tilesmith_tensor *t, const int64_t *sizes, tensor_handle *output, void **data) {
    int64_t strides[MOST_AXES], count = dense(t->rank, sizes, strides);
    if (make(t, sizes, strides, output))
        return failed("output %s: PyTorch has no memory for it", t->name);
    if (aoti_torch_get_data_ptr(*output, data))
        return failed("output %s: it has no memory", t->name);
    if (!count)
        *data = NOWHERE;
    return SUCCESS;
}

/* Run the model in memory of its own.  Outputs that were made when a call fails are the caller's to delete. */
static int32_t run(struct container *c, tensor_handle *inputs, tensor_handle *outputs) {
    const struct tilesmith_description *d = description();
    int64_t axes = 0;
    for (int64_t o = 0; o < d->output_count; o++)
        axes += d->outputs[o].rank;
    const void *read[d->input_count + 1];
    void *written[d->output_count + 1];
    int64_t extents[d->symbol_count + 1], shapes[axes + 1], *shape = shapes;
    for (int64_t i = 0; i < d->symbol_count; i++)
        extents[i] = -1;
    for (int64_t i = 0; i < d->input_count; i++)
        if (read_input(&d->inputs[i], &inputs[i], extents, &read[i]))
            return FAILURE;
    int32_t code = tilesmith_model_sizes(c->model, extents, shapes);
    if (code)
        return failed_in(c, code, NULL);
    for (int64_t o = 0; o < d->output_count; shape += d->outputs[o++].rank)
        if (make_output(&d->outputs[o], shape, &outputs[o], &written[o]))
            return FAILURE;
    int64_t bytes = tilesmith_model_arena_bytes(c->model, extents);
    if (bytes < 0)
        return failed_in(c, TILESMITH_OVERFLOW, NULL);
    struct arena *arena = take_arena(c->spares, bytes);
    if (!arena)
        return failed_in(c, TILESMITH_NO_MEMORY, NULL);
    code = tilesmith_model_run(c->model, extents, read, written, arena + 1);
    if (code)
        failed_in(c, code, arena + 1);
    give_arena(c->spares, arena);
    return code ? FAILURE : SUCCESS;
}

EXPORTED int32_t AOTInductorModelContainerRun(struct container *c, tensor_handle *inputs, size_t input_count,
                                              tensor_handle *outputs, size_t output_count, void *stream, void *proxy) {
    const struct tilesmith_description *d = description();
    int32_t result = SUCCESS;
    (void)stream, (void)proxy;
    for (size_t o = 0; o < output_count; o++)
        outputs[o] = NULL;
    if (input_count != (size_t)d->input_count || output_count != (size_t)d->output_count)
        result = failed("expected %lld inputs and %lld outputs, found %zu and %zu", (long long)d->input_count,
                        (long long)d->output_count, input_count, output_count);
    else
        result = run(c, inputs, outputs);
    for (size_t i = 0; i < input_count; i++) /* the caller gave them away */
        aoti_torch_delete_tensor_object(inputs[i]);
    for (size_t o = 0; result && o < output_count; o++) {
        if (outputs[o])
            aoti_torch_delete_tensor_object(outputs[o]);
        outputs[o] = NULL;
    }
    return result;
}

EXPORTED int32_t AOTInductorModelContainerRunSingleThreaded(struct container *c, tensor_handle *inputs, size_t input_count,
                                                            tensor_handle *outputs, size_t output_count, void *stream,
                                                            void *proxy) {
    return AOTInductorModelContainerRun(c, inputs, input_count, outputs, output_count, stream, proxy);
}

/* What PyTorch asks about a model. */

EXPORTED int32_t AOTInductorModelContainerGetNumInputs(struct container *c, size_t *count) {
    (void)c;
    *count = (size_t)description()->input_count;
    return SUCCESS;
}

EXPORTED int32_t AOTInductorModelContainerGetNumOutputs(struct container *c, size_t *count) {
    (void)c;
    *count = (size_t)description()->output_count;
    return SUCCESS;
}

EXPORTED int32_t AOTInductorModelContainerGetInputName(struct container *c, size_t i, const char **name) {
    (void)c;
    *name = description()->inputs[i].name;
    return SUCCESS;
}

EXPORTED int32_t AOTInductorModelContainerGetOutputName(struct container *c, size_t o, const char **name) {
    (void)c;
    *name = description()->outputs[o].name;
    return SUCCESS;
}

EXPORTED int32_t AOTInductorModelContainerGetCallSpec(struct container *c, const char **inputs, const char **outputs) {
    (void)c;
    *inputs = tilesmith_aoti_model.inputs_spec;
    *outputs = tilesmith_aoti_model.outputs_spec;
    return SUCCESS;
}

/* Weights are packed inside the code: a model has no constants that PyTorch could exchange. */

EXPORTED int32_t AOTInductorModelContainerGetNumConstants(struct container *c, size_t *count) {
    (void)c;
    *count = 0;
    return SUCCESS;
}

#define REFUSED(name)                                                                                                  \
    EXPORTED int32_t name(void) { return failed("%s: the weights are compiled into the model", #name); }
REFUSED(AOTInductorModelContainerGetConstantName)
REFUSED(AOTInductorModelContainerGetConstantOriginalFQN)
REFUSED(AOTInductorModelContainerGetConstantFromFolded)
REFUSED(AOTInductorModelContainerGetConstantType)
REFUSED(AOTInductorModelContainerGetConstantDtype)
REFUSED(AOTInductorModelContainerGetConstantDataSize)
REFUSED(AOTInductorModelContainerExtractConstantsMap)
REFUSED(AOTInductorModelContainerUpdateUserManagedConstantBuffer)
REFUSED(AOTInductorModelContainerUpdateConstantBuffer)
REFUSED(AOTInductorModelContainerUpdateConstantBufferFromCpu)
REFUSED(AOTInductorModelContainerUpdateInactiveConstantBuffer)
REFUSED(AOTInductorModelContainerFreeInactiveConstantBuffer)
REFUSED(AOTInductorModelContainerSwapConstantBuffer)
REFUSED(AOTInductorModelContainerGetConstantsBlobSize)
REFUSED(AOTInductorModelUpdateConstantsFromBlob)

EXPORTED int32_t AOTInductorModelContainerRunConstantFolding(void) { return SUCCESS; }
