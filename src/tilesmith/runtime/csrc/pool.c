/* The thread pools: one that threads share, and one for each thread that asked for its own.
 *
 * Jobs.  A job is one parallel loop, divided into chunks.  Each caller owns a slot for its jobs while its program runs.
 * The state of a slot is one atomic word, `jobs published << LEFT_BITS | chunks left`.  A thread claims a chunk by
 * decrementing the word with a compare-and-swap, which fails if the job has changed: what the thread read of the job
 * counts only after a successful claim.  No job is published before all chunks of the one before it are claimed.
 * The caller claims chunks too, so a worker that does not come costs nothing but its help.  The first one is its own
 * from the beginning: else workers might take all, and the caller, which counts as busy, would only wait.
 *
 * Sharing.  Workers take one chunk at a time, from the job that has been helped least.  A worker is awake while it
 * runs or spins, and asleep otherwise.  Callers and awake workers number at most `limit`: a worker that finds more
 * goes to sleep, and none is woken that would be one too many.
 *
 * Waiting.  A worker without work spins for some microseconds, since the next loop of a model follows soon, then
 * sleeps.  So does a caller whose last chunks run elsewhere.
 *
 * Own pools.  A thread may have a pool of its own: its workers help no other caller, even while they spin.  Such a pool
 * is closed when its thread ends.  Its workers end instead of going to sleep, and the last of them frees it.
 *
 * Processors.  Threads run where the operating system puts them, and workers have the affinity of the caller that
 * woke them.  But some schedulers wake a thread on the processor of its waker, where the two take turns instead of
 * running at once.  Once that was seen, a worker is woken with an affinity that leaves out its waker's processor, and
 * takes its whole affinity back at once.  (On Linux; elsewhere the scheduler is trusted.)
 */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif

#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#define SPINS 4000 /* pauses before a thread sleeps: about 20 to 50 microseconds */
#define GLANCE 64  /* pauses between two looks at how many threads are busy */
#define SLOTS 64   /* callers with parallel loops at one time; others run theirs alone */
#define LEFT_BITS 20
#define MOST_CHUNKS ((1u << LEFT_BITS) - 1)
#define CALLER ((uint64_t)1 << 32) /* one caller in `busy` */
#define STACK_BYTES ((size_t)8 << 20) /* kernels keep small tiles on the stack */

struct job {
    _Alignas(128) _Atomic(uint64_t) state;
    _Atomic(tilesmith_body) body;
    _Atomic(void *) env;
    _Atomic(int64_t) extent;
    _Atomic(uint32_t) chunks;
    _Atomic(uint32_t) pending; /* chunks not finished */
    _Atomic(int) owner_sleeps;
    pthread_cond_t done; /* the owner sleeps here */
};

struct worker {
    pthread_t id;
    struct pool *pool;
    struct worker *next; /* among those asleep */
    int is_woken;        /* guarded by the mutex, as are the fields below while the worker sleeps */
    pthread_cond_t wake;
#ifdef __linux__
    cpu_set_t affinity; /* its own */
    int narrowed;       /* the system knows a smaller affinity */
    int waker;          /* the processor of the thread that woke it, or -1 */
#endif
};

struct pool {
    _Atomic(uint64_t) taken;             /* the slots that have owners, as bits */
    _Alignas(64) _Atomic(uint64_t) busy; /* callers << 32 | workers awake */
    _Atomic(int) limit;                  /* of callers and awake workers together */
    _Atomic(int) shares_processors;      /* a worker woke on the processor of its waker */

    _Alignas(64) pthread_mutex_t mutex;
    struct worker *sleepers; /* guarded by the mutex, as is all that follows */
    int is_full;             /* the system had no room for another */
    int is_closed;           /* its thread has ended */
    int members;             /* its thread, if it is a thread's own, and the workers */
    void *memory;            /* what holds a thread's own */
    struct job jobs[SLOTS];
};

static struct pool shared;
static pthread_key_t own_pool; /* of a thread; its destructor closes the pool */

