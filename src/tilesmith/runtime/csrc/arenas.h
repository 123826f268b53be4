/* Memory of runs: mapped once, kept for the next run, given back to the system when no run used it for a while. */
#ifndef TILESMITH_ARENAS_H
#define TILESMITH_ARENAS_H

#include <stddef.h>
#include <stdint.h>

#include "tilesmith.h"

/* Memory whose size only a run finds; it is kept for the next run. */
typedef struct Slot {
    void *data;
    int64_t bytes;
} Slot;

/* Memory of one run: this header, the program's arena, the scratch memory of all threads. */
typedef struct Arena {
    _Alignas(TILESMITH_ALIGNMENT) struct Arena *next;
    size_t bytes; /* header included */
    char *scratch; /* of the run that has taken it */
    int64_t used; /* when the last run ended, in ns */
    Slot *slots;  /* as many as the program has; NULL if it has none */
} Arena;

/* The memory of the runs of one program. */
typedef struct Arenas {
    size_t threads;             /* that have scratch memory of their own */
    size_t slots;               /* of each arena */
    Arena *idle;                /* the one used last comes first */
    struct Arenas *next, *last; /* in the ring of all */
} Arenas;

/* Any thread may call these: one lock guards the lists. */

/* Enter `self` into the ring. */
void tilesmith_arenas_open(Arenas *self, size_t threads, size_t slots);

/* Whether a run may ask for so much: whether the sum can be computed. */
int tilesmith_arenas_fit(const Arenas *self, int64_t arena_bytes, int64_t scratch_bytes);

/* Free all and leave the ring. */
void tilesmith_arenas_close(Arenas *self);

/* Memory for a run that needs so many bytes, and of scratch so many for each thread; NULL when there is none. */
Arena *tilesmith_arenas_take(Arenas *self, int64_t arena_bytes, int64_t scratch_bytes);

/* Make a slot at least `bytes` large; its first `keep` bytes stay.  0: there is no memory. */
int tilesmith_slot_resize(Slot *slot, int64_t bytes, int64_t keep);

/* Give the memory of an arena's slots back to the system. */
void tilesmith_slots_release(const Arenas *self, Arena *arena);

/* Bytes of an arena and its slots. */
int64_t tilesmith_arenas_bytes(const Arenas *self, const Arena *arena);

/* Take back the memory of a run that ended, and trim all programs' now and then. */
void tilesmith_arenas_keep(Arenas *self, Arena *arena);

/* Give back the idle arenas that were last used before `limit`; returns how many bytes. */
size_t tilesmith_arenas_trim(Arenas *self, int64_t limit);

/* How long an arena is kept that no run uses, in ns; returns what it was before. */
int64_t tilesmith_arenas_keep_for(int64_t ns);

#endif
