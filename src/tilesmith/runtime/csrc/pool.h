/* The process's thread pools: the `parallel_for` of executables that run in Python. */
#ifndef TILESMITH_POOL_H
#define TILESMITH_POOL_H

#include "tilesmith.h"

/* Run a parallel loop on up to `context->threads` threads, the caller included (see tilesmith_parallel_for_fn).
 *
 * Iterations are divided into one contiguous chunk for each thread.  A call from inside a parallel loop runs all of
 * them on the calling thread. */
void tilesmith_pool_for(struct tilesmith_context *context, tilesmith_body body, void *env, int64_t extent);

/* Bracket a run of a program.  The calling thread counts as busy in between, so that workers which help others leave
 * it a core.  Calls may be nested.  A parallel loop outside such a bracket is one of its own. */
void tilesmith_pool_enter(void);
void tilesmith_pool_leave(void);

/* The cores that the callers of the shared pool may use; a number below one said before changes nothing.  Callers and workers that are
 * busy number at most as many together, or as many as the most threads that any loop asked for, if that is more. */
void tilesmith_pool_set_cores(int cores);

/* Give the calling thread a pool of its own until it ends: the workers that help it help no other caller.  It may have
 * as many as its loops ask for.  Not to be called between enter and leave.  Returns 0 if memory ran out. */
int tilesmith_pool_own(void);

#endif
