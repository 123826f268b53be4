/* Measures relu_op: prints the least and the median time of a call. */
#include "relu_op.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SAMPLES 25
#define SAMPLE_SECONDS 0.004
#define FLOPS 0.0
#define BYTES 64.0

static uint64_t state = 1;

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

static double now(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void) {
    double seconds[SAMPLES];
    float *x0 = memory(RELU_OP_X0_COUNT * sizeof *x0);
    float *output = memory(RELU_OP_OUTPUT_COUNT * sizeof *output);
    void *workspace = memory(RELU_OP_WORKSPACE_BYTES);
    for (size_t i = 0; i < RELU_OP_X0_COUNT; i++) x0[i] = (float)unit();
    long calls = 1;
    for (double taken = 0.0; taken < SAMPLE_SECONDS; calls *= 2) { /* also warms caches up */
        double begin = now();
        for (long i = 0; i < calls; i++)
            if (relu_op(x0, output, workspace) != 0) return 1;
        taken = now() - begin;
    }
    for (int s = 0; s < SAMPLES; s++) {
        double begin = now();
        for (long i = 0; i < calls; i++) (void)relu_op(x0, output, workspace);
        seconds[s] = (now() - begin) / (double)calls;
    }
    qsort(seconds, SAMPLES, sizeof *seconds, ascending);
    double least = seconds[0], median = seconds[SAMPLES / 2];
    printf("relu_op: least %.3f us, median %.3f us, %.2f GFLOP/s, %.2f GB/s of arguments\n",
           least * 1e6, median * 1e6, FLOPS / median * 1e-9, BYTES / median * 1e-9);
    return 0;
}
