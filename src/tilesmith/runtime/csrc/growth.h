/* Memory whose size only a run finds: `grow` of the context, for results and for slots of an arena. */
#ifndef TILESMITH_GROWTH_H
#define TILESMITH_GROWTH_H

#include "python.h"

#include "arenas.h"

extern PyType_Spec tilesmith_block_spec;
extern PyTypeObject *tilesmith_block_type; /* made when the extension is loaded */

/* The memory of a result.  It grows while a program runs, and is a buffer of bytes afterwards. */
typedef struct Block {
    PyObject_HEAD
    char *data;      /* NULL: nothing yet */
    int64_t bytes;   /* size */
    Py_buffer given; /* what a caller gave for the result, if `given.obj` is not NULL: it does not grow */
} Block;

/* What one run may grow. */
typedef struct Growth {
    void **outputs;  /* the first slots: their Blocks.  The program asks for no other output */
    int64_t count;   /* of those slots */
    Arena *arena;    /* of the run, with the other slots */
    int64_t others;  /* number of those */
    int64_t left;    /* bytes that may still be taken from the system */
} Growth;

/* `grow` of the context, whose `memory` is a Growth.  The GIL is not held: a run's memory is its own. */
void *tilesmith_grow(void *memory, int64_t slot, int64_t bytes, int64_t keep);

#endif
