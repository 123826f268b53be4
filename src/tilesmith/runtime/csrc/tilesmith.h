/* The interface between compiled code and whoever runs it: version 2.
 *
 * A program is one function, `tilesmith_main(context)`.  Everything that it needs is in the context: compiled code
 * has no state of its own and calls no function of a runtime by name.  So a C program runs a model by filling in a
 * context, with its own threads and its own memory if it likes.
 *
 * Versions.  Fields are only ever appended.  `size` says how many bytes of the context its owner knows; a program
 * runs if these include every field that it reads.  TILESMITH_ABI changes only when a field changes its meaning.
 *
 * Threads.  A program may run any number of times at once, each run with a context, an arena and scratch memory of
 * its own.  Constants are shared.  Non-uniform memory (NUMA) is out of scope: memory lies where it was first written.
 */
#ifndef TILESMITH_H
#define TILESMITH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TILESMITH_ABI 2
#define TILESMITH_ALIGNMENT 64 /* bytes: of the arena, the constants and each thread's scratch */
#define TILESMITH_VALUES 4     /* room for values in a failure */

/* What a run returns, and what stands in `failure.code` after it. */
enum tilesmith_code {
    TILESMITH_OK = 0,
    TILESMITH_ASSERTION = 1, /* an assertion of the model failed: `call`, `assertion` and `values` say which */
    TILESMITH_VERSION = 2,   /* the context has another version, or is too short: nothing was run */
    TILESMITH_MEMORY = 3,    /* too small: values[0] bytes needed, values[1] given; nothing was run */
    TILESMITH_SIZES = 4,     /* an extent is outside the range that the program was made for; nothing was run */
    TILESMITH_OVERFLOW = 5,  /* a size does not fit 64 bits for these extents; nothing was run */
    TILESMITH_EXTENT = 6,    /* an extent that the run found can't be: `call` is the number of the measurement, values
                              * are the number of the extent in it, the extent, the least and the most that it may be;
                              * without values, it makes a size that can't be */
    TILESMITH_GROWTH = 7,    /* `grow` had no memory: values[0] bytes for slot values[1] */
    TILESMITH_HOST = 8       /* a function of the host failed: `call` is its number; or there is no host */
};

/* Why a run failed.  The program clears `code` and `call` when it starts; other fields count only after a failure. */
struct tilesmith_failure {
    int32_t code;                     /* TILESMITH_OK, or the first failure */
    int32_t call;                     /* index of the kernel call that failed, in the order of the program's calls; of
                                       * TILESMITH_HOST, number of the function */
    int32_t assertion;                /* index of the assertion among those of the kernel */
    int32_t count;                    /* how many of `values` are filled in */
    int64_t values[TILESMITH_VALUES]; /* the integers that the assertion compared */
};

struct tilesmith_context;

/* Iterations begin .. end - 1 of a parallel loop.  `thread` is below `threads` of the context, and no two calls that
 * overlap in time have the same: it selects a thread's part of the scratch memory. */
typedef void (*tilesmith_body)(void *env, int64_t begin, int64_t end, int64_t thread);

/* Run `body` on iterations 0 .. extent - 1, each exactly once, in any number of ranges and in any order, and return
 * when all are done.  What was written before the call is visible to the bodies, what they wrote to the caller. */
typedef void (*tilesmith_parallel_for_fn)(struct tilesmith_context *context, tilesmith_body body, void *env,
                                          int64_t extent);

/* Memory number `slot` of this run, at least `bytes` large (0 too), aligned; NULL when there is none.  It takes the place
 * of what this call gave before for the slot, and begins with the first `keep` bytes of that; if that is large enough, it is
 * given again as it is.  The first slots are the outputs, in order. */
typedef void *(*tilesmith_grow_fn)(void *memory, int64_t slot, int64_t bytes, int64_t keep);

/* Run function number `function` of the host on `count` arguments; 0 is success.  Arguments are the addresses of inputs
 * and outputs, and then, cast to pointers, those of their extents that only a run knows.  Strings and what is no tensor
 * are objects of the host: memory holds 64-bit numbers by which it knows them. */
