/* Whether arguments of a call are the objects that they were, and hold what they held.
 *
 * The objects belong to another library, whose functions say where an object's memory is and how often it was
 * written.  They take the address of a handle, which lies in the object at a fixed offset.  Not all writes are counted
 * there, so what the memory holds is compared by a digest, unless the caller says that counters are enough.
 */
#include "python.h"

#include <stdlib.h>
#include <string.h>

typedef int32_t (*AddressOf)(void *handle, void **address); /* gives 0 for success */
typedef int64_t (*WritesOf)(const void *handle);

#define LANES 8
#define STRIPE (LANES * sizeof(uint64_t))

/* A digest of memory: sums of its words times powers of an odd number, in lanes that depend on no other.  A change of
 * one word in a lane always changes it, since powers of odd numbers have inverses; several changes cancel each other in
 * one case of 2^64. */
typedef struct {
    uint64_t lanes[LANES];
} Digest;

typedef struct {
    PyObject *object;
    Py_ssize_t number; /* of the argument */
    void *address;
    int64_t writes; /* compared where `bytes` is negative */
    Py_ssize_t bytes;
    Digest digest;
} Held;

static inline uint64_t word(const unsigned char *at) {
    uint64_t found;
    memcpy(&found, at, sizeof found);
    return found;
}

/* The lanes are variables of their own, so that they stay in registers: memory of bytes may alias any array. */
static Digest digest_of(const void *memory, size_t bytes) {
    static const uint64_t factor = UINT64_C(0x9E3779B97F4A7C15);
    const unsigned char *at = memory;
    uint64_t a = 0, b = 1, c = 2, d = 3, e = 4, f = 5, g = 6, h = 7;
    for (size_t left = bytes / STRIPE; left > 0; left--, at += STRIPE) {
        a = a * factor + word(at);
        b = b * factor + word(at + 8);
        c = c * factor + word(at + 16);
        d = d * factor + word(at + 24);
        e = e * factor + word(at + 32);
        f = f * factor + word(at + 40);
        g = g * factor + word(at + 48);
        h = h * factor + word(at + 56);
    }
    Digest found = {{a, b, c, d, e, f, g, h}};
    if (bytes % STRIPE) {
        uint64_t rest[LANES] = {0};
        memcpy(rest, at, bytes % STRIPE);
        for (int i = 0; i < LANES; i++)
            found.lanes[i] = found.lanes[i] * factor + rest[i];
    }
    return found;
}

typedef struct Unchanged {
    PyObject_HEAD
    AddressOf address_of;
    WritesOf writes_of;
    Py_ssize_t offset, count;
    Held *held;
} Unchanged;

static int is_equal(Digest found, const Digest *expected) {
    return memcmp(&found, expected, sizeof found) == 0;
}

PyObject *tilesmith_digest(PyObject *module, PyObject *args) {
    Py_ssize_t address, bytes;
    (void)module;
    if (!PyArg_ParseTuple(args, "nn", &address, &bytes))
        return NULL;
    if (bytes < 0) {
        PyErr_SetString(PyExc_ValueError, "a number of bytes of 0 or more is expected");
        return NULL;
    }
    Digest d;
    Py_BEGIN_ALLOW_THREADS
    d = digest_of((const void *)address, (size_t)bytes);
    Py_END_ALLOW_THREADS
    return PyBytes_FromStringAndSize((const char *)&d, sizeof d);
}

static PyObject *unchanged_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    Py_ssize_t address_of, writes_of, offset;
    PyObject *numbers, *objects, *addresses, *writes, *sizes;
    if (kwargs != NULL && PyDict_Size(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "Unchanged takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "nnnO!O!O!O!O!", &address_of, &writes_of, &offset, &PyTuple_Type, &numbers,
                          &PyTuple_Type, &objects, &PyTuple_Type, &addresses, &PyTuple_Type, &writes, &PyTuple_Type,
                          &sizes))
        return NULL;
    Py_ssize_t count = PyTuple_Size(numbers);
    if (PyTuple_Size(objects) != count || PyTuple_Size(addresses) != count || PyTuple_Size(writes) != count ||
        PyTuple_Size(sizes) != count) {
        PyErr_SetString(PyExc_ValueError, "tuples of one length are expected");
        return NULL;
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Unchanged *self = (Unchanged *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->address_of = (AddressOf)(uintptr_t)address_of;
    self->writes_of = (WritesOf)(uintptr_t)writes_of;
    self->offset = offset;
    self->held = calloc(count ? (size_t)count : 1, sizeof(Held));
    if (self->held == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Held *held = &self->held[i];
        held->number = PyLong_AsSsize_t(PyTuple_GetItem(numbers, i));
        held->address = PyLong_AsVoidPtr(PyTuple_GetItem(addresses, i));
        held->writes = PyLong_AsLongLong(PyTuple_GetItem(writes, i));
        held->bytes = PyLong_AsSsize_t(PyTuple_GetItem(sizes, i));
        if (PyErr_Occurred()) {
            Py_DECREF(self);
            return NULL;
        }
        if (held->bytes >= 0)
            held->digest = digest_of(held->address, (size_t)held->bytes);
        held->object = Py_NewRef(PyTuple_GetItem(objects, i));
        self->count = i + 1;
    }
    return (PyObject *)self;
}

static void unchanged_dealloc(PyObject *object) {
    Unchanged *self = (Unchanged *)object;
    PyTypeObject *type = Py_TYPE(object);
    for (Py_ssize_t i = 0; i < self->count; i++)
        Py_DECREF(self->held[i].object);
    free(self->held);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyObject *unchanged_in(PyObject *object, PyObject *args) {
    const Unchanged *self = (const Unchanged *)object;
    int is_list = PyList_Check(args);
    if (!is_list && !PyTuple_Check(args)) {
        PyErr_SetString(PyExc_TypeError, "a list or a tuple is expected");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < self->count; i++) {
        const Held *held = &self->held[i];
        PyObject *found = is_list ? PyList_GetItem(args, held->number) : PyTuple_GetItem(args, held->number);
        if (found == NULL)
            return NULL;
        if (found != held->object)
            Py_RETURN_FALSE;
        void *handle = (char *)found + self->offset, *address = NULL;
        if (self->address_of(handle, &address) != 0)
            Py_RETURN_FALSE;
        if (held->bytes < 0 ? address != held->address || self->writes_of(handle) != held->writes
                            : !is_equal(digest_of(address, (size_t)held->bytes), &held->digest))
            Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

static PyMethodDef methods[] = {
    {"is_in", unchanged_in, METH_O, "is_in(arguments) -> whether the objects are these arguments, as they were."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, unchanged_new},
    {Py_tp_dealloc, unchanged_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "Unchanged(address_of, writes_of, offset, numbers, objects, addresses, writes, sizes)\n\n"
                "The objects that are arguments `numbers` of a call, with the addresses of their memory, how often it\n"
                "was written, and its bytes: that many are compared, or addresses and writes where it is negative.\n"
                "`address_of` and `writes_of` are addresses of C functions, which take the address of the handle that\n"
                "each object has at `offset` bytes."},
    {0, NULL},
};

PyType_Spec tilesmith_unchanged_spec = TILESMITH_TYPE("Unchanged", Unchanged, slots);
