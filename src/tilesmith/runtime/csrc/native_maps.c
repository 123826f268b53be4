/* Numbers by key: rows as dicts, and dicts as rows. */
#include "natives.h"

#include <string.h>

typedef struct {
    Native native;
    PyObject *keys; /* tuple */
} Keys;

/* One row as a dict; NULL with an exception. */
static PyObject *map_of(PyObject *keys, const Value *x, Py_ssize_t row) {
    PyObject *made = PyDict_New();
    Py_ssize_t count = PyTuple_Size(keys);
    for (Py_ssize_t k = 0; made && k < count; k++) {
        Py_ssize_t at = row * count + k;
        double number = x->item == 4 ? (double)((float *)x->data)[at] : ((double *)x->data)[at];
        PyObject *value = PyFloat_FromDouble(number);
        if (value == NULL || PyDict_SetItem(made, PyTuple_GetItem(keys, k), value) < 0)
            Py_CLEAR(made);
        Py_XDECREF(value);
    }
    return made;
}

static int maps_run(PyObject *object, Value *x, Value *y, PyObject *empty) {
    (void)empty;
    PyObject *keys = ((Keys *)object)->keys;
    int is_float = x->kind == 'f' && (x->item == 4 || x->item == 8);
    if (!is_float || y->kind != 'o' || x->rank < 1 || x->rank > 2 || x->shape[x->rank - 1] != PyTuple_Size(keys))
        return 1;
    Py_ssize_t rows = x->rank == 2 ? x->shape[0] : 1;
    PyObject *made = PyList_New(rows);
    for (Py_ssize_t i = 0; made && i < rows; i++) {
        PyObject *map = map_of(keys, x, i);
        if (map == NULL || PyList_SetItem(made, i, map) < 0)
            Py_CLEAR(made);
    }
    y->object = made;
    return made == NULL;
}

/* Write the value of a key, or what stands for none; 0, or 1 for values that Python converts. */
static int put_value(Value *y, Py_ssize_t i, PyObject *value) {
    if (y->kind == 's') {
        PyObject *text = value ? Py_NewRef(value) : PyUnicode_FromStringAndSize("", 0);
        if (text == NULL || !PyUnicode_CheckExact(text)) {
            Py_XDECREF(text);
            return 1;
        }
        tilesmith_put(y->data, i, text);
        return 0;
    }
    if (y->kind == 'i' && y->item == 8) {
        if (value && !PyLong_CheckExact(value))
            return 1;
        ((int64_t *)y->data)[i] = value ? PyLong_AsLongLong(value) : 0;
        return PyErr_Occurred() != NULL;
    }
    if (y->kind != 'f' || (y->item != 4 && y->item != 8) || (value && !PyFloat_CheckExact(value)))
        return 1;
    double number = value ? PyFloat_AsDouble(value) : 0;
    if (y->item == 8)
        ((double *)y->data)[i] = number;
    else if (number > 3.4e38 || number < -3.4e38)
        return 1; /* NumPy warns of what is too large */
    else
        ((float *)y->data)[i] = (float)number;
    return 0;
}

static int row_run(PyObject *object, Value *x, Value *y, PyObject *empty) {
    (void)empty;
    PyObject *keys = ((Keys *)object)->keys;
    Py_ssize_t count = PyTuple_Size(keys);
    if (x->kind != 'o' || !PyDict_CheckExact(x->object) || y->kind == 'o' || y->count != count)
        return 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = PyDict_GetItemWithError(x->object, PyTuple_GetItem(keys, i));
        if ((value == NULL && PyErr_Occurred()) || put_value(y, i, value))
            return 1;
    }
    return 0;
}

static PyObject *keys_new(PyTypeObject *type, PyObject *args, tilesmith_native_fn run) {
    PyObject *keys;
    if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &keys))
        return NULL;
    Keys *self = tilesmith_native_new(type, run, 1, 1);
    if (self)
        self->keys = Py_NewRef(keys);
    return (PyObject *)self;
}

static PyObject *maps_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    return keys_new(type, args, maps_run);
}

static PyObject *row_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    return keys_new(type, args, row_run);
}

static void keys_dealloc(PyObject *object) {
    Py_XDECREF(((Keys *)object)->keys);
    tilesmith_native_free(object);
}

static PyType_Slot maps_slots[] = {
    {Py_tp_new, maps_new},
    {Py_tp_dealloc, keys_dealloc},
    {Py_tp_doc, "Maps(keys): for each row a dict of its numbers by key."},
    {0, NULL},
};

static PyType_Slot row_slots[] = {
    {Py_tp_new, row_new},
    {Py_tp_dealloc, keys_dealloc},
    {Py_tp_doc, "Row(keys): the values of keys in a dict; 0, or \"\", for those that it lacks."},
    {0, NULL},
};

PyType_Spec tilesmith_maps_spec = TILESMITH_TYPE("Maps", Keys, maps_slots);
PyType_Spec tilesmith_row_spec = TILESMITH_TYPE("Row", Keys, row_slots);
