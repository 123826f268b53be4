/* relu.  Made by Tilesmith 0.1.0 for native. */
#include "relu_op.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef float ts_f32x8 __attribute__((vector_size(8 * sizeof(float))));
typedef float ts_f32x8_u __attribute__((vector_size(8 * sizeof(float)), aligned(sizeof(float)), may_alias));
typedef int32_t ts_i32x8 __attribute__((vector_size(8 * sizeof(int32_t))));
typedef int32_t ts_i32x8_u __attribute__((vector_size(8 * sizeof(int32_t)), aligned(sizeof(int32_t)), may_alias));

/* relu_op_kernel(x0: f32[8], relu: f32[8]) */
static int32_t relu_op_kernel(
    const float *restrict x0,
    float *restrict relu,
    void *workspace, struct tilesmith_context *context) {
    (void)workspace, (void)context;
    const ts_f32x8 v = *(const ts_f32x8_u *)(x0);
    const ts_f32x8 v_1 = (ts_f32x8){0};
    const ts_i32x8 m = ~(ts_i32x8)(v < v_1);
    *(ts_f32x8_u *)(relu) = (ts_f32x8)((m & (ts_i32x8)v) | (~m & (ts_i32x8)v_1));
    return 0;
}

int32_t relu_op(const float *x0, float *output, void *workspace) {
    struct tilesmith_context context;
    memset(&context, 0, sizeof context);
    return relu_op_kernel(x0, output, workspace, &context);
}
