/* Stand-in for Tengine's c_api.h: the declarations for custom kernels alone, with Tengine's names and signatures.  An
 * engine is built with Tengine's own header in its place. */
#ifndef STAND_IN_TENGINE_C_API_H
#define STAND_IN_TENGINE_C_API_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MAX_SHAPE_DIM_NUM 8

#define TENGINE_DT_FP32 0
#define TENGINE_DT_FP16 1
#define TENGINE_DT_INT8 2
#define TENGINE_DT_UINT8 3
#define TENGINE_DT_INT32 4
#define TENGINE_DT_INT16 5

typedef void *node_t;

struct custom_kernel_tensor {
    int dim[MAX_SHAPE_DIM_NUM];
    int dim_num;
    int element_num;
    int element_size;
    int data_type;
    int dev_type;
    int layout_type;

    int quant_type;
    float *scale;
    int *zero_point;
    int *quant_number;

    void *data;
    void *dev_mem;
    void *mapped_mem;
};

struct custom_kernel_ops {
    const char *kernel_name;
    const char *op;
    int force;
    void *kernel_param;
    int kernel_param_size;

    int (*infer_shape)(struct custom_kernel_ops *ops, const int *inputs[], int input_num, int *outputs[], int output_num,
                       int layout);
    int (*inplace_info)(struct custom_kernel_ops *ops, int output_idx);
    int (*bind)(struct custom_kernel_ops *ops, const struct custom_kernel_tensor *inputs[], int input_num,
                const struct custom_kernel_tensor *outputs[], int output_num);
    int (*prerun)(struct custom_kernel_ops *ops, struct custom_kernel_tensor *inputs[], int input_num,
                  struct custom_kernel_tensor *outputs[], int output_num, int dynamic_shape);
    int (*reshape)(struct custom_kernel_ops *ops, struct custom_kernel_tensor *inputs[], int input_num,
                   struct custom_kernel_tensor *outputs[], int output_num);
    int (*run)(struct custom_kernel_ops *ops, struct custom_kernel_tensor *inputs[], int input_num,
               struct custom_kernel_tensor *outputs[], int output_num);
    int (*postrun)(struct custom_kernel_ops *ops, struct custom_kernel_tensor *inputs[], int input_num,
                   struct custom_kernel_tensor *outputs[], int output_num);
    void (*release)(struct custom_kernel_ops *ops);
};

int set_custom_kernel(node_t node, const char *dev_name, struct custom_kernel_ops *kernel_ops);

#ifdef __cplusplus
}
#endif
#endif
