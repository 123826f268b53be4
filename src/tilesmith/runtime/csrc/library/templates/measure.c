/* Measures a candidate of tuning beside a baseline, for an agent: `measure THREADS SECONDS FLUSHED`.
 *
 * Descriptor 0 gives the inputs of the candidate, then those of the baseline.  Descriptor 1 takes the candidate's outputs
 * after its first run; the number of turns, and for each turn the seconds of a run of both, as doubles; and the candidate's
 * outputs after its last run.  FLUSHED bytes are written before each run, to empty the caches. */
#define _POSIX_C_SOURCE 200809L
#include "pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TURN_SECONDS 1e-3
#define LATE 5 /* multiples of SECONDS after which no turn begins */
enum { TURNS = 25, FLUSHED_RUNS = 3 };

struct argument {
    size_t bytes;
    int copies; /* that runs take in turn, so that the caches don't have it */
};

struct kernel {
    int32_t (*run)(void *const *arguments, void *workspace, struct tilesmith_context *context);
    int inputs, count;
    const struct argument *arguments; /* inputs, then outputs */
    size_t workspace, scratch;        /* bytes; scratch is each thread's */
    void **places;                    /* of the first copies */
    void *memory;
    int next;
    struct tilesmith_context context;
};

KERNELS

static char *other;
static size_t flushed;

static size_t whole(size_t bytes) { return (bytes / TILESMITH_ALIGNMENT + 1) * TILESMITH_ALIGNMENT; }

static char *memory(size_t bytes) {
    char *found = aligned_alloc(TILESMITH_ALIGNMENT, whole(bytes));
    if (!found)
        exit(2);
    return memset(found, 0xff, whole(bytes)); /* what a kernel does not write stays NaN */
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void prepare(struct kernel *k, int threads) {
    k->places = calloc((size_t)k->count, sizeof *k->places);
    for (int i = 0; k->places && i < k->count; i++) {
        const struct argument *a = &k->arguments[i];
        char *place = k->places[i] = memory(whole(a->bytes) * (size_t)a->copies);
        if (i < k->inputs && a->bytes && fread(place, a->bytes, 1, stdin) != 1)
            exit(3);
        for (int n = 1; i < k->inputs && n < a->copies; n++)
            memcpy(place + whole(a->bytes) * (size_t)n, place, a->bytes);
    }
    k->memory = memory(whole(k->workspace) + whole(k->scratch) * (size_t)threads);
    k->context.abi = TILESMITH_ABI;
    k->context.size = sizeof k->context;
    k->context.scratch = (char *)k->memory + whole(k->workspace);
    k->context.scratch_bytes = (int64_t)whole(k->scratch);
    k->context.threads = threads;
    k->context.parallel_for = tilesmith_pool_for;
}

/* Seconds of a run, averaged over `times` runs. */
static double run(struct kernel *k, int times) {
    void *at[ARGUMENTS];
    double total = 0, start;
    if (flushed && times > FLUSHED_RUNS)
        times = FLUSHED_RUNS;
    for (int done = 0; done < times;) {
        int together = flushed ? 1 : times;
        if (flushed)
            memset(other, done, flushed);
        start = seconds();
        for (int i = 0; i < together; i++, k->next++, done++) {
            for (int a = 0; a < k->count; a++)
                at[a] = (char *)k->places[a] + whole(k->arguments[a].bytes) * (size_t)(k->next % k->arguments[a].copies);
            if (k->run(at, k->memory, &k->context))
                exit(4);
        }
        total += seconds() - start;
    }
    return total / times;
}

static void write_outputs(const struct kernel *k) {
    for (int i = k->inputs; i < k->count; i++)
        fwrite(k->places[i], 1, k->arguments[i].bytes, stdout);
}

int main(int argc, char **argv) {
    int threads = argc > 2 ? atoi(argv[2]) : 1, runs[2];
    double most = argc > 3 ? atof(argv[3]) : 0, turns[TURNS][2], start, count = 0;
    flushed = argc > 4 ? (size_t)atoll(argv[4]) : 0;
    other = memory(flushed);
    for (int n = 0; n < 2; n++)
        prepare(&kernels[n], threads);
    run(&kernels[0], 1);
    write_outputs(&kernels[0]);
    start = seconds();
    while (count < TURNS && (count < 3 || seconds() - start < LATE * most)) {
        for (int n = 0; n < 2; n++) {
            double taken = turns[(int)count][n] = run(&kernels[n], count ? runs[n] : 1);
            if (!count)
                runs[n] = taken < TURN_SECONDS ? (int)(TURN_SECONDS / (taken + 1e-9)) + 1 : 1;
        }
        count++;
    }
    fwrite(&count, sizeof count, 1, stdout);
    fwrite(turns, sizeof *turns, (size_t)count, stdout);
    write_outputs(&kernels[0]);
    return fflush(stdout) ? 5 : 0;
}
