/* What compiled code needs at run time: a way to spread a loop over threads, and nothing else.
 *
 * Kernels are `int32_t kernel(buffers..., scalars..., void *workspace, struct tilesmith_rt *rt)`.
 * A program's entry is `int32_t tilesmith_main(void *const *inputs, void *const *outputs, const void *constants,
 * void *arena, struct tilesmith_rt *rt)`; it returns 0, or 1 + the number of the assertion that failed.
 */
#ifndef TILESMITH_H
#define TILESMITH_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One call's view of the runtime.  Field offsets are known to the code generator. */
struct tilesmith_rt {
    int64_t threads; /* how many threads a parallel loop may use, the caller included */
    void *reserved;  /* NULL */
    void *scratch;   /* 64-byte aligned; room for each thread's private buffers */
};

/* A range of iterations of a parallel loop, run as thread number `thread` (0 .. threads - 1). */
typedef void (*tilesmith_body)(void *env, int64_t begin, int64_t end, int64_t thread);

typedef int32_t (*tilesmith_entry)(void *const *inputs, void *const *outputs, const void *constants, void *arena,
                                   struct tilesmith_rt *rt);

/* Run iterations 0 .. extent - 1 in contiguous chunks, one per thread, and return when all are done.
 *
 * The process has one pool of threads.  A call from inside a parallel loop, or while another thread has
 * the pool, runs all iterations on the calling thread. */
void tilesmith_parallel_for(struct tilesmith_rt *rt, tilesmith_body body, void *env, int64_t extent);

#ifdef __cplusplus
}
#endif
#endif
