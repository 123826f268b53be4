/* Compiled layers as node operators of Tengine: see tilesmith_tengine.h.
 *
 * The structures are those of source/device/cpu/cpu_node.h, source/device/cpu/cpu_graph.h and source/graph/node.h of
 * Tengine 1.5, up to the last field that this file reads.  The functions are those of source/api/c_api.h, and two that an
 * engine exports only if it was built with TENGINE_ENABLE_ALL_SYMBOL. */
#define _GNU_SOURCE
#include "tilesmith_tengine.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION "1.5" /* of the engine */
#define MOST_AXES 8
#define TEXT 512 /* bytes of a message */

enum { F32 = 0 };           /* the element type */
enum { ABOVE_ALL = 20000 }; /* a score; the engine's own kernels have at most OPS_SCORE_STATIC, 10000 */

struct node {
    uint16_t index;
    uint8_t dynamic_shape, input_num, output_num, node_type;
    int8_t subgraph;
    uint16_t *inputs, *outputs;
    char *name;
    uint16_t op_type;
    uint8_t op_version, same_shape;
    uint16_t param_size;
    void *params;
};

struct exec_graph {
    void *nodes, *pool, *device, *shared;
    int shared_size;
    void *packed;
    int packed_size;
    int threads;
};

struct node_ops;

struct exec_node {
    struct node *node;
    struct node_ops *ops;
    void *own;
};

typedef int (*node_fn)(struct node_ops *, struct exec_node *, struct exec_graph *);

struct node_ops {
    node_fn prerun, run, reshape, postrun, init_node, release_node;
    int (*score)(struct node_ops *, struct exec_graph *, struct node *);
};

/* The engine's functions, and their names. */
static struct {
    const char *(*version)(void);
    void *(*input)(struct node *, int);
    void *(*output)(struct node *, int);
    int (*shape)(void *tensor, int *dims, int most);
    int (*type)(void *tensor);
    void *(*data)(void *tensor);
    int (*bytes)(void *tensor);
    int (*type_of_op)(const char *name);
    int (*add)(int type, struct node_ops *);
    int (*remove)(int type, struct node_ops *);
} engine;

static const char *const FUNCTIONS[] = {
    "get_tengine_version",       "get_node_input_tensor",     "get_node_output_tensor", "get_tensor_shape",
    "get_tensor_data_type",      "get_tensor_buffer",         "get_tensor_buffer_size", "get_op_type_from_name",
    "register_builtin_node_ops", "unregister_builtin_node_ops"};

/* A layer as the engine knows it. */
struct entry {
    struct node_ops ops; /* the first field: the engine passes its address */
    const struct tilesmith_tengine_layer *layer;
    int op_type;
};

static struct entry *entries;
static int64_t entry_count;

/* What a node has of its own. */
struct kernel {
    struct tilesmith_model *model;
    void *arena;
};

static const struct tilesmith_tengine_layer *layer_of(struct node_ops *ops) { return ((struct entry *)ops)->layer; }

/* Whether a layer computes a node. */

static int fits(void *tensor, const struct tilesmith_tensor *expected) {
    int dims[MOST_AXES];
    if (!tensor || engine.type(tensor) != F32 || engine.shape(tensor, dims, MOST_AXES) != expected->rank)
        return 0;
    for (int64_t axis = 0; axis < expected->rank; axis++)
        if (dims[axis] != expected->shape[axis])
            return 0;
    return 1;
}

/* Whether a node's tensors, except for constants, have the shapes of the layer. */
static int fits_shapes(const struct tilesmith_tengine_layer *layer, struct node *node) {
    const struct tilesmith_description *d = layer->description;
    int64_t next = 0;
    for (int i = 0; i < node->input_num; i++)
        if (!layer->is_constant[i] && !fits(engine.input(node, i), &d->inputs[next++]))
            return 0;
    return fits(engine.output(node, 0), &d->outputs[0]);
}

static int fits_params(const struct tilesmith_tengine_layer *layer, const struct node *node) {
    const int32_t *params = node->params;
    if (layer->param_count && (!params || node->param_size < sizeof(int32_t) * (size_t)layer->param_count))
        return 0;
    for (int64_t i = 0; i < layer->param_count; i++)
        if (layer->params[i] != TILESMITH_ANY && layer->params[i] != params[i])
            return 0;
    return 1;
}

static int fits_constants(const struct tilesmith_tengine_layer *layer, struct node *node) {
    uint64_t sum = 0;
    for (int i = 0; i < node->input_num; i++) {
        void *tensor = engine.input(node, i);
        const void *data = layer->is_constant[i] ? engine.data(tensor) : NULL;
        if (layer->is_constant[i] && !data)
            return 0;
        if (data)
            sum += tilesmith_sum(data, engine.bytes(tensor)) * (2 * (uint64_t)i + 1);
    }
    return sum == layer->constants_sum;
}

static int score(struct node_ops *ops, struct exec_graph *graph, struct node *node) {
    const struct tilesmith_tengine_layer *layer = layer_of(ops);
    (void)graph;
    return node->input_num == layer->input_count && node->output_num == 1 && fits_shapes(layer, node) &&
                   fits_params(layer, node) && fits_constants(layer, node)
               ? ABOVE_ALL
               : 0;
}

