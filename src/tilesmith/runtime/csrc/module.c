/* The Python extension `tilesmith.runtime._native` (stable ABI, Python 3.11 and later).
 *
 * `Runner` is the fast path of a call: it checks the arrays, takes an arena from its free list, releases the GIL and
 * runs the entry point.  Everything slow (conversion, error messages) is Python's business.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdlib.h>
#include <string.h>

#include "tilesmith.h"

#define ALIGNMENT 64
#define MAX_RANK 16
#define MAX_KEPT 8     /* arenas kept for reuse */
#define MAX_ARRAYS 64  /* beyond this the arrays' descriptions go to the heap */

/* What an argument array must look like. */
typedef struct {
    char kind; /* b, i, u or f, as in NumPy */
    int rank;
    Py_ssize_t item;
    Py_ssize_t shape[MAX_RANK];
} Spec;

typedef struct {
    PyObject_HEAD
    tilesmith_entry entry;
    const void *constants;
    int64_t threads;
    size_t arena_bytes, scratch_bytes; /* scratch of all threads, behind the arena */
    Py_ssize_t inputs, arrays;         /* number of inputs; of inputs and outputs */
    Spec *specs;
    int kept;
    void *free_arenas[MAX_KEPT]; /* guarded by the GIL */
    PyObject *owner;             /* keeps code and constants alive */
} Runner;

static char kind_of(const char *format) {
    if (format == NULL)
        return 'u'; /* plain bytes */
    if (format[0] == '@' || format[0] == '=' || format[0] == '<')
        format++;
    if (format[0] == 0 || format[1] != 0)
        return 0;
    if (strchr("efd", format[0]))
        return 'f';
    if (strchr("bhilq", format[0]))
        return 'i';
    if (strchr("BHILQ", format[0]))
        return 'u';
    return format[0] == '?' ? 'b' : 0;
}

static int fits(const Spec *spec, const Py_buffer *view) {
    if (view->ndim != spec->rank || view->itemsize != spec->item || kind_of(view->format) != spec->kind)
        return 0;
    for (int i = 0; i < spec->rank; i++)
        if (view->shape[i] != spec->shape[i])
            return 0;
    return ((uintptr_t)view->buf % (uintptr_t)spec->item) == 0;
}

static void *aligned_alloc64(size_t bytes) {
    void *p = NULL;
    return posix_memalign(&p, ALIGNMENT, bytes ? bytes : ALIGNMENT) ? NULL : p;
}

static int parse_spec(PyObject *item, Spec *spec) {
    const char *kind;
    PyObject *shape;
    if (!PyArg_ParseTuple(item, "snO", &kind, &spec->item, &shape))
        return -1;
    spec->kind = kind[0];
    Py_ssize_t rank = PyTuple_Size(shape);
    if (rank < 0)
        return -1;
    if (rank > MAX_RANK || spec->item <= 0) {
        PyErr_Format(PyExc_ValueError, "an array has at most %d dimensions and elements of at least one byte", MAX_RANK);
        return -1;
    }
    spec->rank = (int)rank;
    for (Py_ssize_t i = 0; i < rank; i++) {
        spec->shape[i] = PyLong_AsSsize_t(PyTuple_GetItem(shape, i));
        if (PyErr_Occurred())
            return -1;
    }
    return 0;
}

