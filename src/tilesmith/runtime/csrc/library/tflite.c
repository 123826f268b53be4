/* A compiled model as a delegate: see tilesmith_tflite.h.
 *
 * The structures are those of tflite/core/c/common.h.  Fields that this file does not use are there for their places. */
#include "tilesmith_tflite.h"

#include "arenas.h"
#include "shapes.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))
#define MOST_AXES 64 /* of a tensor */
#define TEXT 512     /* bytes of a message */

enum { OK, FAILURE };             /* statuses */
enum { MEMORY_MAPPED = 1 };       /* the allocation type of constants */

struct int_array {
    int size;
    int data[];
};

struct tensor {
    int type;
    void *data;
    struct int_array *dims;
    float scale;
    int32_t zero_point;
    int allocation_type;
    size_t bytes;
    const void *allocation;
    const char *name;
    void *delegate;
    int buffer_handle;
    bool is_stale, is_variable;
    int quantization_type;
    void *quantization;
    void *sparsity;
    const struct int_array *signature;
};

struct context;
struct node;
struct delegate;

/* A kind of node. */
struct registration {
    void *(*init)(struct context *, const char *parameters, size_t length);
    void (*free)(struct context *, void *kernel);
    int (*prepare)(struct context *, struct node *);
    int (*invoke)(struct context *, struct node *);
    const char *(*profiling_string)(const struct context *, const struct node *);
    int32_t builtin_code;
    const char *name;
    int version;
    void *external;
    void *(*async_kernel)(struct context *, struct node *);
    uint64_t in_place;
};

struct node {
    struct int_array *inputs, *outputs, *intermediates, *temporaries;
    void *kernel;
};

struct context {
    size_t tensor_count;
    int (*plan)(struct context *, struct int_array **nodes);
    struct tensor *tensors;
    void *own;
    int (*resize)(struct context *, struct tensor *, struct int_array *dims); /* takes `dims` */
    void (*report)(struct context *, const char *format, ...);
    int (*add_tensors)(struct context *, int count, int *first);
    int (*find_node)(struct context *, int number, struct node **, struct registration **);
    int (*replace)(struct context *, struct registration, const struct int_array *nodes, struct delegate *);
};

struct delegate {
    void *data;
    int (*prepare)(struct context *, struct delegate *);
    int (*copy_from)(struct context *, struct delegate *, int handle, struct tensor *);
    int (*copy_to)(struct context *, struct delegate *, int handle, struct tensor *);
    void (*free_handle)(struct context *, struct delegate *, int *handle);
    int64_t flags;
    void *builder;
    struct tilesmith_model *model;
    arena_spares spares;
};

/* Element types by their numbers. */
static const char *const TYPES[] = {"",    "f32", "i32", "u8",  "i64", "",    "bool", "i16", "",   "i8",
                                    "f16", "f64", "",    "u64", "",    "",    "u32",  "u16", "",   "bf16"};

static const struct tilesmith_description *description(void) { return tilesmith_tflite_model.description; }

static int failed(struct context *context, const struct delegate *own, int32_t code, const void *arena) {
    char text[TEXT];
    tilesmith_model_error(own->model, code, arena, text, sizeof text);
    context->report(context, "tilesmith: %s", text);
    return FAILURE;
}

/* Runs. */

/* The extents of a run, which the shapes of its inputs say. */
static int read_extents(struct context *context, int64_t *extents) {
    const struct tilesmith_description *d = description();
    for (int64_t i = 0; i < d->symbol_count; i++)
        extents[i] = -1;
    for (int64_t i = 0; i < d->input_count; i++) {
        const struct tilesmith_tensor *t = &d->inputs[i];
        const struct int_array *dims = context->tensors[tilesmith_tflite_model.inputs[i]].dims;
        int64_t shape[MOST_AXES], expected;
        if (dims->size != t->rank) {
            context->report(context, "tilesmith: input %s: expected rank %d, found %d", t->name, (int)t->rank, dims->size);
            return FAILURE;
        }
        for (int axis = 0; axis < dims->size; axis++)
            shape[axis] = dims->data[axis];
        int64_t axis = tilesmith_match(t, shape, extents, &expected);
        if (axis >= 0) {
            context->report(context, "tilesmith: input %s: expected extent %d of axis %d, found %d", t->name, (int)expected,
                            (int)axis, dims->data[axis]);
            return FAILURE;
        }
    }
    return OK;
}

