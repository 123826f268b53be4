#include "tilesmith_tengine.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TENSORS 16 /* inputs, or outputs, of an operator */

/* What a node's kernel keeps in kernel_param. */
struct state {
    const struct tilesmith_operator *op;
    struct tilesmith_model *kernel;
    struct tilesmith_shape shapes[MOST_TENSORS]; /* of the inputs that the workspace is for */
    void *workspace;
};

static struct state *state_of(struct custom_kernel_ops *ops) { return ops->kernel_param; }

static int fits_counts(const struct state *s, int inputs, int outputs) {
    return inputs == s->op->description->input_count && outputs == s->op->description->output_count;
}

/* Tengine's number of an element type; -1: it has none. */
static int data_type(const char *type) {
    static const char *const names[] = {"f32", "f16", "i8", "u8", "i32", "i16"}; /* TENGINE_DT_FP32 and so on */
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (!strcmp(names[i], type))
            return i;
    return -1;
}

static int has_type(const struct custom_kernel_tensor *found, const struct tilesmith_tensor *expected) {
    return found->data_type == data_type(expected->type);
}

static void read_shapes(struct custom_kernel_tensor *const *inputs, int count, struct tilesmith_shape *shapes) {
    for (int i = 0; i < count; i++) {
        shapes[i].rank = inputs[i]->dim_num;
        for (int axis = 0; axis < inputs[i]->dim_num; axis++)
            shapes[i].extents[axis] = inputs[i]->dim[axis];
    }
}

/* A shape ends with 0, or fills the array. */
static int infer_shape(struct custom_kernel_ops *ops, const int *inputs[], int input_num, int *outputs[], int output_num,
                       int layout) {
    const struct state *s = state_of(ops);
    struct tilesmith_shape shapes[MOST_TENSORS], results[MOST_TENSORS];
    (void)layout;
    if (!fits_counts(s, input_num, output_num))
        return -1;
    for (int i = 0; i < input_num; i++) {
        int rank = 0;
        for (; rank < MAX_SHAPE_DIM_NUM && inputs[i][rank]; rank++)
            shapes[i].extents[rank] = inputs[i][rank];
        shapes[i].rank = rank;
    }
    if (s->op->shapes(s->kernel, shapes, results))
        return -1;
    for (int o = 0; o < output_num; o++)
        for (int axis = 0; axis < MAX_SHAPE_DIM_NUM; axis++) {
            int64_t extent = axis < results[o].rank ? results[o].extents[axis] : 0;
            if (extent > INT_MAX)
                return -1;
            outputs[o][axis] = (int)extent;
        }
    return 0;
}

static int bind(struct custom_kernel_ops *ops, const struct custom_kernel_tensor *inputs[], int input_num,
                const struct custom_kernel_tensor *outputs[], int output_num) {
    const struct tilesmith_description *d = state_of(ops)->op->description;
    if (!fits_counts(state_of(ops), input_num, output_num))
        return -1;
    for (int i = 0; i < input_num; i++)
        if (!has_type(inputs[i], &d->inputs[i]))
            return -1;
    for (int o = 0; o < output_num; o++)
        if (!has_type(outputs[o], &d->outputs[o]))
            return -1;
    return 0;
}

/* The workspace for new shapes. */
static int reshape(struct custom_kernel_ops *ops, struct custom_kernel_tensor *inputs[], int input_num,
                   struct custom_kernel_tensor *outputs[], int output_num) {
    struct state *s = state_of(ops);
    (void)outputs;
    if (!fits_counts(s, input_num, output_num))
        return -1;
    read_shapes(inputs, input_num, s->shapes);
    int64_t bytes = s->op->workspace_bytes(s->kernel, s->shapes);
    free(s->workspace);
    s->workspace = bytes < 0 ? NULL : malloc((size_t)bytes);
    return s->workspace ? 0 : -1;
}

static int prerun(struct custom_kernel_ops *ops, struct custom_kernel_tensor *inputs[], int input_num,
                  struct custom_kernel_tensor *outputs[], int output_num, int dynamic_shape) {
    return dynamic_shape ? 0 : reshape(ops, inputs, input_num, outputs, output_num);
}

static int run(struct custom_kernel_ops *ops, struct custom_kernel_tensor *inputs[], int input_num,
               struct custom_kernel_tensor *outputs[], int output_num) {
    const struct state *s = state_of(ops);
    const void *data[MOST_TENSORS];
    void *results[MOST_TENSORS];
    if (!fits_counts(s, input_num, output_num))
        return -1;
    for (int i = 0; i < input_num; i++)
        data[i] = inputs[i]->data;
    for (int o = 0; o < output_num; o++)
        results[o] = outputs[o]->data;
    return s->op->run(s->kernel, s->shapes, data, results, s->workspace) ? -1 : 0;
}

static int postrun(struct custom_kernel_ops *ops, struct custom_kernel_tensor *inputs[], int input_num,
                   struct custom_kernel_tensor *outputs[], int output_num) {
    struct state *s = state_of(ops);
    (void)inputs, (void)input_num, (void)outputs, (void)output_num;
    free(s->workspace);
    s->workspace = NULL;
    return 0;
}

static void release(struct custom_kernel_ops *ops) {
    struct state *s = state_of(ops);
    free(s->workspace);
    s->op->destroy(s->kernel);
    free(s);
    free(ops);
}

struct search {
    const char *name;
    const struct tilesmith_operator *found;
};

static int32_t compare(void *engine, const struct tilesmith_operator *op) {
    struct search *search = engine;
    if (!strcmp(op->name, search->name))
        search->found = op;
    return 0;
}

int tilesmith_set_kernel(node_t node, const char *device, tilesmith_register_fn plugin, const char *name, int threads) {
    struct search search = {name, NULL};
    plugin(compare, &search);
    if (!search.found || search.found->description->input_count > MOST_TENSORS ||
        search.found->description->output_count > MOST_TENSORS)
        return -1;
    struct tilesmith_options options = {.abi = TILESMITH_ABI, .size = sizeof options};
    struct custom_kernel_ops *ops = calloc(1, sizeof *ops);
    struct state *s = calloc(1, sizeof *s);
    options.threads = threads;
    if (!ops || !s || search.found->create(search.found, &options, &s->kernel)) {
        free(ops);
        free(s);
        return -1;
    }
    s->op = search.found;
    *ops = (struct custom_kernel_ops){
        .kernel_name = s->op->name, .op = s->op->name, .force = 1, .kernel_param = s, .kernel_param_size = sizeof *s,
        .infer_shape = infer_shape, .bind = bind, .prerun = prerun, .reshape = reshape, .run = run, .postrun = postrun,
        .release = release,
    };
    if (set_custom_kernel(node, device, ops)) {
        release(ops);
        return -1;
    }
    return 0;
}
