/* Blocks one after the other, each with a thread of the system for each of its threads.  Where no
   thread waits for others, they run one after the other, too. */

#include <pthread.h>
#include <stdint.h>

typedef void kernel(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                    uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                    uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

static _Thread_local uint32_t block[3], thread[3];
static pthread_barrier_t waiting;
static kernel *running;
static const uint64_t *args;
static int is_alone; /* no thread waits */
static const uint32_t *sizes; /* blocks, then threads of a block, along x, y and z */

uint32_t read_ctaid(uint32_t index) { return block[index]; }
uint32_t read_tid(uint32_t index) { return thread[index]; }
void wait_for_all(void) { pthread_barrier_wait(&waiting); }

static void *run_thread(void *number) {
    const uint32_t *all = sizes + 3;
    uint64_t n = (uintptr_t)number;
    thread[0] = n % all[0], thread[1] = n / all[0] % all[1], thread[2] = n / all[0] / all[1];
    const uint64_t *a = args;
    for (block[2] = 0; block[2] < sizes[2]; block[2]++)
        for (block[1] = 0; block[1] < sizes[1]; block[1]++)
            for (block[0] = 0; block[0] < sizes[0]; block[0]++) {
                running(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11],
                        a[12], a[13], a[14], a[15], a[16], a[17], a[18], a[19], a[20], a[21], a[22],
                        a[23]);
                if (!is_alone)
                    wait_for_all();
            }
    return 0;
}

/* args: 24 of them, of which a kernel takes as many as it has. */
void run(kernel *k, const uint64_t *given, const uint32_t *counts, int alone) {
    pthread_t made[1024];
    running = k, args = given, sizes = counts, is_alone = alone;
    uint32_t n = counts[3] * counts[4] * counts[5];
    for (uintptr_t i = 0; i < n && alone; i++)
        run_thread((void *)i);
    if (alone)
        return;
    pthread_barrier_init(&waiting, 0, n);
    for (uintptr_t i = 0; i < n; i++)
        pthread_create(&made[i], 0, run_thread, (void *)i);
    for (uint32_t i = 0; i < n; i++)
        pthread_join(made[i], 0);
    pthread_barrier_destroy(&waiting);
}
