/* What the thread pool promises, for a C compiler's sanitizers too: see test_pool.py.  Arguments: what to test, and
 * numbers.  Exits by abort() when a promise is broken. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "pool.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_THREADS 8
#define EXTENT 64

static void check(int holds, const char *promise) {
    if (!holds) {
        fprintf(stderr, "broken: %s\n", promise);
        abort();
    }
}

static void sleep_us(long us) { nanosleep(&(struct timespec){0, us * 1000}, NULL); }

static struct tilesmith_context context_of(int64_t threads) {
    struct tilesmith_context context;
    memset(&context, 0, sizeof context);
    context.threads = threads;
    return context;
}

struct loop {
    struct tilesmith_context *context;
    int nested;
    int64_t out[EXTENT];
    int chunks[MOST_THREADS]; /* by thread number */
};

static void add_up(void *env, int64_t begin, int64_t end, int64_t thread) {
    check(thread == 0, "a nested loop runs on its thread alone");
    for (; begin < end; begin++)
        *(int64_t *)env += begin;
}

static void fill(void *env, int64_t begin, int64_t end, int64_t thread) {
    struct loop *loop = env;
    check(thread >= 0 && thread < loop->context->threads, "thread numbers are below the number of threads");
    loop->chunks[thread]++; /* a data race if two threads had one number */
    for (int64_t i = begin; i < end; i++)
        loop->out[i] += i + 1;
    if (loop->nested) {
        int64_t sum = 0;
        tilesmith_pool_for(loop->context, add_up, &sum, 10);
        check(sum == 45, "a nested loop runs each iteration once");
    }
}

/* Callers with different numbers of threads, loops of different lengths, some nested, with and without brackets. */
static void *call_often(void *number) {
    long id = (long)number % 1000, rounds = (long)number / 1000;
    struct tilesmith_context context = context_of(1 + id % 5);
    for (long r = 0; r < rounds; r++) {
        if (r % 3)
            tilesmith_pool_enter();
        for (long k = 0; k < 1 + r % 7; k++) {
            struct loop loop = {.context = &context, .nested = r % 4 == 0};
            int64_t extent = 1 + (r * 7 + k * 13) % EXTENT;
            tilesmith_pool_for(&context, fill, &loop, extent);
            for (int64_t i = 0; i < EXTENT; i++)
                check(loop.out[i] == (i < extent ? i + 1 : 0), "each iteration runs once");
        }
        if (r % 3)
            tilesmith_pool_leave();
        if (r % 50 == 0)
            sleep_us(200); /* long enough for workers to sleep */
    }
    return NULL;
}

static _Atomic(int) running, most_running, meeting;
static int expected;
static pthread_barrier_t start, end;

/* Wait until as many chunks as are expected run at the same time. */
static void meet(void *env, int64_t begin, int64_t stop, int64_t thread) {
    (void)env, (void)begin, (void)stop, (void)thread;
    atomic_fetch_add(&meeting, 1);
    for (int i = 0; atomic_load(&meeting) < expected; i++) {
        check(i < 100000, "every caller has its share of the workers");
        sleep_us(100);
    }
}

static void count(void *env, int64_t begin, int64_t stop, int64_t thread) {
    (void)env, (void)begin, (void)stop, (void)thread;
    int now = atomic_fetch_add(&running, 1) + 1, most = atomic_load(&most_running);
    while (most < now && !atomic_compare_exchange_weak(&most_running, &most, now))
        ;
    sleep_us(100);
    atomic_fetch_sub(&running, 1);
}

static void *call_meet(void *threads) {
    struct tilesmith_context context = context_of((long)threads);
    tilesmith_pool_enter();
    pthread_barrier_wait(&start);
    tilesmith_pool_for(&context, meet, NULL, context.threads);
    tilesmith_pool_leave();
    return NULL;
}

static void *call_count(void *threads) {
    struct tilesmith_context context = context_of((long)threads);
    tilesmith_pool_enter();
    pthread_barrier_wait(&start);
    for (int i = 0; i < 50; i++)
        tilesmith_pool_for(&context, count, NULL, context.threads);
    pthread_barrier_wait(&end);
    tilesmith_pool_leave();
    return NULL;
}

static _Thread_local long caller; /* of this thread, or of the only caller that it has helped */
static int rounds;

static void belong(void *env, int64_t begin, int64_t stop, int64_t thread) {
    (void)begin, (void)stop, (void)thread;
    long now = (long)(intptr_t)env;
    check(caller == 0 || caller == now, "a worker of an own pool helps one caller");
    caller = now;
    meet(NULL, 0, 0, 0);
}

/* Loops whose chunks all run at the same time, by workers that help nobody else. */
static void *call_own(void *number) {
    struct tilesmith_context context = context_of((long)number / 1000);
    long id = 1 + (long)number % 1000;
    check(tilesmith_pool_own() && tilesmith_pool_own(), "there is memory");
    for (int i = 1; i <= rounds; i++) {
        pthread_barrier_wait(&start);
        atomic_store(&meeting, 0);
        pthread_barrier_wait(&end);
        tilesmith_pool_for(&context, belong, (void *)(intptr_t)id, context.threads);
    }
    return NULL;
}

static int threads_now(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    check(tasks != NULL, "the system lists threads");
    while (readdir(tasks))
        count++;
    closedir(tasks);
    return count - 2; /* without . and .. */
}

static void run_callers(int callers, void *(*call)(void *), long argument, int numbered) {
    pthread_t threads[128];
    check(callers <= 128, "the test has room");
    for (long i = 0; i < callers; i++)
        check(!pthread_create(&threads[i], NULL, call, (void *)(numbered ? argument * 1000 + i : argument)), "a thread");
    for (int i = 0; i < callers; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv) {
    check(argc == 5, "usage: stress|share|limit|own callers cores rounds|threads");
    int callers = atoi(argv[2]), cores = atoi(argv[3]), last = atoi(argv[4]);
    tilesmith_pool_set_cores(cores);
    pthread_barrier_init(&start, NULL, (unsigned)callers);
    pthread_barrier_init(&end, NULL, (unsigned)callers);
    if (!strcmp(argv[1], "stress")) {
        run_callers(callers, call_often, last, 1);
    } else if (!strcmp(argv[1], "share")) { /* callers * threads = cores: each has threads - 1 workers */
        expected = callers * last;
        run_callers(callers, call_meet, last, 0);
    } else if (!strcmp(argv[1], "limit")) {
        run_callers(callers, call_count, last, 0);
        printf("%d\n", atomic_load(&most_running));
    } else if (!strcmp(argv[1], "own")) {
        expected = callers * last;
        rounds = 20;
        run_callers(callers, call_own, last, 1);
        for (int i = 0; threads_now() > 1; i++) {
            check(i < 10000, "workers of an own pool end with its thread");
            sleep_us(1000);
        }
    }
    return 0;
}