/* Running. */

static int failed(const struct kernel *own, const char *name, int32_t code) {
    char text[TEXT];
    tilesmith_model_error(own->model, code, own->model ? own->arena : NULL, text, sizeof text);
    fprintf(stderr, "tilesmith: %s: %s\n", name, text);
    return -1;
}

static int release_node(struct node_ops *ops, struct exec_node *node, struct exec_graph *graph) {
    struct kernel *own = node->own;
    (void)ops, (void)graph;
    if (own) {
        tilesmith_model_destroy(own->model);
        free(own->arena);
    }
    free(own);
    node->own = NULL;
    return 0;
}

static int init_node(struct node_ops *ops, struct exec_node *node, struct exec_graph *graph) {
    struct tilesmith_options options = {.abi = TILESMITH_ABI, .size = sizeof options, .threads = graph->threads};
    struct kernel none = {NULL, NULL}, *own = calloc(1, sizeof *own);
    int32_t code = own ? tilesmith_model_create(layer_of(ops)->description, &options, &own->model) : TILESMITH_NO_MEMORY;
    if (!code) {
        size_t bytes = (size_t)tilesmith_model_arena_bytes(own->model, NULL);
        own->arena = aligned_alloc(TILESMITH_ALIGNMENT, (bytes / TILESMITH_ALIGNMENT + 1) * TILESMITH_ALIGNMENT);
        code = own->arena ? TILESMITH_OK : TILESMITH_NO_MEMORY;
    }
    node->own = own;
    if (!code)
        return 0;
    failed(&none, node->node->name, code);
    release_node(ops, node, graph);
    return -1;
}

static int run(struct node_ops *ops, struct exec_node *node, struct exec_graph *graph) {
    const struct tilesmith_tengine_layer *layer = layer_of(ops);
    const struct kernel *own = node->own;
    const void *inputs[layer->input_count];
    int64_t count = 0;
    (void)graph;
    if (!fits_shapes(layer, node->node)) {
        fprintf(stderr, "tilesmith: %s: shapes changed after prerun_graph; call it again\n", node->node->name);
        return -1;
    }
    for (int i = 0; i < node->node->input_num; i++)
        if (!layer->is_constant[i])
            inputs[count++] = engine.data(engine.input(node->node, i));
    void *output = engine.data(engine.output(node->node, 0));
    int32_t code = tilesmith_model_run(own->model, NULL, inputs, &output, own->arena);
    return code ? failed(own, node->node->name, code) : 0;
}

/* Registration. */

static int find_functions(void) {
    void *library = dlopen("libtengine-lite.so", RTLD_LAZY | RTLD_NOLOAD); /* whose names may be local */
    void *found[sizeof FUNCTIONS / sizeof *FUNCTIONS];
    _Static_assert(sizeof found == sizeof engine, "a name for each function");
    for (size_t i = 0; i < sizeof FUNCTIONS / sizeof *FUNCTIONS; i++) {
        found[i] = dlsym(RTLD_DEFAULT, FUNCTIONS[i]);
        if (!found[i] && library)
            found[i] = dlsym(library, FUNCTIONS[i]);
        if (!found[i]) {
            fprintf(stderr,
                    "tilesmith: expected the function %s in Tengine, found none; build Tengine with "
                    "-DTENGINE_ENABLE_ALL_SYMBOL=ON\n",
                    FUNCTIONS[i]);
            return -1;
        }
    }
    memcpy(&engine, found, sizeof found);
    const char *version = engine.version();
    if (strncmp(version, VERSION, strlen(VERSION)) || (version[strlen(VERSION)] >= '0' && version[strlen(VERSION)] <= '9')) {
        fprintf(stderr, "tilesmith: expected Tengine " VERSION ", found %s\n", version);
        return -1;
    }
    return 0;
}

int tilesmith_tengine_init(const struct tilesmith_tengine_layer *const *layers, int64_t count) {
    struct kernel probe = {NULL, NULL};
    int32_t code = TILESMITH_OK;
    if (entries || find_functions())
        return -1;
    code = tilesmith_model_create(layers[0]->description, NULL, &probe.model); /* whether this processor runs the code */
    tilesmith_model_destroy(probe.model);
    probe.model = NULL;
    entries = code ? NULL : calloc((size_t)count, sizeof *entries);
    if (!entries)
        return failed(&probe, "plugin", code ? code : TILESMITH_NO_MEMORY);
    for (entry_count = 0; entry_count < count; entry_count++) {
        struct entry *e = &entries[entry_count];
        e->ops = (struct node_ops){.run = run, .init_node = init_node, .release_node = release_node, .score = score};
        e->layer = layers[entry_count];
        e->op_type = engine.type_of_op(e->layer->op);
        if (e->op_type < 0 || engine.add(e->op_type, &e->ops) < 0) {
            fprintf(stderr, "tilesmith: Tengine refused operator %s\n", e->layer->op);
            tilesmith_tengine_release();
            return -1;
        }
    }
    return 0;
}

int tilesmith_tengine_release(void) {
    while (entry_count > 0) {
        struct entry *e = &entries[--entry_count];
        engine.remove(e->op_type, &e->ops);
    }
    free(entries);
    entries = NULL;
    return 0;
}
