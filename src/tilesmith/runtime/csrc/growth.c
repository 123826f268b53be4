#include "growth.h"

#include <stdlib.h>
#include <string.h>

PyTypeObject *tilesmith_block_type;

#ifdef _WIN32
static void *take(int64_t bytes) { return _aligned_malloc((size_t)bytes, TILESMITH_ALIGNMENT); }
static void give_back(void *data) { _aligned_free(data); }
#else
static void *take(int64_t bytes) {
    void *data = NULL;
    return posix_memalign(&data, TILESMITH_ALIGNMENT, (size_t)bytes) ? NULL : data;
}
static void give_back(void *data) { free(data); }
#endif

/* Bytes to take where `bytes` are needed and `had` are there: half as much again, so that memory that grows
 * step by step is copied a few times only; 0 if no more than `left` may be added and that is too little. */
static int64_t next_size(int64_t bytes, int64_t had, int64_t left) {
    int64_t amortised = had + had / 2;
    if (amortised > bytes && amortised - had <= left)
        return amortised;
    return bytes - had <= left ? bytes : 0;
}

static void *grow_result(Growth *self, Block *block, int64_t bytes, int64_t keep) {
    if (block->given.obj || bytes <= block->bytes)
        return bytes <= block->bytes ? block->data : NULL;
    int64_t size = next_size(bytes, keep ? block->bytes : 0, self->left);
    void *data = size ? take(size) : NULL;
    if (!data)
        return NULL;
    if (keep)
        memcpy(data, block->data, (size_t)keep);
    give_back(block->data);
    self->left -= size - block->bytes;
    block->data = data;
    block->bytes = size;
    return data;
}

void *tilesmith_grow(void *memory, int64_t slot, int64_t bytes, int64_t keep) {
    Growth *self = memory;
    bytes += bytes == 0; /* an address, even for nothing */
    if (slot < 0 || bytes < 0 || slot >= self->count + self->others)
        return NULL;
    if (slot < self->count)
        return grow_result(self, self->outputs[slot], bytes, keep);
    Slot *own = &self->arena->slots[slot - self->count];
    if (bytes <= own->bytes)
        return own->data;
    int64_t had = own->bytes, size = next_size(bytes, had, self->left);
    if (!size || !tilesmith_slot_resize(own, size, keep))
        return NULL;
    self->left -= own->bytes - had;
    return own->data;
}

static char nothing; /* where a block without memory begins */

static PyObject *block_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    PyObject *given = NULL;
    if (!PyArg_ParseTuple(args, "|O", &given))
        return NULL;
    Block *self = (Block *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self && given) {
        if (PyObject_GetBuffer(given, &self->given, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) {
            Py_DECREF(self);
            return NULL;
        }
        self->bytes = self->given.len;
        self->data = self->given.len ? self->given.buf : &nothing;
    }
    return (PyObject *)self;
}

static void block_dealloc(PyObject *object) {
    Block *self = (Block *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->given.obj)
        PyBuffer_Release(&self->given);
    else
        give_back(self->data);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static int block_buffer(PyObject *object, Py_buffer *view, int flags) {
    Block *self = (Block *)object;
    return PyBuffer_FillInfo(view, object, self->data ? self->data : &nothing, self->bytes, 0, flags);
}

static PyType_Slot block_slots[] = {
    {Py_tp_new, block_new},
    {Py_tp_dealloc, block_dealloc},
    {Py_bf_getbuffer, block_buffer},
    {Py_tp_doc, "Block([array]): the memory of a result whose size only a run finds, in place of an output's array: it\n"
                "grows during the run, and is a buffer of bytes after it.  A block of an array does not grow."},
    {0, NULL},
};

PyType_Spec tilesmith_block_spec = TILESMITH_TYPE("Block", Block, block_slots);
