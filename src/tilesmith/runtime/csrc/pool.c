/* The thread pool.
 *
 * One job runs at a time.  Its state is one atomic word, `generation << 32 | chunks claimed`: a thread claims the next
 * chunk by a compare-and-swap on it, which fails if the job has changed, so what it read of the job is only trusted
 * after a successful claim.  The word is closed (no chunk left) before another job is written.  The caller claims chunks too: a worker that the operating system has not scheduled costs nothing but its help.
 *
 * Idle workers spin for a few microseconds, since the next loop of a model follows soon, then sleep.
 *
 * A scheduler may wake a worker on its caller's own processor, where the two take turns instead of working at once, and
 * need tens of milliseconds to notice.  So the caller looks where its workers ran last, and tells those that share a
 * processor, with it or with each other, which one is theirs (on Linux; elsewhere the scheduler is trusted).
 */
#ifdef __linux__
#define _GNU_SOURCE
#include <sched.h>
#endif

#include "tilesmith.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#define MAX_THREADS 256
#define CLOSED 0xFFFFFFFFu /* as a number of claimed chunks: nothing to claim */
#define SPINS 4000 /* about 20 to 50 microseconds of pauses */

static struct {
    /* the job */
    _Atomic(uint64_t) state;
    _Atomic(uint32_t) chunks;
    _Atomic(uint32_t) pending; /* chunks not finished */
    _Atomic(tilesmith_body) body;
    _Atomic(void *) env;
    _Atomic(int64_t) extent;

    atomic_flag busy; /* somebody's job runs */
    int workers;      /* threads started; guarded by busy */
    pthread_t ids[MAX_THREADS];        /* of the workers; guarded by busy */
    _Atomic(int) places[MAX_THREADS];  /* the processor that each ran on last, or -1 */

    pthread_mutex_t mutex;
    pthread_cond_t wake;      /* workers sleep here */
    pthread_cond_t done;      /* the caller sleeps here */
    _Atomic(int) sleepers;    /* workers asleep */
    _Atomic(int) caller_waits;
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER,
          .wake = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER,
          .busy = ATOMIC_FLAG_INIT};

static _Thread_local int inside; /* this thread runs a chunk */

static void pause_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* Claim and run chunks of the present job until none is left. */
static void work(int64_t thread) {
    for (;;) {
        uint64_t state = atomic_load_explicit(&pool.state, memory_order_acquire);
        uint32_t next = (uint32_t)state;
        uint32_t chunks = atomic_load_explicit(&pool.chunks, memory_order_acquire);
        tilesmith_body body = atomic_load_explicit(&pool.body, memory_order_acquire);
        void *env = atomic_load_explicit(&pool.env, memory_order_acquire);
        int64_t extent = atomic_load_explicit(&pool.extent, memory_order_acquire);
        /* a job for fewer threads than the pool has is not for all: scratch has room for `chunks` threads */
        if (next >= chunks || thread >= (int64_t)chunks)
            return;
        if (!atomic_compare_exchange_weak_explicit(&pool.state, &state, state + 1, memory_order_acq_rel,
                                                   memory_order_relaxed))
            continue;
        int64_t size = extent / chunks, larger = extent % chunks; /* the first `larger` chunks have one more */
        int64_t begin = next * size + (next < larger ? next : larger);
        inside = 1;
        body(env, begin, begin + size + (next < larger), thread);
        inside = 0;
        if (atomic_fetch_sub(&pool.pending, 1) == 1 && atomic_load(&pool.caller_waits)) {
            pthread_mutex_lock(&pool.mutex);
            pthread_cond_signal(&pool.done);
            pthread_mutex_unlock(&pool.mutex);
        }
    }
}

#ifdef __linux__
static int processor(void) { return sched_getcpu(); }

/* Give each of the first `workers` workers a processor of its own, beginning after the caller's, among those that the
 * caller may use; with fewer processors than threads the scheduler shares them out as it likes. */
static void spread(int workers, int caller) {
    cpu_set_t allowed, one;
    if (caller < 0 || sched_getaffinity(0, sizeof allowed, &allowed) || CPU_COUNT(&allowed) <= workers)
        return;
    for (int w = 1, cpu = caller; w <= workers; w++) {
        do
            cpu = (cpu + 1) % CPU_SETSIZE;
        while (!CPU_ISSET(cpu, &allowed) || cpu == caller);
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (!pthread_setaffinity_np(pool.ids[w], sizeof one, &one))
            atomic_store_explicit(&pool.places[w], cpu, memory_order_relaxed);
    }
}