static _Thread_local struct {
    int inside; /* it runs a chunk, or is a worker */
    int depth;  /* of tilesmith_pool_enter */
    struct job *job; /* the slot that it owns, or NULL */
    struct pool *pool; /* whose workers help it */
} self = {.pool = &shared};

static void pause_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static int64_t callers(uint64_t busy) { return (int64_t)(busy >> 32); }
static int64_t awake(uint64_t busy) { return (int64_t)(busy & 0xFFFFFFFFu); }

/* Whether waking `more` workers would exceed the limit. */
static int is_crowded(struct pool *pool, int more) {
    uint64_t busy = atomic_load(&pool->busy);
    return callers(busy) + awake(busy) + more > atomic_load_explicit(&pool->limit, memory_order_relaxed);
}

/* The job with the fewest claimed chunks among those that have chunks left; NULL if there is none. */
static struct job *neediest(struct pool *pool) {
    struct job *best = NULL;
    int64_t best_claimed = 0, best_left = 0;
    for (uint64_t rest = atomic_load(&pool->taken); rest; rest &= rest - 1) {
        struct job *job = &pool->jobs[__builtin_ctzll(rest)];
        int64_t left = (int64_t)(atomic_load(&job->state) & MOST_CHUNKS);
        int64_t claimed = (int64_t)atomic_load_explicit(&job->chunks, memory_order_relaxed) - left;
        if (left && (!best || claimed < best_claimed || (claimed == best_claimed && left > best_left))) {
            best = job;
            best_claimed = claimed;
            best_left = left;
        }
    }
    return best;
}

/* Run a chunk that was claimed. */
static void run_claimed(struct pool *pool, struct job *job, tilesmith_body body, void *env, int64_t extent,
                        int64_t chunks, int64_t chunk) {
    int64_t size = extent / chunks, larger = extent % chunks; /* the first `larger` chunks have one more */
    int64_t begin = chunk * size + (chunk < larger ? chunk : larger);
    body(env, begin, begin + size + (chunk < larger), chunk);
    if (atomic_fetch_sub(&job->pending, 1) == 1 && atomic_load(&job->owner_sleeps)) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_signal(&job->done);
        pthread_mutex_unlock(&pool->mutex);
    }
}

/* Claim a chunk of `job` and run it.  Returns 0 if none was left. */
static int run_chunk(struct pool *pool, struct job *job) {
    uint64_t state = atomic_load_explicit(&job->state, memory_order_acquire);
    int64_t left, chunks, extent;
    tilesmith_body body;
    void *env;
    do {
        left = (int64_t)(state & MOST_CHUNKS);
        if (!left)
            return 0;
        chunks = atomic_load_explicit(&job->chunks, memory_order_acquire);
        body = atomic_load_explicit(&job->body, memory_order_acquire);
        env = atomic_load_explicit(&job->env, memory_order_acquire);
        extent = atomic_load_explicit(&job->extent, memory_order_acquire);
    } while (!atomic_compare_exchange_weak_explicit(&job->state, &state, state - 1, memory_order_acq_rel,
                                                    memory_order_acquire));
    run_claimed(pool, job, body, env, extent, chunks, chunks - left);
    return 1;
}

#ifdef __linux__
/* Where a thread runs that wakes workers. */
struct place {
    cpu_set_t affinity;
    int processor; /* -1: not known, and workers are left alone */
};

static struct place place_of_caller(void) {
    struct place here = {.processor = -1};
    int fails = sched_getaffinity(0, sizeof here.affinity, &here.affinity);
    here.processor = fails ? -1 : sched_getcpu();
    return here;
}

/* The affinity without one processor.  Returns 0 if nothing is left. */
static int without(const cpu_set_t *affinity, int processor, cpu_set_t *rest) {
    *rest = *affinity;
    if (processor >= 0 && processor < CPU_SETSIZE)
        CPU_CLR(processor, rest);
    return CPU_COUNT(rest) > 0;
}

