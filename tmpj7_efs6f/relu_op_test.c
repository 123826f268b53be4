/* Compares relu_op with plain loops, on numbers drawn from a seed: the first argument, or 1. */
#include "relu_op.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline float ts_max_f32(float a, float b) { return a >= b || a != a ? a : b; }

/* relu_op_reference(x0: f32[8], relu: f32[8]) */
static int32_t relu_op_reference(
    const float *restrict x0,
    float *restrict relu,
    void *workspace, struct tilesmith_context *context) {
    (void)workspace, (void)context;
    for (int64_t i0 = 0; i0 < 2; i0++) {
        for (int64_t i1 = 0; i1 < 4; i1++) {
            relu[i0 * 4 + i1] = ts_max_f32(x0[i0 * 4 + i1], 0.0f);
        }
    }
    return 0;
}

static uint64_t state;

static uint32_t draw(void) { /* a linear congruential generator (Knuth, MMIX) */
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 32);
}

static inline double unit(void) { /* from -1 to 1 */
    return draw() / 2147483648.0 - 1.0;
}

static void *memory(size_t bytes) { /* aligned to 64 bytes, never freed */
    char *found = calloc(bytes + 64, 1);
    if (found == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(2);
    }
    return found + 64 - (uintptr_t)found % 64;
}

static double difference, largest;

static void start(void) { difference = largest = 0.0; }

static void compare(double found, double wanted) {
    if (found == wanted || (found != found && wanted != wanted)) {
        difference += 0.0;
    } else if (!(fabs(found - wanted) <= difference)) {
        difference = fabs(found - wanted); /* NaN stays */
    }
    if (fabs(wanted) > largest) largest = fabs(wanted);
}

static int judged(const char *name, double bound) {
    int failed = !(difference <= bound * largest);
    printf("%s %s: largest difference %g of %g, allowed %g of it\n", failed ? "FAILED" : "ok", name,
           difference, largest, bound);
    return failed;
}

int main(int count, char **arguments) {
    int failed = 0;
    struct tilesmith_context context;
    state = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    float *x0 = memory(RELU_OP_X0_COUNT * sizeof *x0);
    float *output = memory(RELU_OP_OUTPUT_COUNT * sizeof *output);
    float *want_output = memory(RELU_OP_OUTPUT_COUNT * sizeof *want_output);
    for (size_t i = 0; i < RELU_OP_X0_COUNT; i++) x0[i] = (float)unit();
    int32_t code = relu_op(x0, output, memory(RELU_OP_WORKSPACE_BYTES));
    memset(&context, 0, sizeof context);
    int32_t plain = relu_op_reference(x0, want_output, memory(0), &context);
    if (code != 0 || plain != 0) {
        printf("FAILED: relu_op returned %d, the plain loops %d\n", (int)code, (int)plain);
        return 1;
    }
    start();
    for (size_t i = 0; i < RELU_OP_OUTPUT_COUNT; i++)
        compare((double)output[i], (double)want_output[i]);
    failed |= judged("output", 0.0001);
    return failed;
}
