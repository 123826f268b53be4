/* Strings that are looked up in a table, or picked along an axis. */
#include "natives.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What keys stand for. */
typedef struct {
    Native native;
    PyObject *table;     /* dict: from a key to the place of its result */
    PyObject *results;   /* tuple of strings, or bytes; the last is that of other keys */
    PyObject *nan;       /* the key for NaN */
    const char *numbers; /* in `results`; NULL: they are strings */
    Py_ssize_t item, count;
    Py_ssize_t *dense; /* the places by key from `first` on, if all keys are integers side by side; else NULL */
    int64_t first, extent;
} Lookup;

/* Fill `dense`; 0 is success, also if there are other keys. */
static int make_dense(Lookup *self) {
    int64_t low = INT64_MAX, high = INT64_MIN;
    Py_ssize_t at = 0;
    PyObject *key, *place;
    while (PyDict_Next(self->table, &at, &key, &place)) {
        int beyond = 0;
        int64_t number = PyLong_CheckExact(key) ? PyLong_AsLongLongAndOverflow(key, &beyond) : 0;
        if (!PyLong_CheckExact(key) || beyond || number < -(1 << 20) || number > 1 << 20)
            return 0;
        low = number < low ? number : low;
        high = number > high ? number : high;
    }
    if (low > high || high - low >= 4 * (int64_t)PyDict_Size(self->table) + 64)
        return 0;
    self->dense = malloc((size_t)(high - low + 1) * sizeof *self->dense);
    if (self->dense == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->first = low;
    self->extent = high - low + 1;
    for (int64_t i = 0; i < self->extent; i++)
        self->dense[i] = self->count - 1;
    for (at = 0; PyDict_Next(self->table, &at, &key, &place);) {
        Py_ssize_t number = PyLong_AsSsize_t(place);
        if (number < 0 || number >= self->count) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "a key stands for a place outside of the results");
            return -1;
        }
        self->dense[PyLong_AsLongLong(key) - low] = number;
    }
    return 0;
}

/* An element of native memory as the key that Python makes of it; NULL for other types. */
static PyObject *key_of(const Lookup *self, const Value *x, Py_ssize_t i) {
    const char *at = (const char *)x->data + i * x->item;
    union {
        int8_t i8; int16_t i16; int32_t i32; int64_t i64;
        uint8_t u8; uint16_t u16; uint32_t u32; uint64_t u64;
        float f32; double f64;
    } v = {0};
    if (x->item > 8)
        return NULL;
    memcpy(&v, at, (size_t)x->item);
    double number = 0;
    switch (x->kind) {
    case 's': {
        PyObject *text = ((PyObject **)x->data)[i];
        return text ? Py_NewRef(text) : NULL;
    }
    case 'b':
        return PyBool_FromLong(v.u8);
    case 'i':
        return PyLong_FromLongLong(x->item == 8 ? v.i64 : x->item == 4 ? v.i32 : x->item == 2 ? v.i16 : v.i8);
    case 'u':
        return PyLong_FromUnsignedLongLong(x->item == 8 ? v.u64 : x->item == 4 ? v.u32 : x->item == 2 ? v.u16 : v.u8);
    case 'f':
        if (x->item != 4 && x->item != 8)
            return NULL;
        number = x->item == 4 ? (double)v.f32 : v.f64;
        return isnan(number) ? Py_NewRef(self->nan) : PyFloat_FromDouble(number);
    default:
        return NULL;
    }
}

/* Put the result at a place where element i lies. */
static inline void put_result(const Lookup *self, Value *y, Py_ssize_t i, Py_ssize_t place) {
    if (self->numbers == NULL)
        tilesmith_put(y->data, i, Py_NewRef(PyTuple_GetItem(self->results, place)));
    else
        memcpy((char *)y->data + i * self->item, self->numbers + place * self->item, (size_t)self->item);
}

static int lookup_run(PyObject *object, Value *x, Value *y, PyObject *empty) {
    (void)empty;
    Lookup *self = (Lookup *)object;
    int is_text = y->kind == 's';
    if (is_text ? self->numbers != NULL : self->numbers == NULL || y->kind == 'o' || y->item != self->item)
        return 1;
    if (x->kind == 'o' || x->count != y->count)
        return 1;
    if (self->dense && x->kind == 'i' && x->item == 8) {
        for (Py_ssize_t i = 0; i < x->count; i++) {
            int64_t key = ((int64_t *)x->data)[i];
            int is_there = key >= self->first && key < self->first + self->extent;
            put_result(self, y, i, is_there ? self->dense[key - self->first] : self->count - 1);
        }
        return 0;
    }
    for (Py_ssize_t i = 0; i < x->count; i++) {
        PyObject *key = key_of(self, x, i);
        if (key == NULL)
            return 1;
        PyObject *found = PyDict_GetItemWithError(self->table, key);
        Py_ssize_t place = found ? PyLong_AsSsize_t(found) : self->count - 1;
        Py_DECREF(key);
        if (place < 0 || place >= self->count || (found == NULL && PyErr_Occurred()))
            return 1;
        put_result(self, y, i, place);
    }
    return 0;
}

