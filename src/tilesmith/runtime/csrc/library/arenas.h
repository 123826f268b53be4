/* Memory of runs, which a library keeps for its next runs. */
#ifndef TILESMITH_ARENAS_H
#define TILESMITH_ARENAS_H

#include "tilesmith.h"

#include <stdatomic.h>
#include <stdlib.h>

#define TILESMITH_SPARES 8 /* arenas that are kept */

/* Memory of a run; `bytes` are behind the head. */
struct arena {
    int64_t bytes;
    char head[TILESMITH_ALIGNMENT - sizeof(int64_t)];
};

typedef _Atomic(struct arena *) arena_spares[TILESMITH_SPARES];

/* NULL: the system has no memory. */
static inline struct arena *take_arena(arena_spares spares, int64_t bytes) {
    for (int i = 0; i < TILESMITH_SPARES; i++) {
        struct arena *found = atomic_exchange(&spares[i], NULL);
        if (found && found->bytes >= bytes)
            return found;
        free(found);
    }
    struct arena *made = aligned_alloc(TILESMITH_ALIGNMENT, sizeof(struct arena) + (size_t)bytes);
    if (made)
        made->bytes = bytes;
    return made;
}

static inline void give_arena(arena_spares spares, struct arena *arena) {
    for (int i = 0; i < TILESMITH_SPARES; i++) {
        struct arena *none = NULL;
        if (atomic_compare_exchange_strong(&spares[i], &none, arena))
            return;
    }
    free(arena);
}

static inline void free_arenas(arena_spares spares) {
    for (int i = 0; i < TILESMITH_SPARES; i++)
        free(atomic_load(&spares[i]));
}

#endif