static PyObject *runner_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    unsigned long long entry, constants;
    Py_ssize_t arena, scratch, threads;
    PyObject *inputs, *outputs, *owner;
    if (!PyArg_ParseTuple(args, "KKnnnO!O!O", &entry, &constants, &arena, &scratch, &threads, &PyTuple_Type, &inputs,
                          &PyTuple_Type, &outputs, &owner))
        return NULL;
    if (arena < 0 || scratch < 0 || threads < 1 || scratch > (PY_SSIZE_T_MAX - arena) / threads - ALIGNMENT) {
        PyErr_SetString(PyExc_ValueError, "sizes must not be negative and threads at least 1");
        return NULL;
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Runner *self = (Runner *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->entry = (tilesmith_entry)(uintptr_t)entry;
    self->constants = (const void *)(uintptr_t)constants;
    self->threads = threads;
    self->arena_bytes = ((size_t)arena + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    self->scratch_bytes = (size_t)scratch * (size_t)threads;
    self->inputs = PyTuple_Size(inputs);
    self->arrays = self->inputs + PyTuple_Size(outputs);
    Py_INCREF(owner);
    self->owner = owner;
    self->specs = calloc((size_t)self->arrays + 1, sizeof(Spec));
    if (self->specs == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < self->arrays; i++) {
        PyObject *item = i < self->inputs ? PyTuple_GetItem(inputs, i) : PyTuple_GetItem(outputs, i - self->inputs);
        if (parse_spec(item, &self->specs[i]) < 0) {
            Py_DECREF(self);
            return NULL;
        }
    }
    return (PyObject *)self;
}

static void runner_dealloc(PyObject *object) {
    Runner *self = (Runner *)object;
    PyTypeObject *type = Py_TYPE(object);
    while (self->kept)
        free(self->free_arenas[--self->kept]);
    free(self->specs);
    Py_XDECREF(self->owner);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

/* Take views of arrays `first ..`; returns how many were taken (fewer than `count`: that one does not fit). */
static Py_ssize_t take(Runner *self, PyObject *arrays, Py_ssize_t first, Py_ssize_t count, int flags, Py_buffer *views,
                       void **pointers) {
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_buffer *view = &views[first + i];
        if (PyObject_GetBuffer(PyTuple_GetItem(arrays, i), view, flags) < 0) {
            PyErr_Clear();
            return i;
        }
        if (!fits(&self->specs[first + i], view)) {
            PyBuffer_Release(view);
            return i;
        }
        pointers[first + i] = view->buf;
    }
    return count;
}

/* call(inputs, outputs) -> 0, or the entry's failure code (positive), or -(i + 1) when array i (outputs counted after
 * the inputs) does not fit its specification. */
static PyObject *runner_call(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    Runner *self = (Runner *)object;
    if (count != 2 || !PyTuple_Check(args[0]) || !PyTuple_Check(args[1]) || PyTuple_Size(args[0]) != self->inputs ||
        PyTuple_Size(args[1]) != self->arrays - self->inputs) {
        PyErr_SetString(PyExc_TypeError, "call takes a tuple of all inputs and a tuple of all outputs");
        return NULL;
    }
    Py_buffer few_views[MAX_ARRAYS], *views = few_views;
    void *few_pointers[MAX_ARRAYS], **pointers = few_pointers;
    if (self->arrays > MAX_ARRAYS) {
        views = malloc((size_t)self->arrays * sizeof *views);
        pointers = malloc((size_t)self->arrays * sizeof *pointers);
        if (views == NULL || pointers == NULL) {
            free(views);
            free(pointers);
            return PyErr_NoMemory();
        }
    }
    long long status = 0;
    Py_ssize_t taken = take(self, args[0], 0, self->inputs, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT, views, pointers);
    if (taken == self->inputs)
        taken += take(self, args[1], self->inputs, self->arrays - self->inputs,
                      PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | PyBUF_WRITABLE, views, pointers);
    if (taken < self->arrays) {
        status = -(long long)taken - 1;
    } else {
        void *arena = self->kept ? self->free_arenas[--self->kept]
                                 : aligned_alloc64(self->arena_bytes + self->scratch_bytes);
        if (arena == NULL) {
            PyErr_NoMemory();
        } else {
            struct tilesmith_rt rt = {self->threads, NULL, (char *)arena + self->arena_bytes};
            Py_BEGIN_ALLOW_THREADS
            status = self->entry(pointers, pointers + self->inputs, self->constants, arena, &rt);
            Py_END_ALLOW_THREADS
            if (self->kept < MAX_KEPT)
                self->free_arenas[self->kept++] = arena;
            else
                free(arena);
        }
    }
    for (Py_ssize_t i = 0; i < taken; i++)
        PyBuffer_Release(&views[i]);
    if (views != few_views) {
        free(views);
        free(pointers);
    }
    return PyErr_Occurred() ? NULL : PyLong_FromLongLong(status);
}

static PyMethodDef runner_methods[] = {
    {"call", (PyCFunction)(void (*)(void))runner_call, METH_FASTCALL,
     "call(inputs, outputs) -> status\n\nRun the entry point on two tuples of arrays; 0 is success, -(i + 1) an unfit array i."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot runner_slots[] = {
    {Py_tp_new, runner_new},
    {Py_tp_dealloc, runner_dealloc},
    {Py_tp_methods, runner_methods},
    {Py_tp_doc, "Runner(entry, constants, arena_bytes, scratch_bytes_per_thread, threads, inputs, outputs, owner)\n\n"
                "`inputs` and `outputs` are tuples of (kind, item size, shape)."},
    {0, NULL},
};

static PyType_Spec runner_spec = {
    .name = "tilesmith.runtime._native.Runner",
    .basicsize = sizeof(Runner),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = runner_slots,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "The C runtime: thread pool and calls of compiled programs.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *m = PyModule_Create(&module);
    if (m == NULL)
        return NULL;
    PyObject *type = PyType_FromSpec(&runner_spec);
    PyObject *address = PyLong_FromVoidPtr((void *)(uintptr_t)tilesmith_parallel_for);
    if (type == NULL || address == NULL || PyModule_AddObjectRef(m, "Runner", type) < 0 ||
        PyModule_AddObjectRef(m, "PARALLEL_FOR", address) < 0) {
        Py_XDECREF(type);
        Py_XDECREF(address);
        Py_DECREF(m);
        return NULL;
    }
    Py_DECREF(type);
    Py_DECREF(address);
    return m;
}
