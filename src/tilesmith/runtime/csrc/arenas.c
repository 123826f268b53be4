#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "arenas.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef _WIN32
#include <windows.h>
#else
#include <sys/mman.h>
#include <unistd.h>
#endif

static Arenas *ring;                               /* some member; NULL: there is none */
static int64_t keep_ns = 60 * (int64_t)1000000000; /* how long an arena is kept that no run uses */
static int64_t next_trim;                          /* when to look for such again */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards these, and the lists of all arenas */

static void enter(void) { pthread_mutex_lock(&lock); }
static void leave(void) { pthread_mutex_unlock(&lock); }

#ifndef _WIN32
/* A child process finds the lists whole, and the lock open. */
__attribute__((constructor)) static void prepare_forks(void) { pthread_atfork(enter, leave, leave); }
#endif

static int64_t now(void) {
    struct timespec t;
#ifdef CLOCK_MONOTONIC_COARSE
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
#else
    clock_gettime(CLOCK_MONOTONIC, &t);
#endif
    return t.tv_sec * (int64_t)1000000000 + t.tv_nsec;
}

void tilesmith_arenas_open(Arenas *self, size_t threads, size_t slots) {
    self->threads = threads;
    self->slots = slots;
    self->idle = NULL;
    enter();
    self->next = ring ? ring : self;
    self->last = ring ? ring->last : self;
    self->last->next = self->next->last = ring = self;
    leave();
}

/* Bytes of memory up to the scratch memory. */
static size_t scratch_at(int64_t arena_bytes) {
    return sizeof(Arena) + ((size_t)arena_bytes + TILESMITH_ALIGNMENT - 1) / TILESMITH_ALIGNMENT * TILESMITH_ALIGNMENT;
}

int tilesmith_arenas_fit(const Arenas *self, int64_t arena_bytes, int64_t scratch_bytes) {
    int64_t room = PTRDIFF_MAX / 4;
    return self->threads > 0 && arena_bytes >= 0 && scratch_bytes >= 0 && arena_bytes <= room &&
           scratch_bytes <= room / (int64_t)self->threads;
}

void tilesmith_arenas_close(Arenas *self) {
    if (self->next == NULL)
        return; /* never opened */
    tilesmith_arenas_trim(self, INT64_MAX);
    enter();
    ring = self->next == self ? NULL : self->next;
    self->last->next = self->next;
    self->next->last = self->last;
    leave();
}

#ifdef _WIN32
/* So many bytes as whole pages; NULL when there are none.  `bytes` becomes their number. */
static void *map(size_t *bytes) {
    SYSTEM_INFO system;
    GetSystemInfo(&system);
    *bytes += system.dwPageSize - 1 - (*bytes - 1) % system.dwPageSize;
    return VirtualAlloc(NULL, *bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}

static void give_back(void *block, size_t bytes) {
    (void)bytes;
    VirtualFree(block, 0, MEM_RELEASE);
}
#else
static void give_back(void *block, size_t bytes) { munmap(block, bytes); }

/* So many bytes as whole pages; NULL when there are none.  `bytes` becomes their number. */
static void *map(size_t *bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *bytes += page - 1 - (*bytes - 1) % page;
    void *block = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block == MAP_FAILED ? NULL : block;
}
#endif

int tilesmith_slot_resize(Slot *slot, int64_t bytes, int64_t keep) {
    Slot old = *slot;
    if (old.data && !keep) {
        give_back(old.data, (size_t)old.bytes);
        *slot = (Slot){NULL, 0};
    }
    size_t size = (size_t)bytes;
    void *data = bytes <= PTRDIFF_MAX / 2 ? map(&size) : NULL;
    if (data == NULL)
        return 0;
    if (keep) {
        memcpy(data, old.data, (size_t)keep);
        give_back(old.data, (size_t)old.bytes);
    }
    *slot = (Slot){data, (int64_t)size};
    return 1;
}

int64_t tilesmith_arenas_bytes(const Arenas *self, const Arena *arena) {
    int64_t bytes = (int64_t)arena->bytes;
    for (size_t i = 0; i < self->slots; i++)
        bytes += arena->slots[i].bytes;
    return bytes;
}

void tilesmith_slots_release(const Arenas *self, Arena *arena) {
    for (size_t i = 0; arena->slots && i < self->slots; i++) {
        if (arena->slots[i].data)
            give_back(arena->slots[i].data, (size_t)arena->slots[i].bytes);
        arena->slots[i] = (Slot){NULL, 0};
    }
}

static void unmap(const Arenas *self, Arena *arena) {
    tilesmith_slots_release(self, arena);
    free(arena->slots);
    if (arena->bytes)
        give_back(arena, arena->bytes);
}

/* Arenas are mapped, not allocated, so that the system gets them back when they are released.  Runs of one program
 * may need different sizes.  The first idle arena that is large enough serves; if none is, a new one replaces the
 * first, and has its slots. */
Arena *tilesmith_arenas_take(Arenas *self, int64_t arena_bytes, int64_t scratch_bytes) {
    if (!tilesmith_arenas_fit(self, arena_bytes, scratch_bytes))
        return NULL;
    size_t begin = scratch_at(arena_bytes), bytes = begin + (size_t)scratch_bytes * self->threads;
    enter();
    Arena **link = &self->idle, *arena, *small = NULL;
    while ((arena = *link) && arena->bytes < bytes)
        link = &arena->next;
    if (arena)
        *link = arena->next;
    else if ((small = self->idle))
        self->idle = small->next;
    leave();
    if (arena == NULL) {
        Slot *slots = NULL;
        if (small) {
            slots = small->slots;
            give_back(small, small->bytes);
        }
        if (slots == NULL && self->slots)
            slots = calloc(self->slots, sizeof *slots);
        if ((self->slots && slots == NULL) || (arena = map(&bytes)) == NULL) {
            unmap(self, &(Arena){.slots = slots});
            return NULL;
        }
        arena->bytes = bytes;
        arena->slots = slots;
    }
    arena->scratch = (char *)arena + begin;
    return arena;
}

/* tilesmith_arenas_trim, of a caller that has the lock. */
static size_t trim(Arenas *self, int64_t limit) {
    size_t bytes = 0;
    Arena **link = &self->idle;
    while (*link && (*link)->used >= limit)
        link = &(*link)->next;
    for (Arena *arena; (arena = *link);) {
        *link = arena->next;
        bytes += (size_t)tilesmith_arenas_bytes(self, arena);
        unmap(self, arena);
    }
    return bytes;
}

size_t tilesmith_arenas_trim(Arenas *self, int64_t limit) {
    enter();
    size_t bytes = trim(self, limit);
    leave();
    return bytes;
}

void tilesmith_arenas_keep(Arenas *self, Arena *arena) {
    int64_t used = arena->used = now();
    enter();
    arena->next = self->idle;
    self->idle = arena;
    if (used >= next_trim) {
        next_trim = used + keep_ns / 4;
        Arenas *other = self;
        do {
            trim(other, used - keep_ns);
            other = other->next;
        } while (other != self);
    }
    leave();
}

int64_t tilesmith_arenas_keep_for(int64_t ns) {
    enter();
    int64_t before = keep_ns;
    keep_ns = ns;
    next_trim = 0;
    leave();
    return before;
}