typedef int32_t (*tilesmith_host_fn)(void *host_data, int64_t function, void *const *arguments, int64_t count);

/* A pointer takes 8 bytes of a context, also where an address has 4: one layout serves all processors (little-endian). */
#if UINTPTR_MAX == UINT32_MAX
#define TILESMITH_POINTER(type, name) \
    type name;                        \
    uint32_t name##_unused
#else
#define TILESMITH_POINTER(type, name) type name
#endif

/* One run of a program.  The owner fills in everything but `failure`.  The program writes `failure`, and `scratch` and
 * `scratch_bytes` if it finds that it needs more (by `grow`). */
struct tilesmith_context {
    uint32_t abi;  /* TILESMITH_ABI */
    uint32_t size; /* sizeof(struct tilesmith_context) */
    /* The input tensors in the program's order: dense, row-major, aligned to their elements; written only where an
     * output lives in one. */
    TILESMITH_POINTER(void *const *, inputs);
    /* The output tensors likewise, written; no input overlaps them.  Those whose extents only the program finds come
     * from grow, and after all outputs an array of i64 takes these extents, one after the other.  The pointer of one
     * that lives in an input is not used. */
    TILESMITH_POINTER(void *const *, outputs);
    TILESMITH_POINTER(const void *, constants); /* the program's constants, aligned; not written */
    TILESMITH_POINTER(void *, arena);           /* `arena_bytes` for intermediate values, aligned, uninitialised */
    TILESMITH_POINTER(void *, scratch);         /* `threads * scratch_bytes` for a thread's own buffers, aligned */
    int64_t scratch_bytes;                      /* of one thread; a multiple of TILESMITH_ALIGNMENT */
    int64_t threads;                            /* that a parallel loop may use, the caller included; at least 1 */
    TILESMITH_POINTER(tilesmith_parallel_for_fn, parallel_for); /* never NULL; see tilesmith_serial_for */
    TILESMITH_POINTER(void *, pool); /* for parallel_for, which finds it here; compiled code ignores it */
    /* The sizes that only this run knows, in the program's order; NULL if it has none.  See tilesmith_sizes_fn. */
    TILESMITH_POINTER(const int64_t *, extents);
    int64_t arena_bytes; /* size of the arena */
    /* For memory whose size only the program finds; NULL: none is to be had. */
    TILESMITH_POINTER(tilesmith_grow_fn, grow);
    TILESMITH_POINTER(void *, memory); /* passed to grow */
    /* For what the host computes; NULL: no program that calls it can run. */
    TILESMITH_POINTER(tilesmith_host_fn, host);
    TILESMITH_POINTER(void *, host_data); /* passed to host */
    struct tilesmith_failure failure;     /* written by the program */
};

/* A program's entry point.  Returns `failure.code`. */
typedef int32_t (*tilesmith_entry)(struct tilesmith_context *context);

/* A program whose sizes only a run knows has a second function, `tilesmith_sizes(extents, values)`.  It computes, from
 * a number for each symbol, values[0]: bytes of the arena, values[1]: bytes of scratch for each thread, then the extents
 * of the outputs, one after the other, those of inputs that are formulas of symbols, then numbers of its own.  Returns
 * TILESMITH_OK, _SIZES or _OVERFLOW. */
typedef int32_t (*tilesmith_sizes_fn)(const int64_t *extents, int64_t *values);

/* Kernels, which an entry point calls: buffers, then scalars as int64_t, then the kernel's part of the arena.
 *     int32_t kernel(void *buffer..., int64_t scalar..., void *workspace, struct tilesmith_context *context) */

/* A `parallel_for` for hosts without threads. */
static inline void tilesmith_serial_for(struct tilesmith_context *context, tilesmith_body body, void *env,
                                        int64_t extent) {
    (void)context;
    if (extent > 0)
        body(env, 0, extent, 0);
}

#ifdef __cplusplus
}
#endif
#endif