/* Spread the workers that a job needs if any two of its threads were last seen on one processor. */
static void place_workers(int workers) {
    int caller = processor();
    cpu_set_t taken;
    CPU_ZERO(&taken);
    if (caller < 0 || caller >= CPU_SETSIZE)
        return;
    CPU_SET(caller, &taken);
    for (int w = 1; w <= workers; w++) {
        int cpu = atomic_load_explicit(&pool.places[w], memory_order_relaxed);
        if (cpu < 0 || cpu >= CPU_SETSIZE || CPU_ISSET(cpu, &taken)) {
            spread(workers, caller);
            return;
        }
        CPU_SET(cpu, &taken);
    }
}
#else
static int processor(void) { return -1; }
static void place_workers(int workers) { (void)workers; }
#endif

static uint32_t generation(void) { return (uint32_t)(atomic_load(&pool.state) >> 32); }

static void *worker(void *number) {
    int64_t thread = (int64_t)(intptr_t)number;
    uint32_t seen = 0; /* generations start at 1: a new worker looks at the present job first */
    for (;;) {
        for (int i = 0; i < SPINS && generation() == seen; i++)
            pause_cpu();
        if (generation() == seen) {
            pthread_mutex_lock(&pool.mutex);
            atomic_fetch_add(&pool.sleepers, 1);
            while (generation() == seen)
                pthread_cond_wait(&pool.wake, &pool.mutex);
            atomic_fetch_sub(&pool.sleepers, 1);
            pthread_mutex_unlock(&pool.mutex);
        }
        seen = generation();
        atomic_store_explicit(&pool.places[thread], processor(), memory_order_relaxed);
        work(thread);
    }
    return NULL;
}

/* After fork only the calling thread exists in the child: start afresh. */
static void forget_workers(void) {
    pool.workers = 0;
    pthread_mutex_init(&pool.mutex, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pthread_cond_init(&pool.done, NULL);
    atomic_store(&pool.sleepers, 0);
    atomic_store(&pool.caller_waits, 0);
    atomic_store(&pool.chunks, 0);
    atomic_store(&pool.pending, 0);
    atomic_flag_clear(&pool.busy);
    inside = 0;
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, forget_workers); }

/* Have `wanted` workers, as far as the system allows. */
static void start_workers(int wanted) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    while (pool.workers < wanted) {
        pthread_attr_t attributes;
        int number = pool.workers + 1;
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&attributes, 8u << 20); /* kernels keep small tiles on the stack */
        atomic_store(&pool.places[number], -1);
        int failed = pthread_create(&pool.ids[number], &attributes, worker, (void *)(intptr_t)number);
        pthread_attr_destroy(&attributes);
        if (failed)
            return;
        pool.workers++;
    }
}

static void wait_for_workers(void) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&pool.pending, memory_order_acquire) == 0)
            return;
        pause_cpu();
    }
    pthread_mutex_lock(&pool.mutex);
    atomic_store(&pool.caller_waits, 1);
    while (atomic_load(&pool.pending) != 0)
        pthread_cond_wait(&pool.done, &pool.mutex);
    atomic_store(&pool.caller_waits, 0);
    pthread_mutex_unlock(&pool.mutex);
}

void tilesmith_parallel_for(struct tilesmith_rt *rt, tilesmith_body body, void *env, int64_t extent) {
    int64_t threads = rt->threads < MAX_THREADS ? rt->threads : MAX_THREADS;
    int64_t chunks = extent < threads ? extent : threads;
    if (extent <= 0)
        return;
    if (chunks <= 1 || inside || atomic_flag_test_and_set_explicit(&pool.busy, memory_order_acquire)) {
        int was_inside = inside;
        inside = 1;
        body(env, 0, extent, 0);
        inside = was_inside;
        return;
    }
    start_workers((int)threads - 1);
    place_workers(chunks - 1 < pool.workers ? (int)chunks - 1 : pool.workers);
    uint64_t old = atomic_fetch_or(&pool.state, CLOSED);
    atomic_store_explicit(&pool.body, body, memory_order_release);
    atomic_store_explicit(&pool.env, env, memory_order_release);
    atomic_store_explicit(&pool.extent, extent, memory_order_release);
    atomic_store_explicit(&pool.pending, (uint32_t)chunks, memory_order_release);
    atomic_store_explicit(&pool.chunks, (uint32_t)chunks, memory_order_release);
    atomic_store(&pool.state, ((old >> 32) + 1) << 32);
    if (atomic_load(&pool.sleepers)) {
        pthread_mutex_lock(&pool.mutex);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.mutex);
    }
    work(0);
    wait_for_workers();
    atomic_flag_clear_explicit(&pool.busy, memory_order_release);
}