/* Before a worker is woken: hand it its waker's affinity, and keep it off the waker's processor if that is needed. */
static void send(struct worker *worker, const struct place *here) {
    cpu_set_t rest;
    worker->waker = here->processor;
    if (here->processor < 0)
        return;
    if (!CPU_EQUAL(&worker->affinity, &here->affinity)) {
        worker->affinity = here->affinity;
        worker->narrowed = 1; /* or otherwise out of date */
    }
    if (atomic_load_explicit(&worker->pool->shares_processors, memory_order_relaxed) &&
        without(&here->affinity, here->processor, &rest) && !pthread_setaffinity_np(worker->id, sizeof rest, &rest))
        worker->narrowed = 1;
}

/* Called by a worker that was woken: it takes its whole affinity, and leaves its waker's processor if it woke there. */
static void arrive(struct worker *worker) {
    cpu_set_t rest;
    if (worker->waker >= 0 && sched_getcpu() == worker->waker && without(&worker->affinity, worker->waker, &rest)) {
        atomic_store_explicit(&worker->pool->shares_processors, 1, memory_order_relaxed);
        worker->narrowed = !sched_setaffinity(0, sizeof rest, &rest) || worker->narrowed;
    }
    if (worker->narrowed)
        sched_setaffinity(0, sizeof worker->affinity, &worker->affinity);
    worker->narrowed = 0;
}

static void settle_in(struct worker *worker, const struct place *here) {
    worker->affinity = here->affinity; /* a thread begins with that of its creator */
    worker->waker = here->processor;
}
#else
struct place {
    int processor;
};
static struct place place_of_caller(void) { return (struct place){-1}; }
static void send(struct worker *worker, const struct place *here) { (void)worker, (void)here; }
static void arrive(struct worker *worker) { (void)worker; }
static void settle_in(struct worker *worker, const struct place *here) { (void)worker, (void)here; }
#endif

static void init_pool(struct pool *pool) {
    pthread_mutex_init(&pool->mutex, NULL);
    atomic_store(&pool->limit, 1);
    for (int i = 0; i < SLOTS; i++)
        pthread_cond_init(&pool->jobs[i].done, NULL);
}

/* Called by a member of a pool that was closed.  The last one frees it. */
static void quit_pool(struct pool *pool) {
    pthread_mutex_lock(&pool->mutex);
    int is_last = --pool->members == 0;
    pthread_mutex_unlock(&pool->mutex);
    if (!is_last)
        return;
    for (int i = 0; i < SLOTS; i++)
        pthread_cond_destroy(&pool->jobs[i].done);
    pthread_mutex_destroy(&pool->mutex);
    free(pool->memory);
}

