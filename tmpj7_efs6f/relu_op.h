/* relu_op: relu.
 * Made by Tilesmith 0.1.0 for native.
 *
 * x0: f32[2, 4]
 * output: f32[2, 4]
 *
 * Dense row-major arrays, aligned as their elements are, that don't overlap. */
#ifndef RELU_OP_H
#define RELU_OP_H

#include "tilesmith.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RELU_OP_WORKSPACE_BYTES 0 /* aligned to 64 bytes; NULL will do where it is 0 */
#define RELU_OP_X0_COUNT 8
#define RELU_OP_OUTPUT_COUNT 8

/* Returns 0, or a code of tilesmith.h after a failure.  Any number of threads may call it at once,
 * each with a workspace of its own. */
int32_t relu_op(const float *x0, float *output, void *workspace);

#ifdef __cplusplus
}
#endif
#endif
