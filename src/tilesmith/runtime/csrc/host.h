/* Functions of the host that a program calls: strings, lists, and operators without native code.
 *
 * Each is a Python function.  Some have a second form in C, a Native, which computes the same for plain inputs and
 * leaves all others, and every error, to the Python function. */
#ifndef TILESMITH_HOST_H
#define TILESMITH_HOST_H

#include "python.h"

/* A tensor, or another value, that a function reads or writes. */
typedef struct Value {
    char kind; /* of native memory b, i, u or f as in NumPy, or another letter; s: strings; o: another object */
    int rank;
    Py_ssize_t item, count; /* bytes of an element; number of elements */
    Py_ssize_t shape[TILESMITH_RANK];
    void *data;       /* the elements; of strings PyObject *; NULL for kind o */
    PyObject *object; /* of kinds s and o */
    Py_buffer view;   /* of the strings in `object` */
} Value;

/* Compute `outputs`, whose memory is there but for the objects of kind o.  Returns 0; 1 if the Python function is to
 * run instead, also with an exception, which is dropped unless it is an interrupt; or -1 with an exception that ends
 * the run. */
typedef int (*tilesmith_native_fn)(PyObject *self, Value *inputs, Value *outputs, PyObject *empty);

/* The beginning of an object that runs in place of a Python function. */
typedef struct Native {
    PyObject_HEAD
    tilesmith_native_fn run;
    Py_ssize_t inputs, outputs; /* how many it has; -1: any number */
} Native;

extern PyTypeObject *tilesmith_host_type; /* made when the extension is loaded */
extern PyType_Spec tilesmith_host_spec;

/* The objects of one run by number, and what a function of it raised. */
typedef struct HostRun {
    PyObject *functions; /* a Host; NULL: the run has none */
    PyThreadState *thread;
    PyObject **objects;
    Py_ssize_t count, room;
    PyObject *few[16]; /* where objects stand unless they are more */
    PyObject *type, *value, *traceback;
} HostRun;

void tilesmith_host_open(HostRun *run, PyObject *functions);
void tilesmith_host_close(HostRun *run);

/* The number of a new object, whose reference is taken (NULL: an exception is set); -1 with an exception. */
int64_t tilesmith_host_add(HostRun *run, PyObject *object);

/* The number of a copy of strings, in a view of an array; -1 with an exception, -2 if one is no string. */
int64_t tilesmith_host_add_strings(HostRun *run, const Py_buffer *view);

/* The object with a number, borrowed; NULL with an exception. */
PyObject *tilesmith_host_object(const HostRun *run, int64_t number);

/* `host` of the context, whose data is a HostRun. */
int32_t tilesmith_host_call(void *data, int64_t function, void *const *arguments, int64_t count);

/* A new array of objects; its elements may be written through `view`. */
PyObject *tilesmith_objects(PyObject *empty, int rank, const Py_ssize_t *shape, Py_buffer *view);

/* Put an object, whose reference is taken, in the place of another. */
static inline void tilesmith_put(void *data, Py_ssize_t at, PyObject *object) {
    PyObject **place = (PyObject **)data + at, *before = *place;
    *place = object;
    Py_XDECREF(before);
}

#endif