/* Sleep until woken, unless there is work that the worker may do.  Returns 0 if the pool was closed. */
static int sleep_until_woken(struct worker *worker) {
    struct pool *pool = worker->pool;
    pthread_mutex_lock(&pool->mutex);
    if (pool->is_closed) {
        pthread_mutex_unlock(&pool->mutex);
        return 0;
    }
    worker->is_woken = 0;
    worker->next = pool->sleepers;
    pool->sleepers = worker;
    atomic_fetch_sub(&pool->busy, 1);
    if (neediest(pool) && !is_crowded(pool, 1)) { /* published when this worker counted as awake */
        pool->sleepers = worker->next;
        atomic_fetch_add(&pool->busy, 1);
        pthread_mutex_unlock(&pool->mutex);
        return 1;
    }
    while (!worker->is_woken)
        pthread_cond_wait(&worker->wake, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
    arrive(worker);
    return 1;
}

static void *work(void *argument) {
    struct worker *worker = argument;
    struct pool *pool = worker->pool;
    pthread_mutex_lock(&pool->mutex); /* its creator still writes to it */
    pthread_mutex_unlock(&pool->mutex);
    self.inside = 1;
    arrive(worker);
    for (;;) {
        struct job *job = NULL;
        for (int i = 0; i < SPINS && !job && (i % GLANCE || !is_crowded(pool, 0)); i++) {
            job = neediest(pool);
            if (!job)
                pause_cpu();
        }
        if (job)
            run_chunk(pool, job);
        else if (!sleep_until_woken(worker))
            break;
    }
    pthread_cond_destroy(&worker->wake);
    free(worker);
    quit_pool(pool);
    return NULL;
}

/* Start one worker, awake.  Returns 0 if the system has no room for it. */
static int start_worker(struct pool *pool, const struct place *here) {
    struct worker *worker = calloc(1, sizeof *worker);
    pthread_attr_t attributes;
    if (!worker)
        return 0;
    worker->pool = pool;
    pthread_cond_init(&worker->wake, NULL);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    settle_in(worker, here);
    int failed = pthread_create(&worker->id, &attributes, work, worker);
    pthread_attr_destroy(&attributes);
    if (failed) {
        pthread_cond_destroy(&worker->wake);
        free(worker);
    } else {
        pool->members++;
    }
    return !failed;
}

#ifndef _WIN32 /* which has no fork */
/* After fork only the calling thread exists in the child: start afresh. */
static void forget_workers(void) {
    struct pool *pool = &shared;
    pthread_mutex_init(&pool->mutex, NULL);
    atomic_store(&pool->taken, 0);
    atomic_store(&pool->busy, 0);
    pool->sleepers = NULL;
    pool->is_full = 0;
    for (int i = 0; i < SLOTS; i++) {
        struct job *job = &pool->jobs[i];
        atomic_store(&job->state, atomic_load(&job->state) & ~(uint64_t)MOST_CHUNKS);
        atomic_store(&job->pending, 0);
        atomic_store(&job->owner_sleeps, 0);
        pthread_cond_init(&job->done, NULL);
    }
    self.inside = self.depth = 0;
    self.job = NULL;
    self.pool = pool;
    pthread_setspecific(own_pool, NULL); /* pools of other threads may be in any state, and are left as they are */
}
#endif

/* The end of a thread with a pool of its own. */
static void close_pool(void *own) {
    struct pool *pool = own;
    pthread_mutex_lock(&pool->mutex);
    pool->is_closed = 1;
    for (struct worker *worker = pool->sleepers; worker; worker = worker->next) {
        worker->is_woken = 1;
        pthread_cond_signal(&worker->wake);
    }
    pool->sleepers = NULL;
    pthread_mutex_unlock(&pool->mutex);
    quit_pool(pool);
}

__attribute__((constructor)) static void prepare_pools(void) {
    init_pool(&shared);
    pthread_key_create(&own_pool, close_pool);
#ifndef _WIN32
    pthread_atfork(NULL, NULL, forget_workers);
#endif
}

/* Wake workers, or start more, until `wanted` are awake; fewer if the system has no room for more. */
static void wake_workers(struct pool *pool, int64_t wanted) {
    struct place here = place_of_caller();
    pthread_mutex_lock(&pool->mutex);
    while (awake(atomic_load(&pool->busy)) < wanted) {
        struct worker *worker = pool->sleepers;
        if (worker) {
            pool->sleepers = worker->next;
            send(worker, &here);
            worker->is_woken = 1;
            pthread_cond_signal(&worker->wake);
        } else if (pool->is_full || !start_worker(pool, &here)) {
            pool->is_full = 1;
            break;
        }
        atomic_fetch_add(&pool->busy, 1);
    }
    pthread_mutex_unlock(&pool->mutex);
}

/* Called when a job was published: wake as many workers as all jobs together can use, within the limit. */
static void call_workers(struct pool *pool) {
    uint64_t busy = atomic_load(&pool->busy);
    int64_t wanted = 0, room = atomic_load_explicit(&pool->limit, memory_order_relaxed) - callers(busy);
    for (uint64_t rest = atomic_load(&pool->taken); rest; rest &= rest - 1) {
        struct job *job = &pool->jobs[__builtin_ctzll(rest)];
        if (atomic_load_explicit(&job->pending, memory_order_relaxed))
            wanted += (int64_t)atomic_load_explicit(&job->chunks, memory_order_relaxed) - 1;
    }
    if (wanted > room)
        wanted = room;
    if (wanted > awake(busy))
        wake_workers(pool, wanted);
}

static void wait_for_workers(struct pool *pool, struct job *job) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&job->pending, memory_order_acquire) == 0)
            return;
        pause_cpu();
    }
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&job->owner_sleeps, 1);
    while (atomic_load(&job->pending) != 0)
        pthread_cond_wait(&job->done, &pool->mutex);
    atomic_store(&job->owner_sleeps, 0);
    pthread_mutex_unlock(&pool->mutex);
}

