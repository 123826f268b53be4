/* Compiled models as custom operators of ONNX Runtime: see tilesmith_ort.h. */
#include "tilesmith_ort.h"

#include "arenas.h"
#include "shapes.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_AXES 64 /* of a tensor */
#define TEXT 512     /* bytes of a message */

enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2, ORT_NOT_IMPLEMENTED = 9 };

/* Calls of the API. */

#define CALL(api, place, type) ((type)(api)[place])

typedef struct ort_status *(*create_status_fn)(int code, const char *text);
typedef struct ort_status *(*create_domain_fn)(const char *name, void **domain);
typedef struct ort_status *(*domain_add_fn)(void *domain, const struct ort_custom_op *);
typedef struct ort_status *(*options_add_fn)(struct ort_options *, void *domain);
typedef struct ort_status *(*tensor_data_fn)(struct ort_value *, void **data);
typedef struct ort_status *(*dimension_count_fn)(const void *info, size_t *count);
typedef struct ort_status *(*dimensions_fn)(const void *info, int64_t *extents, size_t count);
typedef struct ort_status *(*type_and_shape_fn)(const struct ort_value *, void **info);
typedef void (*release_fn)(void *info);
typedef struct ort_status *(*input_fn)(const struct ort_context *, size_t index, const struct ort_value **);
typedef struct ort_status *(*output_fn)(struct ort_context *, size_t index, const int64_t *extents, size_t rank,
                                        struct ort_value **);
typedef struct ort_status *(*parallel_for_fn)(const struct ort_context *, void (*body)(void *, size_t), size_t count,
                                              size_t batches, void *data);

static struct ort_status *status(const ort_any_function *api, int code, const char *text) {
    return CALL(api, ORT_CREATE_STATUS, create_status_fn)(code, text);
}

/* Kernels. */

/* One node of a session.  Any number of runs may use it at once. */
struct kernel {
    const ort_any_function *api;
    const struct tilesmith_ort_op *op;
    struct tilesmith_model *model;
    arena_spares spares;
};

/* The pool of one run: the session's threads are to be had by the context of the operator's run. */
struct pool {
    const ort_any_function *api;
    struct ort_context *context;
};

struct loop {
    tilesmith_body body;
    void *env;
    int64_t extent, parts;
};

/* Part `index` of a loop.  It runs once, so that its number serves as the thread's. */
static void run_part(void *data, size_t index) {
    const struct loop *loop = data;
    int64_t i = (int64_t)index, size = loop->extent / loop->parts, rest = loop->extent % loop->parts;
    int64_t begin = i * size + (i < rest ? i : rest);
    loop->body(loop->env, begin, begin + size + (i < rest), i);
}

static void session_for(struct tilesmith_context *context, tilesmith_body body, void *env, int64_t extent) {
    const struct pool *pool = context->pool;
    int64_t parts = extent < context->threads ? extent : context->threads;
    struct loop loop = {body, env, extent, parts};
    if (parts <= 1) {
        if (extent > 0)
            body(env, 0, extent, 0);
        return;
    }
    /* it fails only without an operator's context */
    CALL(pool->api, ORT_PARALLEL_FOR, parallel_for_fn)(pool->context, run_part, (size_t)parts, (size_t)parts, &loop);
}

static struct ort_status *create(const struct ort_custom_op *head, const ort_any_function *api, const void *info,
                                 void **made) {
    const struct tilesmith_ort_op *op = (const struct tilesmith_ort_op *)head;
    struct tilesmith_options options = {.abi = TILESMITH_ABI, .size = sizeof options};
    struct kernel *kernel = calloc(1, sizeof *kernel);
    (void)info;
    if (!kernel)
        return status(api, ORT_FAIL, "the system has no memory");
    kernel->api = api;
    kernel->op = op;
    options.threads = op->threads;
    options.parallel_for = op->has_own_pool ? NULL : session_for;
    int32_t code = tilesmith_model_create(op->description, &options, &kernel->model);
    if (code) {
        char text[TEXT];
        tilesmith_model_error(NULL, code, NULL, text, sizeof text);
        free(kernel);
        return status(api, ORT_FAIL, text);
    }
    *made = kernel;
    return NULL;
}

static void destroy(void *data) {
    struct kernel *kernel = data;
    free_arenas(kernel->spares);
    tilesmith_model_destroy(kernel->model);
    free(kernel);
}

/* Runs. */