static void *init(struct context *context, const char *parameters, size_t length) {
    (void)context, (void)length;
    return *(void *const *)(const void *)parameters; /* the delegate is their first field */
}

static void forget(struct context *context, void *kernel) { (void)context, (void)kernel; }

/* Give the outputs their shapes. */
static int prepare_node(struct context *context, struct node *node) {
    const struct delegate *own = node->kernel;
    const struct tilesmith_description *d = description();
    int64_t axes = 0, extents[d->symbol_count + 1];
    for (int64_t o = 0; o < d->output_count; o++)
        axes += d->outputs[o].rank;
    int64_t shapes[axes + 1], *shape = shapes;
    if (read_extents(context, extents))
        return FAILURE;
    int32_t code = tilesmith_model_sizes(own->model, extents, shapes);
    if (code)
        return failed(context, own, code, NULL);
    for (int64_t o = 0; o < d->output_count; shape += d->outputs[o++].rank) {
        int rank = (int)d->outputs[o].rank;
        struct int_array *dims = malloc(sizeof *dims + sizeof(int) * (size_t)(rank + 1));
        if (!dims)
            return failed(context, own, TILESMITH_NO_MEMORY, NULL);
        dims->size = rank;
        for (int axis = 0; axis < rank; axis++)
            dims->data[axis] = (int)shape[axis];
        if (context->resize(context, &context->tensors[tilesmith_tflite_model.outputs[o]], dims))
            return FAILURE;
    }
    return OK;
}

/* What takes the place of tensors without elements, which may have no address. */
static void *const NOWHERE = (void *)(uintptr_t)TILESMITH_ALIGNMENT;

static void *data_of(struct context *context, int32_t number) {
    const struct tensor *t = &context->tensors[number];
    return t->bytes ? t->data : NOWHERE;
}

static int invoke(struct context *context, struct node *node) {
    struct delegate *own = node->kernel;
    const struct tilesmith_description *d = description();
    int64_t extents[d->symbol_count + 1];
    const void *inputs[d->input_count + 1];
    void *outputs[d->output_count + 1];
    if (read_extents(context, extents))
        return FAILURE;
    for (int64_t i = 0; i < d->input_count; i++)
        inputs[i] = data_of(context, tilesmith_tflite_model.inputs[i]);
    for (int64_t o = 0; o < d->output_count; o++)
        outputs[o] = data_of(context, tilesmith_tflite_model.outputs[o]);
    int64_t bytes = tilesmith_model_arena_bytes(own->model, extents);
    if (bytes < 0)
        return failed(context, own, TILESMITH_OVERFLOW, NULL);
    struct arena *arena = take_arena(own->spares, bytes);
    if (!arena)
        return failed(context, own, TILESMITH_NO_MEMORY, NULL);
    int32_t code = tilesmith_model_run(own->model, extents, inputs, outputs, arena + 1);
    if (code)
        failed(context, own, code, arena + 1);
    give_arena(own->spares, arena);
    return code ? FAILURE : OK;
}

/* The delegate. */

static bool has_types(struct context *context, const struct tilesmith_tensor *tensors, const int32_t *numbers, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        int type = context->tensors[numbers[i]].type;
        if (type < 0 || type >= (int)(sizeof TYPES / sizeof *TYPES) || strcmp(TYPES[type], tensors[i].type))
            return false;
    }
    return true;
}

