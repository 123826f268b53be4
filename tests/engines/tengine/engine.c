/* The parts of Tengine 1.5 that a plugin of node operators meets, for a test that has no engine: one node with its
 * tensors, the table of operators, and what create_exec_graph and run do with the operator of the highest score.  The
 * structures have the fields of source/device/cpu/cpu_node.h, cpu_graph.h and source/graph/node.h. */
#include <stdint.h>
#include <string.h>

enum { MOST = 64 };

struct op {
    uint16_t type;
    uint8_t version, same_shape;
    uint16_t param_size;
    void *param_mem;
    int (*infer_shape)(void *);
};

struct node {
    uint16_t index;
    uint8_t dynamic_shape, input_num, output_num, node_type;
    int8_t subgraph_idx;
    uint16_t *input_tensors, *output_tensors;
    char *name;
    struct op op;
    void *graph;
};

struct exec_graph {
    void *exec_node_list, *mem_pool, *dev, *shared_mem;
    int shared_mem_size;
    void *shared_pack4_mem;
    int shared_pack4_mem_size, num_thread, mode;
    size_t cpu_affinity;
    void *timer;
};

struct node_ops;

struct exec_node {
    struct node *ir_node;
    struct node_ops *node_ops;
    void *ops_priv;
};

struct node_ops {
    int (*prerun)(struct node_ops *, struct exec_node *, struct exec_graph *);
    int (*run)(struct node_ops *, struct exec_node *, struct exec_graph *);
    int (*reshape)(struct node_ops *, struct exec_node *, struct exec_graph *);
    int (*postrun)(struct node_ops *, struct exec_node *, struct exec_graph *);
    int (*init_node)(struct node_ops *, struct exec_node *, struct exec_graph *);
    int (*release_node)(struct node_ops *, struct exec_node *, struct exec_graph *);
    int (*score)(struct node_ops *, struct exec_graph *, struct node *);
};

struct tensor {
    int type, rank, dims[8];
    void *data;
};

static struct tensor inputs[MOST], output;
static struct node node;
static struct exec_node running;
static struct exec_graph graph;
static struct node_ops *table[MOST];
static int types[MOST], count;
static const char *version = "1.5-dev";
static const char *const NAMES[] = {"Convolution", "Pooling", "Softmax"};

/* What a plugin calls. */

const char *get_tengine_version(void) { return version; }
void *get_node_input_tensor(struct node *n, int i) { return i < n->input_num ? &inputs[i] : NULL; }
void *get_node_output_tensor(struct node *n, int i) { return i < n->output_num ? &output : NULL; }
int get_tensor_data_type(struct tensor *t) { return t->type; }
void *get_tensor_buffer(struct tensor *t) { return t->data; }

int get_tensor_shape(struct tensor *t, int *dims, int most) {
    if (most < t->rank)
        return -1;
    memcpy(dims, t->dims, sizeof(int) * (size_t)t->rank);
    return t->rank;
}

int get_tensor_buffer_size(struct tensor *t) {
    int bytes = 4;
    for (int i = 0; i < t->rank; i++)
        bytes *= t->dims[i];
    return bytes;
}

int get_op_type_from_name(const char *name) {
    for (int i = 0; i < (int)(sizeof NAMES / sizeof *NAMES); i++)
        if (!strcmp(NAMES[i], name))
            return i;
    return -1;
}

#ifndef HIDDEN
int register_builtin_node_ops(int type, struct node_ops *ops) {
    types[count] = type;
    table[count++] = ops;
    return 0;
}

int unregister_builtin_node_ops(int type, struct node_ops *ops) {
    for (int i = 0; i < count; i++)
        if (types[i] == type && table[i] == ops) {
            types[i] = types[--count];
            table[i] = table[count];
            return 0;
        }
    return -1;
}
#endif

/* What the test calls. */

void set_version(const char *text) { version = text; }
int registered(void) { return count; }

/* A node without tensors. */
void begin(const char *op, void *params, int bytes) {
    node = (struct node){.output_num = 1, .name = "node"};
    node.op = (struct op){.type = (uint16_t)get_op_type_from_name(op), .param_size = (uint16_t)bytes, .param_mem = params};
}

static struct tensor made(int type, int rank, const int *dims, void *data) {
    struct tensor t = {.type = type, .rank = rank, .data = data};
    memcpy(t.dims, dims, sizeof(int) * (size_t)rank);
    return t;
}

void add_input(int type, int rank, const int *dims, void *data) { inputs[node.input_num++] = made(type, rank, dims, data); }
void set_output(int type, int rank, const int *dims, void *data) { output = made(type, rank, dims, data); }

/* Choose the operator of the highest score above that of the engine's own kernels, 10000.  Returns 0 if it is ours. */
int prepare(int threads) {
    int best = 10000;
    running = (struct exec_node){.ir_node = &node};
    graph.num_thread = threads;
    for (int i = 0; i < count; i++) {
        int score = types[i] == node.op.type ? table[i]->score(table[i], &graph, &node) : 0;
        if (score > best) {
            best = score;
            running.node_ops = table[i];
        }
    }
    return running.node_ops ? running.node_ops->init_node(running.node_ops, &running, &graph) : -2;
}

int run(void) { return running.node_ops->run(running.node_ops, &running, &graph); }
int finish(void) { return running.node_ops->release_node(running.node_ops, &running, &graph); }