static struct ort_status *wrong_extent(const struct kernel *kernel, const char *name, size_t axis, int64_t expected,
                                       int64_t found) {
    char text[TEXT];
    snprintf(text, sizeof text, "%s: input %s: expected extent %lld of axis %zu, found %lld", kernel->op->name, name,
             (long long)expected, axis, (long long)found);
    return status(kernel->api, ORT_INVALID_ARGUMENT, text);
}

/* Compare the shape of input `i` with the model's, and take the extents that only this run knows from it.
 * extents: -1 where they are not known yet. */
static struct ort_status *read_shape(const struct kernel *kernel, size_t i, const struct ort_value *value,
                                     int64_t *extents, int64_t *size) {
    const ort_any_function *api = kernel->api;
    const struct tilesmith_tensor *t = &kernel->op->description->inputs[i];
    int64_t shape[MOST_AXES];
    size_t rank = 0;
    void *info;
    struct ort_status *failure = CALL(api, ORT_TYPE_AND_SHAPE, type_and_shape_fn)(value, &info);
    if (failure)
        return failure;
    failure = CALL(api, ORT_DIMENSION_COUNT, dimension_count_fn)(info, &rank);
    if (!failure && rank != (size_t)t->rank) {
        char text[TEXT];
        snprintf(text, sizeof text, "%s: input %s: expected rank %lld, found %zu", kernel->op->name, t->name,
                 (long long)t->rank, rank);
        failure = status(api, ORT_INVALID_ARGUMENT, text);
    }
    if (!failure)
        failure = CALL(api, ORT_DIMENSIONS, dimensions_fn)(info, shape, rank);
    CALL(api, ORT_RELEASE_TYPE_AND_SHAPE, release_fn)(info);
    if (failure)
        return failure;
    int64_t expected, axis = tilesmith_match(t, shape, extents, &expected);
    if (axis >= 0)
        return wrong_extent(kernel, t->name, (size_t)axis, expected, shape[axis]);
    *size = 1;
    for (size_t a = 0; a < rank; a++)
        *size *= shape[a];
    return NULL;
}

/* What takes the place of tensors without elements, which have no address. */
static void *const NOWHERE = (void *)(uintptr_t)TILESMITH_ALIGNMENT;

static struct ort_status *find_inputs(const struct kernel *kernel, struct ort_context *context, int64_t *extents,
                                      const void **inputs) {
    const ort_any_function *api = kernel->api;
    for (size_t i = 0; i < (size_t)kernel->op->description->input_count; i++) {
        const struct ort_value *value;
        int64_t size;
        void *data;
        struct ort_status *failure = CALL(api, ORT_INPUT, input_fn)(context, i, &value);
        if (!failure)
            failure = read_shape(kernel, i, value, extents, &size);
        if (!failure)
            failure = CALL(api, ORT_TENSOR_DATA, tensor_data_fn)((struct ort_value *)value, &data);
        if (failure)
            return failure;
        inputs[i] = size ? data : NOWHERE;
    }
    return NULL;
}

static struct ort_status *find_outputs(const struct kernel *kernel, struct ort_context *context, const int64_t *shapes,
                                       void **outputs) {
    const ort_any_function *api = kernel->api;
    const struct tilesmith_description *d = kernel->op->description;
    for (size_t o = 0; o < (size_t)d->output_count; o++) {
        size_t rank = (size_t)d->outputs[o].rank;
        struct ort_value *value;
        int64_t size = 1;
        struct ort_status *failure = CALL(api, ORT_OUTPUT, output_fn)(context, o, shapes, rank, &value);
        if (!failure)
            failure = CALL(api, ORT_TENSOR_DATA, tensor_data_fn)(value, &outputs[o]);
        if (failure)
            return failure;
        for (size_t axis = 0; axis < rank; axis++)
            size *= *shapes++;
        if (!size)
            outputs[o] = NOWHERE;
    }
    return NULL;
}

static struct ort_status *failed(const struct kernel *kernel, int32_t code, const void *arena) {
    char text[TEXT], whole[2 * TEXT];
    tilesmith_model_error(kernel->model, code, arena, text, sizeof text);
    snprintf(whole, sizeof whole, "%s: %s", kernel->op->name, text);
    return status(kernel->api, code == TILESMITH_NO_MEMORY ? ORT_FAIL : ORT_INVALID_ARGUMENT, whole);
}

