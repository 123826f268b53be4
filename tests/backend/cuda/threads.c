/* Blocks one after the other, each with a thread of the system for each of its threads.  Where no
   thread waits for others, they run one after the other, too. */

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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

/* Asynchronous copies of this thread: they happen as late as they may. */
#define COPIES 4096
static _Thread_local struct { char *to; const char *from; uint32_t size, taken, group; } copies[COPIES];
static _Thread_local uint32_t first_copy, last_copy, group;

void copy_later(uint32_t size, char *to, const char *from, uint32_t taken) {
    uint32_t at = last_copy++ % COPIES;
    if ((uintptr_t)to % size || (taken && (uintptr_t)from % size) || last_copy - first_copy > COPIES)
        __builtin_trap();
    copies[at].to = to, copies[at].from = from, copies[at].size = size;
    copies[at].taken = taken, copies[at].group = group;
}

void copies_end(void) { group++; }

void wait_for_copies(uint32_t pending) {
    for (; first_copy != last_copy; first_copy++) {
        uint32_t at = first_copy % COPIES;
        if (copies[at].group + pending >= group)
            return;
        memset(copies[at].to, 0, copies[at].size);
        if (copies[at].taken)
            memcpy(copies[at].to, copies[at].from, copies[at].taken);
    }
}

static uint32_t number(void) { return thread[0] + sizes[3] * (thread[1] + sizes[4] * thread[2]); }

uint32_t read_lane(void) { return number() % 32; }

/* Threads that exchange values: groups of 2, 4, 8, 16 and 32, from a multiple of that on. */
static pthread_barrier_t together[6][512];
static uint32_t given_by[1024];

/* members: a bit for each thread of the warp that comes here, a whole group. */
uint32_t exchange(uint32_t members, uint32_t value, uint32_t distance, uint32_t most) {
    uint32_t n = number(), lanes = __builtin_popcount(members), size = __builtin_ctz(lanes);
    uint32_t first = n % 32 / lanes * lanes;
    if (most != 31 || members != (lanes == 32 ? ~0u : (1u << lanes) - 1 << first))
        abort();
    pthread_barrier_t *group = &together[size][n / lanes];
    given_by[n] = value;
    pthread_barrier_wait(group);
    uint32_t found = given_by[n ^ distance];
    pthread_barrier_wait(group);
    return found;
}

#define WARPS 32
static pthread_barrier_t meeting[WARPS];
static uint32_t parts[WARPS][32][10]; /* what the threads of a warp multiply */

static float half(uint16_t x) {
    int exponent = x >> 10 & 31, digits = x & 1023;
    float size = exponent ? ldexpf(1024 + digits, exponent - 25) : ldexpf(digits, -24);
    return x >> 15 ? -size : size;
}

/* Element k of a row of 32 bytes, of which thread t of four has words t and t + 4. */
static double element(int kind, int is_left, const uint32_t *words, int at) {
    if (kind == 0)
        return half(words[0] >> 16 * at);
    if (kind == 1) {
        uint32_t bits = words[0] >> 16 * at << 16;
        float found;
        memcpy(&found, &bits, 4);
        return found;
    }
    uint8_t byte = words[0] >> 8 * at;
    int is_signed = kind == 2 || (is_left ? kind == 4 : kind == 5);
    return is_signed ? (int8_t)byte : byte;
}

/* given: four words of a, two of b, four elements of c; all threads of a warp come here. */
void multiply(const uint32_t *given, uint32_t *made, uint32_t kind) {
    uint32_t warp = thread[1] + thread[2] * sizes[4], lane = thread[0];
    memcpy(parts[warp][lane], given, sizeof parts[warp][lane]);
    pthread_barrier_wait(&meeting[warp]);
    int each = kind < 2 ? 2 : 4; /* elements of a word */
    for (int n = 0; n < 4; n++) {
        int row = lane / 4 + n / 2 * 8, column = lane % 4 * 2 + n % 2;
        double sum = 0;
        for (int k = 0; k < 8 * each; k++) {
            int word = k / each, t = word % 4;
            const uint32_t *a = &parts[warp][row % 8 * 4 + t][word / 4 * 2 + row / 8];
            const uint32_t *b = &parts[warp][column * 4 + t][4 + word / 4];
            sum += element(kind, 1, a, k % each) * element(kind, 0, b, k % each);
        }
        float old, new;
        memcpy(&old, &given[6 + n], 4);
        new = old + sum;
        if (kind < 2)
            memcpy(&made[n], &new, 4);
        else
            made[n] = given[6 + n] + (uint32_t)(int64_t)sum;
    }
    pthread_barrier_wait(&meeting[warp]);
}

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
    for (int i = 0; i < WARPS; i++)
        pthread_barrier_init(&meeting[i], 0, 32);
    for (int size = 1; size < 6; size++)
        for (int i = 0; i < 1024 >> size; i++)
            pthread_barrier_init(&together[size][i], 0, 1 << size);
    for (uintptr_t i = 0; i < n; i++)
        pthread_create(&made[i], 0, run_thread, (void *)i);
    for (uint32_t i = 0; i < n; i++)
        pthread_join(made[i], 0);
    pthread_barrier_destroy(&waiting);
    for (int i = 0; i < WARPS; i++)
        pthread_barrier_destroy(&meeting[i]);
    for (int size = 1; size < 6; size++)
        for (int i = 0; i < 1024 >> size; i++)
            pthread_barrier_destroy(&together[size][i]);
}