static uint64_t with_numbers(uint64_t sum, const struct int_array *numbers) {
    sum = 31 * sum + (uint64_t)numbers->size;
    for (int i = 0; i < numbers->size; i++)
        sum = 31 * sum + (uint64_t)numbers->data[i];
    return sum;
}

/* A sum of the codes, inputs and outputs of all nodes, in their order. */
static int sum_of_nodes(struct context *context, const struct int_array *plan, uint64_t *sum) {
    *sum = 0;
    for (int i = 0; i < plan->size; i++) {
        struct node *node;
        struct registration *kind;
        if (context->find_node(context, plan->data[i], &node, &kind))
            return FAILURE;
        *sum = with_numbers(with_numbers(31 * *sum + (uint64_t)kind->builtin_code, node->inputs), node->outputs);
    }
    return OK;
}

/* Whether the interpreter has the model that was compiled. */
static bool is_own(struct context *context, const struct int_array *plan) {
    const struct tilesmith_description *d = description();
    const struct tilesmith_tflite *own = &tilesmith_tflite_model;
    uint64_t nodes, sum = 0;
    if (context->tensor_count < own->tensor_count || sum_of_nodes(context, plan, &nodes) || nodes != own->nodes_sum)
        return false;
    for (uint64_t i = 0; i < own->tensor_count; i++) {
        const struct tensor *t = &context->tensors[i];
        if (t->allocation_type == MEMORY_MAPPED && t->data)
            sum += tilesmith_sum(t->data, (int64_t)t->bytes) * (2 * i + 1);
    }
    return sum == own->constants_sum && has_types(context, d->inputs, own->inputs, d->input_count) &&
           has_types(context, d->outputs, own->outputs, d->output_count);
}

/* Take all nodes. */
static int prepare(struct context *context, struct delegate *own) {
    const struct registration kind = {
        .init = init, .free = forget, .prepare = prepare_node, .invoke = invoke, .name = "Tilesmith", .version = 1};
    struct int_array *plan, *nodes;
    if (context->plan(context, &plan))
        return FAILURE;
    if (!is_own(context, plan)) {
        context->report(context, "tilesmith: the delegate was compiled for another model");
        return FAILURE;
    }
    size_t bytes = sizeof *nodes + sizeof(int) * (size_t)(plan->size + 1);
    nodes = malloc(bytes);
    if (!nodes)
        return failed(context, own, TILESMITH_NO_MEMORY, NULL);
    memcpy(nodes, plan, sizeof *nodes + sizeof(int) * (size_t)plan->size); /* replacing nodes changes the plan */
    int status = context->replace(context, kind, nodes, own);
    free(nodes);
    return status;
}

EXPORTED struct delegate *tflite_plugin_create_delegate(char **keys, char **values, size_t count,
                                                        void (*report)(const char *)) {
    struct tilesmith_options options = {.abi = TILESMITH_ABI, .size = sizeof options};
    struct delegate *own = calloc(1, sizeof *own);
    options.threads = tilesmith_tflite_model.threads;
    for (size_t i = 0; own && i < count; i++) {
        char text[TEXT], *end;
        options.threads = strtoll(values[i], &end, 10);
        if (strcmp(keys[i], "threads") || *end || options.threads < 1) {
            snprintf(text, sizeof text, "tilesmith: option %s: expected threads, a number from 1 on, found %s", keys[i],
                     values[i]);
            report(text);
            free(own);
            return NULL;
        }
    }
    int32_t code = own ? tilesmith_model_create(description(), &options, &own->model) : TILESMITH_NO_MEMORY;
    if (code) {
        char text[TEXT];
        tilesmith_model_error(NULL, code, NULL, text, sizeof text);
        report(text);
        free(own);
        return NULL;
    }
    own->prepare = prepare;
    return own;
}

EXPORTED void tflite_plugin_destroy_delegate(struct delegate *own) {
    if (!own)
        return;
    free_arenas(own->spares);
    tilesmith_model_destroy(own->model);
    free(own);
}
