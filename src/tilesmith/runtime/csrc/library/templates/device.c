/* Runs NAME for an agent: `run THREADS` reads the inputs from descriptor 0 and writes the outputs to descriptor 1, raw and
 * in order.  N runs come before in `run THREADS N`.  `time THREADS N` writes the seconds of N runs instead, as doubles. */
#define _POSIX_C_SOURCE 200809L /* musl declares clocks of POSIX only then */
#include "NAME.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void *memory(int64_t bytes) {
    size_t whole = ((size_t)bytes / TILESMITH_ALIGNMENT + 1) * TILESMITH_ALIGNMENT;
    void *found = aligned_alloc(TILESMITH_ALIGNMENT, whole);
    return found ? memset(found, 0, whole) : NULL;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
    const struct tilesmith_description *d = NAME_description();
    struct tilesmith_options options = {.abi = TILESMITH_ABI, .size = sizeof options};
    struct tilesmith_model *model;
    const void *inputs[UPPER_INPUT_COUNT + 1];
    void *outputs[UPPER_OUTPUT_COUNT + 1], *arena;
    int64_t extents[1] = {0}, sizes[UPPER_OUTPUT_COUNT + 1], shapes[UPPER_OUTPUT_AXES + 1], *shape = shapes;
    options.threads = argc > 2 ? atoi(argv[2]) : 1;
    if (NAME_create(&options, &model) || NAME_sizes(model, extents, shapes))
        return 2;
    arena = memory(NAME_arena_bytes(model, extents));
    for (int i = 0; i < UPPER_INPUT_COUNT; i++) {
        int64_t bytes = d->inputs[i].element_bytes;
        for (int64_t a = 0; a < d->inputs[i].rank; a++)
            bytes *= d->inputs[i].shape[a];
        void *data = memory(bytes);
        if (!data || fread(data, 1, (size_t)bytes, stdin) != (size_t)bytes)
            return 3;
        inputs[i] = data;
    }
    for (int o = 0; o < UPPER_OUTPUT_COUNT; o++) {
        sizes[o] = d->outputs[o].element_bytes;
        for (int64_t a = 0; a < d->outputs[o].rank; a++)
            sizes[o] *= *shape++;
        outputs[o] = d->outputs[o].home < 0 ? memory(sizes[o]) : (void *)inputs[d->outputs[o].home];
    }
    int runs = argc > 3 ? atoi(argv[3]) : 0, is_timed = argc > 1 && !strcmp(argv[1], "time");
    for (int n = -1; n < runs; n++) { /* the first one warms up, or is the only one */
        for (int o = 0; o < UPPER_OUTPUT_COUNT; o++)
            if (!is_timed && d->outputs[o].home < 0)
                memset(outputs[o], 0, (size_t)sizes[o]);
        double start = seconds();
        if (NAME_run(model, extents, inputs, outputs, arena))
            return 4;
        double taken = seconds() - start;
        if (n >= 0 && is_timed)
            fwrite(&taken, sizeof taken, 1, stdout);
    }
    for (int o = 0; o < UPPER_OUTPUT_COUNT && !is_timed; o++)
        fwrite(outputs[o], 1, (size_t)sizes[o], stdout);
    return fflush(stdout) ? 5 : 0;
}
