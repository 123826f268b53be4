/* Python's stable ABI, as all of the extension's files use it. */
#ifndef TILESMITH_PYTHON_H
#define TILESMITH_PYTHON_H

#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "tilesmith.h"

#define TILESMITH_RANK 16 /* most dimensions of an array */

/* The types of the extension. */
extern PyType_Spec tilesmith_runner_spec, tilesmith_function_spec, tilesmith_unchanged_spec;

/* digest(address, bytes): of memory that the caller answers for. */
PyObject *tilesmith_digest(PyObject *module, PyObject *args);

/* One of them: its name, the struct of its objects, and its slots. */
#define TILESMITH_TYPE(type_name, type, type_slots)                                                                   \
    {.name = "tilesmith.runtime._native." type_name,                                                                  \
     .basicsize = sizeof(type),                                                                                       \
     .flags = Py_TPFLAGS_DEFAULT,                                                                                     \
     .slots = (type_slots)}

/* The kind of a buffer's elements by their format: b, i, u or f as in NumPy, 0 for others. */
char tilesmith_kind(const char *format);

/* Whether an object's buffer is all that it says: neither elements of it are masked nor have its numbers a unit. */
int tilesmith_is_bare(PyObject *object);

/* Whether two views have a byte in common. */
static inline int tilesmith_overlap(const Py_buffer *a, const Py_buffer *b) {
    uintptr_t first = (uintptr_t)a->buf, second = (uintptr_t)b->buf;
    return a->len && b->len && first < second + (uintptr_t)b->len && second < first + (uintptr_t)a->len;
}

/* The failure of a run as (code, call, assertion, values). */
PyObject *tilesmith_failure_of(int32_t code, const struct tilesmith_failure *failure);

#endif