static PyObject *lookup_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    PyObject *table, *results, *nan;
    Py_ssize_t item;
    if (!PyArg_ParseTuple(args, "O!OnO", &PyDict_Type, &table, &results, &item, &nan))
        return NULL;
    int is_text = PyTuple_Check(results);
    if (!is_text && (!PyBytes_Check(results) || item < 1)) {
        PyErr_SetString(PyExc_TypeError, "results are a tuple of strings or bytes of elements");
        return NULL;
    }
    Lookup *self = tilesmith_native_new(type, lookup_run, 1, 1);
    if (self == NULL)
        return NULL;
    self->table = Py_NewRef(table);
    self->results = Py_NewRef(results);
    self->nan = Py_NewRef(nan);
    self->numbers = is_text ? NULL : PyBytes_AsString(results);
    self->item = item;
    self->count = is_text ? PyTuple_Size(results) : PyBytes_Size(results) / item;
    if (make_dense(self) == 0)
        return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static void lookup_dealloc(PyObject *object) {
    Lookup *self = (Lookup *)object;
    Py_XDECREF(self->table);
    Py_XDECREF(self->results);
    Py_XDECREF(self->nan);
    free(self->dense);
    tilesmith_native_free(object);
}

static PyType_Slot lookup_slots[] = {
    {Py_tp_new, lookup_new},
    {Py_tp_dealloc, lookup_dealloc},
    {Py_tp_doc, "Lookup(table, results, item, nan): strings or numbers as what they stand for.  `table` says the place in\n"
                "`results`, a tuple of strings or the bytes of elements that take `item` bytes each; the last is for keys\n"
                "that the table lacks.  `nan` is the key for NaN."},
    {0, NULL},
};

PyType_Spec tilesmith_lookup_spec = TILESMITH_TYPE("Lookup", Lookup, lookup_slots);

/* Strings at some places along an axis. */
typedef struct {
    Native native;
    Py_ssize_t axis; /* negative: counted from the end */
} Take;

static int take_run(PyObject *object, Value *inputs, Value *y, PyObject *empty) {
    (void)empty;
    const Value *x = &inputs[0], *places = &inputs[1];
    Py_ssize_t axis = ((Take *)object)->axis;
    axis += axis < 0 ? x->rank : 0;
    if (x->kind != 's' || y->kind != 's' || places->kind != 'i' || (places->item != 4 && places->item != 8) ||
        axis < 0 || axis >= x->rank)
        return 1;
    Py_ssize_t outer = 1, inner = 1, extent = x->shape[axis];
    for (Py_ssize_t i = 0; i < x->rank; i++)
        if (i != axis)
            *(i < axis ? &outer : &inner) *= x->shape[i];
    if (outer * places->count * inner != y->count)
        return 1;
    for (Py_ssize_t i = 0, at = 0; i < outer; i++)
        for (Py_ssize_t j = 0; j < places->count; j++) {
            int64_t place = places->item == 8 ? ((int64_t *)places->data)[j] : ((int32_t *)places->data)[j];
            place += place < 0 ? extent : 0;
            if (place < 0 || place >= extent)
                return 1;
            PyObject **from = (PyObject **)x->data + (i * extent + place) * inner;
            for (Py_ssize_t k = 0; k < inner; k++, at++) {
                Py_XINCREF(from[k]);
                tilesmith_put(y->data, at, from[k]);
            }
        }
    return 0;
}

static PyObject *take_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    Py_ssize_t axis;
    if (!PyArg_ParseTuple(args, "n", &axis))
        return NULL;
    Take *self = tilesmith_native_new(type, take_run, 2, 1);
    if (self)
        self->axis = axis;
    return (PyObject *)self;
}

static PyType_Slot take_slots[] = {
    {Py_tp_new, take_new},
    {Py_tp_dealloc, tilesmith_native_free},
    {Py_tp_doc, "Take(axis): strings at the places along an axis that the second input says."},
    {0, NULL},
};

PyType_Spec tilesmith_take_spec = TILESMITH_TYPE("Take", Take, take_slots);