static struct ort_status *compute(void *data, struct ort_context *context) {
    struct kernel *kernel = data;
    const struct tilesmith_description *d = kernel->op->description;
    struct pool pool = {kernel->api, context};
    int64_t axes = 0;
    for (int64_t o = 0; o < d->output_count; o++)
        axes += d->outputs[o].rank;
    const void *inputs[d->input_count + 1];
    void *outputs[d->output_count + 1];
    int64_t extents[d->symbol_count + 1], shapes[axes + 1];
    for (int64_t i = 0; i < d->symbol_count; i++)
        extents[i] = -1;
    struct ort_status *failure = find_inputs(kernel, context, extents, inputs);
    if (failure)
        return failure;
    int32_t code = tilesmith_model_sizes(kernel->model, extents, shapes);
    if (code)
        return failed(kernel, code, NULL);
    failure = find_outputs(kernel, context, shapes, outputs);
    if (failure)
        return failure;
    int64_t bytes = tilesmith_model_arena_bytes(kernel->model, extents);
    if (bytes < 0)
        return failed(kernel, TILESMITH_OVERFLOW, NULL);
    struct arena *arena = take_arena(kernel->spares, bytes);
    if (!arena)
        return failed(kernel, TILESMITH_NO_MEMORY, NULL);
    code = tilesmith_model_run_on(kernel->model, extents, inputs, outputs, arena + 1, &pool);
    if (code)
        failure = failed(kernel, code, arena + 1);
    give_arena(kernel->spares, arena);
    return failure;
}

/* What ONNX Runtime asks about an operator. */

static const struct tilesmith_ort_op *of(const struct ort_custom_op *head) {
    return (const struct tilesmith_ort_op *)head;
}
static const char *name(const struct ort_custom_op *head) { return of(head)->name; }
static const char *provider(const struct ort_custom_op *head) {
    (void)head;
    return NULL; /* the CPU's */
}
static int input_type(const struct ort_custom_op *head, size_t i) { return of(head)->input_types[i]; }
static int output_type(const struct ort_custom_op *head, size_t i) { return of(head)->output_types[i]; }
static size_t input_count(const struct ort_custom_op *head) { return (size_t)of(head)->description->input_count; }
static size_t output_count(const struct ort_custom_op *head) { return (size_t)of(head)->description->output_count; }
static int is_required(const struct ort_custom_op *head, size_t i) {
    (void)head, (void)i;
    return 0;
}
static int default_memory(const struct ort_custom_op *head, size_t i) {
    (void)head, (void)i;
    return 0;
}
static int one(const struct ort_custom_op *head) {
    (void)head;
    return 1;
}
static int newest(const struct ort_custom_op *head) {
    (void)head;
    return INT_MAX;
}

const struct ort_custom_op tilesmith_ort_head = {
    .version = TILESMITH_ORT_VERSION,
    .name = name,
    .provider = provider,
    .input_type = input_type,
    .input_count = input_count,
    .output_type = output_type,
    .output_count = output_count,
    .destroy = destroy,
    .input_characteristic = is_required,
    .output_characteristic = is_required,
    .input_memory = default_memory,
    .least_inputs = one,
    .are_inputs_alike = one,
    .least_outputs = one,
    .are_outputs_alike = one,
    .create_2 = create,
    .compute_2 = compute,
    .first_version = one,
    .last_version = newest,
};

/* The domain is made once and stays: sessions refer to it as long as they live. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *made_domain;

static struct ort_status *make_domain(const ort_any_function *api, const char *domain,
                                      struct tilesmith_ort_op *const *ops, int64_t count) {
    void *made;
    struct ort_status *failure = CALL(api, ORT_CREATE_DOMAIN, create_domain_fn)(domain, &made);
    for (int64_t i = 0; !failure && i < count; i++) {
        ops[i]->head = tilesmith_ort_head;
        failure = CALL(api, ORT_DOMAIN_ADD, domain_add_fn)(made, &ops[i]->head);
    }
    if (!failure)
        made_domain = made;
    return failure;
}

struct ort_status *tilesmith_ort_register(struct ort_options *options, const struct ort_api_base *base,
                                          const char *domain, struct tilesmith_ort_op *const *ops, int64_t count) {
    const ort_any_function *api = base->api(TILESMITH_ORT_VERSION);
    struct ort_status *failure = NULL;
    if (!api) {
        char text[TEXT];
        snprintf(text, sizeof text, "expected ONNX Runtime 1.%d or later, found %s", TILESMITH_ORT_VERSION,
                 base->version());
        return status(base->api(1), ORT_NOT_IMPLEMENTED, text);
    }
    pthread_mutex_lock(&lock);
    if (!made_domain)
        failure = make_domain(api, domain, ops, count);
    pthread_mutex_unlock(&lock);
    return failure ? failure : CALL(api, ORT_OPTIONS_ADD_DOMAIN, options_add_fn)(options, made_domain);
}