/* A slot for the calling thread, which gives it back when it leaves the pool; NULL if all have owners. */
static struct job *take_slot(struct pool *pool) {
    uint64_t taken = atomic_load(&pool->taken);
    while (~taken) {
        int slot = __builtin_ctzll(~taken);
        if (atomic_compare_exchange_weak(&pool->taken, &taken, taken | (uint64_t)1 << slot))
            return &pool->jobs[slot];
    }
    return NULL;
}

static void run_job(struct pool *pool, struct job *job, int64_t chunks, tilesmith_body body, void *env,
                    int64_t extent) {
    uint64_t published = atomic_load_explicit(&job->state, memory_order_relaxed) >> LEFT_BITS;
    atomic_store_explicit(&job->body, body, memory_order_release);
    atomic_store_explicit(&job->env, env, memory_order_release);
    atomic_store_explicit(&job->extent, extent, memory_order_release);
    atomic_store_explicit(&job->chunks, (uint32_t)chunks, memory_order_release);
    atomic_store_explicit(&job->pending, (uint32_t)chunks, memory_order_release);
    atomic_store(&job->state, (published + 1) << LEFT_BITS | (uint64_t)(chunks - 1));
    call_workers(pool);
    self.inside = 1;
    run_claimed(pool, job, body, env, extent, chunks, 0);
    while (run_chunk(pool, job))
        ;
    self.inside = 0;
    wait_for_workers(pool, job);
}

void tilesmith_pool_enter(void) {
    if (self.depth++ == 0 && !self.inside)
        atomic_fetch_add(&self.pool->busy, CALLER);
}

void tilesmith_pool_leave(void) {
    if (self.depth == 0 || --self.depth > 0 || self.inside) /* 0: this is the child of a fork */
        return;
    struct pool *pool = self.pool;
    if (self.job) {
        atomic_fetch_and(&pool->taken, ~((uint64_t)1 << (self.job - pool->jobs)));
        self.job = NULL;
    }
    atomic_fetch_sub(&pool->busy, CALLER);
}

static void raise_limit(struct pool *pool, int threads) {
    int limit = atomic_load(&pool->limit);
    while (limit < threads && !atomic_compare_exchange_weak(&pool->limit, &limit, threads))
        ;
}

void tilesmith_pool_set_cores(int cores) { raise_limit(&shared, cores); }

int tilesmith_pool_own(void) {
    if (self.pool != &shared)
        return 1;
    void *memory = calloc(1, sizeof(struct pool) + _Alignof(struct pool)); /* Windows has no aligned_alloc */
    if (!memory)
        return 0;
    struct pool *pool =
        (struct pool *)(((uintptr_t)memory + _Alignof(struct pool) - 1) / _Alignof(struct pool) * _Alignof(struct pool));
    init_pool(pool);
    pool->memory = memory;
    pool->members = 1;
    if (pthread_setspecific(own_pool, pool)) {
        quit_pool(pool);
        return 0;
    }
    self.pool = pool;
    return 1;
}

void tilesmith_pool_for(struct tilesmith_context *context, tilesmith_body body, void *env, int64_t extent) {
    int64_t threads = context->threads < MOST_CHUNKS ? context->threads : MOST_CHUNKS;
    int64_t chunks = extent < threads ? extent : threads;
    struct pool *pool = self.pool;
    if (extent <= 0)
        return;
    if (chunks > 1 && !self.inside) {
        tilesmith_pool_enter();
        if (!self.job)
            self.job = take_slot(pool);
        if (self.job) {
            if (threads > atomic_load_explicit(&pool->limit, memory_order_relaxed))
                raise_limit(pool, (int)threads);
            run_job(pool, self.job, chunks, body, env, extent);
            tilesmith_pool_leave();
            return;
        }
        tilesmith_pool_leave();
    }
    int was_inside = self.inside;
    self.inside = 1;
    body(env, 0, extent, 0);
    self.inside = was_inside;
}
