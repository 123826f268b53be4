/* An engine that does with a custom kernel what Tengine does: infer shapes, bind, run, release.  It runs operator `Rows` of
 * a plugin on inputs `table` (argv[1]: raw f32[5,w] with w = argv[3]) and `i` (argv[2]: raw i32[k] with k = argv[4]), and
 * writes the result to argv[5].  Before that, it tries what must be refused. */
#include "ops.h"
#include "tilesmith_tengine.h"

#include <stdio.h>
#include <stdlib.h>

struct node {
    struct custom_kernel_ops *kernel;
};

int set_custom_kernel(node_t node, const char *dev_name, struct custom_kernel_ops *kernel_ops) {
    (void)dev_name;
    ((struct node *)node)->kernel = kernel_ops;
    return 0;
}

static void *read_all(const char *path, size_t bytes) {
    FILE *file = fopen(path, "rb");
    void *data = malloc(bytes);
    if (!file || !data || fread(data, 1, bytes, file) != bytes)
        exit(9);
    fclose(file);
    return data;
}

static void describe(struct custom_kernel_tensor *t, const int *shape, int type, void *data) {
    *t = (struct custom_kernel_tensor){.data_type = type, .element_size = 4, .element_num = 1, .data = data};
    for (; t->dim_num < MAX_SHAPE_DIM_NUM && shape[t->dim_num]; t->dim_num++) {
        t->dim[t->dim_num] = shape[t->dim_num];
        t->element_num *= shape[t->dim_num];
    }
}

int main(int argc, char **argv) {
    struct node node = {NULL};
    if (argc != 6 || tilesmith_set_kernel(&node, NULL, ops_register, "Columns", 1) != -1)
        return 1;
    if (tilesmith_set_kernel(&node, NULL, ops_register, "Rows", 2))
        return 2;
    struct custom_kernel_ops *ops = node.kernel;
    int table[MAX_SHAPE_DIM_NUM] = {5, atoi(argv[3])}, index[MAX_SHAPE_DIM_NUM] = {atoi(argv[4])};
    int result[MAX_SHAPE_DIM_NUM], wrong[MAX_SHAPE_DIM_NUM] = {6, 3};
    int *shapes[] = {result};
    if (ops->infer_shape(ops, (const int *[]){wrong, index}, 2, shapes, 1, 0) != -1)
        return 3;
    if (ops->infer_shape(ops, (const int *[]){table, index}, 2, shapes, 1, 0))
        return 4;
    struct custom_kernel_tensor t[3], *in[] = {&t[0], &t[1]}, *out[] = {&t[2]};
    describe(&t[0], table, TENGINE_DT_FP32, read_all(argv[1], sizeof(float) * 5 * (size_t)table[1]));
    describe(&t[1], index, TENGINE_DT_FP32, read_all(argv[2], sizeof(int) * (size_t)index[0]));
    describe(&t[2], result, TENGINE_DT_FP32, NULL);
    const struct custom_kernel_tensor *const_in[] = {&t[0], &t[1]}, *const_out[] = {&t[2]};
    if (ops->bind(ops, const_in, 2, const_out, 1) != -1)
        return 5;
    t[1].data_type = TENGINE_DT_INT32;
    if (ops->bind(ops, const_in, 2, const_out, 1))
        return 6;
    t[2].data = malloc(sizeof(float) * (size_t)t[2].element_num);
    if (ops->prerun(ops, in, 2, out, 1, 0) || ops->run(ops, in, 2, out, 1) || ops->postrun(ops, in, 2, out, 1))
        return 7;
    FILE *file = fopen(argv[5], "wb");
    if (!file || fwrite(t[2].data, sizeof(float), (size_t)t[2].element_num, file) != (size_t)t[2].element_num ||
        fclose(file))
        return 8;
    for (int i = 0; i < 3; i++)
        free(t[i].data);
    ops->release(ops);
    return 0;
}
