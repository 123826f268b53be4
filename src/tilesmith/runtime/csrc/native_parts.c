/* Strings that keep their order: in another shape, or side by side with others. */
#include "natives.h"

#include <string.h>

typedef struct {
    Native native;
    Py_ssize_t axis; /* negative: counted from the end */
} Parts;

/* Copy `count` strings. */
static void copy_strings(Value *y, Py_ssize_t to, const Value *x, Py_ssize_t from, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++)
        tilesmith_put(y->data, to + i, Py_XNewRef(((PyObject **)x->data)[from + i]));
}

static int reshape_run(PyObject *self, Value *inputs, Value *y, PyObject *empty) {
    (void)self;
    (void)empty;
    if (inputs[0].kind != 's' || y->kind != 's' || inputs[0].count != y->count)
        return 1;
    copy_strings(y, 0, &inputs[0], 0, y->count);
    return 0;
}

static int concat_run(PyObject *object, Value *inputs, Value *y, PyObject *empty) {
    (void)empty;
    Py_ssize_t count = y - inputs, axis = ((Parts *)object)->axis, total = 0, outer = 1, inner = 1;
    axis += axis < 0 ? y->rank : 0;
    if (y->kind != 's' || axis < 0 || axis >= y->rank)
        return 1;
    for (Py_ssize_t i = 0; i < y->rank; i++)
        if (i != axis)
            *(i < axis ? &outer : &inner) *= y->shape[i];
    for (Py_ssize_t p = 0; p < count; p++) {
        if (inputs[p].kind != 's' || inputs[p].rank != y->rank)
            return 1;
        for (int i = 0; i < y->rank; i++)
            if (i != axis && inputs[p].shape[i] != y->shape[i])
                return 1;
        total += inputs[p].shape[axis];
    }
    if (total != y->shape[axis])
        return 1;
    for (Py_ssize_t i = 0, at = 0; i < outer; i++)
        for (Py_ssize_t p = 0; p < count; p++) {
            Py_ssize_t run = inputs[p].shape[axis] * inner;
            copy_strings(y, at, &inputs[p], i * run, run);
            at += run;
        }
    return 0;
}

static PyObject *reshape_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    return PyArg_ParseTuple(args, "") ? tilesmith_native_new(type, reshape_run, -1, 1) : NULL;
}

static PyObject *concat_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    Py_ssize_t axis;
    if (!PyArg_ParseTuple(args, "n", &axis))
        return NULL;
    Parts *self = tilesmith_native_new(type, concat_run, -1, 1);
    if (self)
        self->axis = axis;
    return (PyObject *)self;
}

static PyType_Slot reshape_slots[] = {
    {Py_tp_new, reshape_new},
    {Py_tp_dealloc, tilesmith_native_free},
    {Py_tp_doc, "Reshape(): the strings of the first input in the shape of the result."},
    {0, NULL},
};

static PyType_Slot concat_slots[] = {
    {Py_tp_new, concat_new},
    {Py_tp_dealloc, tilesmith_native_free},
    {Py_tp_doc, "Concat(axis): tensors of strings side by side."},
    {0, NULL},
};

PyType_Spec tilesmith_reshape_spec = TILESMITH_TYPE("Reshape", Native, reshape_slots);
PyType_Spec tilesmith_concat_spec = TILESMITH_TYPE("Concat", Parts, concat_slots);
