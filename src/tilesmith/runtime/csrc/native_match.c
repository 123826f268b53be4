/* Strings that are matched as a whole, by a table of states. */
#include "natives.h"

#include <stdlib.h>
#include <string.h>

#define LETTERS 128 /* ASCII */

typedef struct {
    Native native;
    PyObject *function; /* of strings with other letters */
    PyObject *table;    /* bytes: for each state and letter the next state; states from `count` on are none */
    PyObject *accepts;  /* bytes: for each state whether a text that ends there matches */
    Py_ssize_t count;
} Match;

/* Whether a text matches; -1: it has other letters. */
static int matches(const Match *self, PyObject *text) {
    const unsigned char *table = (const unsigned char *)PyBytes_AsString(self->table);
    Py_ssize_t length = PyUnicode_GetLength(text);
    unsigned char state = 0;
    for (Py_ssize_t i = 0; i < length; i++) {
        Py_UCS4 letter = PyUnicode_ReadChar(text, i);
        if (letter >= LETTERS)
            return -1;
        if (state < self->count)
            state = table[state * LETTERS + letter];
    }
    return state < self->count && PyBytes_AsString(self->accepts)[state];
}

static int match_run(PyObject *object, Value *x, Value *y, PyObject *empty) {
    (void)empty;
    const Match *self = (Match *)object;
    if (x->kind != 's' || y->kind != 'b' || x->count != y->count)
        return 1;
    int64_t done = 0;
    for (Py_ssize_t i = 0; i < x->count; i++) {
        PyObject *text = ((PyObject **)x->data)[i];
        if (text == NULL || !PyUnicode_Check(text))
            return 1;
        if (tilesmith_native_rest(&done, PyUnicode_GetLength(text)))
            return -1;
        int found = matches(self, text);
        if (found < 0) {
            Py_INCREF(text);
            PyObject *result = PyObject_CallFunctionObjArgs(self->function, text, NULL);
            Py_DECREF(text);
            if (result == NULL)
                return -1; /* the pattern's function takes every string: a handler of a signal raised this */
            found = result != Py_None && result != Py_False;
            Py_DECREF(result);
        }
        ((char *)y->data)[i] = (char)found;
    }
    return 0;
}

static PyObject *match_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    PyObject *function, *table, *accepts;
    if (!PyArg_ParseTuple(args, "OO!O!", &function, &PyBytes_Type, &table, &PyBytes_Type, &accepts))
        return NULL;
    Py_ssize_t count = PyBytes_Size(accepts);
    if (count < 1 || count > 255 || PyBytes_Size(table) != count * LETTERS) {
        PyErr_SetString(PyExc_ValueError, "a table has 1 to 255 states, with a place for each letter");
        return NULL;
    }
    Match *self = tilesmith_native_new(type, match_run, 1, 1);
    if (self == NULL)
        return NULL;
    self->function = Py_NewRef(function);
    self->table = Py_NewRef(table);
    self->accepts = Py_NewRef(accepts);
    self->count = count;
    return (PyObject *)self;
}

static void match_dealloc(PyObject *object) {
    Match *self = (Match *)object;
    Py_XDECREF(self->function);
    Py_XDECREF(self->table);
    Py_XDECREF(self->accepts);
    tilesmith_native_free(object);
}

static PyType_Slot match_slots[] = {
    {Py_tp_new, match_new},
    {Py_tp_dealloc, match_dealloc},
    {Py_tp_doc, "Match(function, table, accepts): which strings an automaton accepts.  `table` has a byte for each state and\n"
                "ASCII letter, the next state, and `accepts` one for each state; the first state is 0.  `function` is asked\n"
                "for strings with other letters."},
    {0, NULL},
};

PyType_Spec tilesmith_match_spec = TILESMITH_TYPE("Match", Match, match_slots);
