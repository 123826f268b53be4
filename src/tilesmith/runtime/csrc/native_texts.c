/* Strings that are compared, joined, split, tested, or written in another case. */
#include "natives.h"

#include <string.h>

/* Whether all elements are of the type str itself, whose methods are known. */
static int are_plain(const Value *x) {
    for (Py_ssize_t i = 0; i < x->count; i++) {
        PyObject *text = ((PyObject **)x->data)[i];
        if (text == NULL || !PyUnicode_CheckExact(text))
            return 0;
    }
    return 1;
}

/* Elements of an operand that is broadcast, in the order of the result. */
typedef struct {
    int rank;
    Py_ssize_t shape[TILESMITH_RANK], at[TILESMITH_RANK], step[2][TILESMITH_RANK], place[2];
} Pairs;

/* 0, or 1 if the operands do not broadcast to the result. */
static int pairs_start(Pairs *self, const Value *operands, const Value *y) {
    *self = (Pairs){.rank = y->rank};
    memcpy(self->shape, y->shape, (size_t)y->rank * sizeof *y->shape);
    for (int o = 0; o < 2; o++) {
        const Value *x = &operands[o];
        Py_ssize_t step = 1;
        if (x->rank > y->rank)
            return 1;
        for (int i = 1; i <= x->rank; i++) {
            Py_ssize_t extent = x->shape[x->rank - i];
            if (extent != 1 && extent != y->shape[y->rank - i])
                return 1;
            self->step[o][y->rank - i] = extent == 1 ? 0 : step;
            step *= extent;
        }
    }
    return 0;
}

static void pairs_next(Pairs *self) {
    for (int i = self->rank - 1; i >= 0; i--) {
        self->place[0] += self->step[0][i];
        self->place[1] += self->step[1][i];
        if (++self->at[i] < self->shape[i])
            return;
        self->place[0] -= self->step[0][i] * self->shape[i];
        self->place[1] -= self->step[1][i] * self->shape[i];
        self->at[i] = 0;
    }
}

static int pair_run(Value *inputs, Value *y, int is_equal) {
    Pairs pairs;
    if (inputs[0].kind != 's' || inputs[1].kind != 's' || !are_plain(&inputs[0]) || !are_plain(&inputs[1]) ||
        pairs_start(&pairs, inputs, y))
        return 1;
    for (Py_ssize_t i = 0; i < y->count; i++, pairs_next(&pairs)) {
        PyObject *a = ((PyObject **)inputs[0].data)[pairs.place[0]], *b = ((PyObject **)inputs[1].data)[pairs.place[1]];
        if (is_equal) {
            ((char *)y->data)[i] = a == b || PyUnicode_Compare(a, b) == 0;
            continue;
        }
        PyObject *joined = PyUnicode_Concat(a, b);
        if (joined == NULL)
            return 1;
        tilesmith_put(y->data, i, joined);
    }
    return 0;
}

static int equal_run(PyObject *self, Value *inputs, Value *y, PyObject *empty) {
    (void)self;
    (void)empty;
    return y->kind != 'b' || pair_run(inputs, y, 1);
}

static int join_run(PyObject *self, Value *inputs, Value *y, PyObject *empty) {
    (void)self;
    (void)empty;
    return y->kind != 's' || pair_run(inputs, y, 0);
}

static PyObject *equal_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    return PyArg_ParseTuple(args, "") ? tilesmith_native_new(type, equal_run, 2, 1) : NULL;
}

static PyObject *join_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    return PyArg_ParseTuple(args, "") ? tilesmith_native_new(type, join_run, 2, 1) : NULL;
}

static PyType_Slot equal_slots[] = {
    {Py_tp_new, equal_new},
    {Py_tp_dealloc, tilesmith_native_free},
    {Py_tp_doc, "Equal(): whether strings are equal, broadcast."},
    {0, NULL},
};

static PyType_Slot join_slots[] = {
    {Py_tp_new, join_new},
    {Py_tp_dealloc, tilesmith_native_free},
    {Py_tp_doc, "Join(): strings one behind the other, broadcast."},
    {0, NULL},
};

PyType_Spec tilesmith_equal_spec = TILESMITH_TYPE("Equal", Native, equal_slots);
PyType_Spec tilesmith_join_spec = TILESMITH_TYPE("Join", Native, join_slots);

/* Up to three objects that say what is done. */
typedef struct {
    Native native;
    PyObject *first, *second, *third;
    Py_ssize_t number;
} Text;

static PyObject *text_new(PyTypeObject *type, tilesmith_native_fn run, Py_ssize_t outputs, PyObject *first,
                          PyObject *second, PyObject *third, Py_ssize_t number) {
    Text *self = tilesmith_native_new(type, run, 1, outputs);
    if (self == NULL)
        return NULL;
    self->first = Py_XNewRef(first == Py_None ? NULL : first);
    self->second = Py_XNewRef(second == Py_None ? NULL : second);
    self->third = Py_XNewRef(third == Py_None ? NULL : third);
    self->number = number;
    return (PyObject *)self;
}

static void text_dealloc(PyObject *object) {
    Text *self = (Text *)object;
    Py_XDECREF(self->first);
    Py_XDECREF(self->second);
    Py_XDECREF(self->third);
    tilesmith_native_free(object);
}

/* The parts of all strings in one array: rows of `longest`, filled up with "". */
static PyObject *filled(PyObject *rows, const Value *x, Py_ssize_t longest, PyObject *empty) {
    Py_ssize_t shape[TILESMITH_RANK];
    memcpy(shape, x->shape, (size_t)x->rank * sizeof *shape);
    shape[x->rank] = longest;
    PyObject *nothing = PyUnicode_FromStringAndSize("", 0);
    Py_buffer view;
    PyObject *made = nothing ? tilesmith_objects(empty, x->rank + 1, shape, &view) : NULL;
    for (Py_ssize_t i = 0, at = 0; made && i < x->count; i++) {
        PyObject *parts = PyList_GetItem(rows, i);
        Py_ssize_t count = PyList_Size(parts);
        for (Py_ssize_t k = 0; k < longest; k++)
            tilesmith_put(view.buf, at++, Py_NewRef(k < count ? PyList_GetItem(parts, k) : nothing));
    }
    if (made)
        PyBuffer_Release(&view);
    Py_XDECREF(nothing);
    return made;
}

static int split_run(PyObject *object, Value *x, Value *outputs, PyObject *empty) {
    Text *self = (Text *)object;
    Value *parts = &outputs[0], *counts = &outputs[1];
    if (x->kind != 's' || parts->kind != 'o' || counts->kind != 'i' || counts->item != 8 || counts->count != x->count ||
        x->rank >= TILESMITH_RANK || !are_plain(x))
        return 1;
    PyObject *rows = PyList_New(x->count);
    Py_ssize_t longest = 0;
    for (Py_ssize_t i = 0; rows && i < x->count; i++) {
        PyObject *row = PyUnicode_Split(((PyObject **)x->data)[i], self->first, self->number);
        if (row == NULL || PyList_SetItem(rows, i, row) < 0) {
            Py_CLEAR(rows);
            break;
        }
        Py_ssize_t count = PyList_Size(row);
        longest = count > longest ? count : longest;
        ((int64_t *)counts->data)[i] = count;
    }
    parts->object = rows ? filled(rows, x, longest, empty) : NULL;
    Py_XDECREF(rows);
    return parts->object == NULL;
}

static PyObject *split_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    PyObject *separator;
    Py_ssize_t most;
    return PyArg_ParseTuple(args, "On", &separator, &most) ? text_new(type, split_run, 2, separator, NULL, NULL, most)
                                                           : NULL;
}

static PyType_Slot split_slots[] = {
    {Py_tp_new, split_new},
    {Py_tp_dealloc, text_dealloc},
    {Py_tp_doc, "Split(separator, most): the parts of strings, filled up with \"\", and their numbers; as str.split."},
    {0, NULL},
};

PyType_Spec tilesmith_split_spec = TILESMITH_TYPE("Split", Text, split_slots);

/* `function` of a string, or the string itself; a new reference. */
static PyObject *changed(PyObject *function, PyObject *text) {
    return function ? PyObject_CallFunctionObjArgs(function, text, NULL) : Py_NewRef(text);
}

/* Whether a string is left out: its name, the string in the case in which strings are compared, is among those
 * of `self->third`; -1 with an exception. */
static int is_banned(const Text *self, PyObject *text, PyObject *after) {
    if (self->third == NULL)
        return 0;
    PyObject *name = self->first == self->second ? Py_NewRef(after) : changed(self->second, text);
    int found = name ? PySet_Contains(self->third, name) : -1;
    Py_XDECREF(name);
    return found;
}

static int normalize_run(PyObject *object, Value *x, Value *y, PyObject *empty) {
    Text *self = (Text *)object;
    if (x->kind != 's' || x->rank < 1 || x->rank > 2 || (x->rank == 2 && x->shape[0] != 1) || !x->count || !are_plain(x))
        return 1;
    PyObject *left = PyList_New(0);
    for (Py_ssize_t i = 0; left && i < x->count; i++) {
        PyObject *text = ((PyObject **)x->data)[i], *after = changed(self->first, text);
        int is_out = after ? is_banned(self, text, after) : -1;
        if (is_out < 0 || (!is_out && PyList_Append(left, after) < 0))
            Py_CLEAR(left);
        Py_XDECREF(after);
    }
    if (left && PyList_Size(left) == 0) {
        PyObject *nothing = PyUnicode_FromStringAndSize("", 0);
        if (nothing == NULL || PyList_Append(left, nothing) < 0)
            Py_CLEAR(left);
        Py_XDECREF(nothing);
    }
    if (left == NULL)
        return 1;
    Py_ssize_t count = PyList_Size(left), shape[2] = {x->rank == 2 ? 1 : count, count};
    Py_buffer view = {.buf = y->data};
    int other = y->kind == 's' ? count != y->count : y->kind != 'o';
    if (!other && y->kind == 'o') {
        y->object = tilesmith_objects(empty, x->rank, shape, &view);
        other = y->object == NULL;
    }
    for (Py_ssize_t i = 0; !other && i < count; i++)
        tilesmith_put(view.buf, i, Py_NewRef(PyList_GetItem(left, i)));
    if (y->kind == 'o' && !other)
        PyBuffer_Release(&view);
    Py_DECREF(left);
    return other;
}

static PyObject *normalize_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    PyObject *change, *compared, *banned;
    return PyArg_ParseTuple(args, "OOO", &change, &compared, &banned)
               ? text_new(type, normalize_run, 1, change, compared, banned, 0)
               : NULL;
}

static PyType_Slot normalize_slots[] = {
    {Py_tp_new, normalize_new},
    {Py_tp_dealloc, text_dealloc},
    {Py_tp_doc, "Normalize(change, compared, banned): strings changed by a function, without those that another function\n"
                "brings into a set; None stands for no function, or for no set."},
    {0, NULL},
};

PyType_Spec tilesmith_normalize_spec = TILESMITH_TYPE("Normalize", Text, normalize_slots);

static int test_run(PyObject *object, Value *x, Value *y, PyObject *empty) {
    (void)empty;
    if (x->kind != 's' || y->kind != 'b' || x->count != y->count)
        return 1;
    for (Py_ssize_t i = 0; i < x->count; i++) {
        PyObject *text = ((PyObject **)x->data)[i];
        if (text == NULL || !PyUnicode_Check(text))
            return 1;
        Py_INCREF(text);
        PyObject *found = PyObject_CallFunctionObjArgs(((Text *)object)->first, text, NULL);
        Py_DECREF(text);
        if (found == NULL)
            return -1; /* the function takes every string: a handler of a signal raised this */
        ((char *)y->data)[i] = found != Py_None && found != Py_False;
        Py_DECREF(found);
    }
    return 0;
}

static PyObject *test_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    PyObject *function;
    return PyArg_ParseTuple(args, "O", &function) ? text_new(type, test_run, 1, function, NULL, NULL, 0) : NULL;
}

static PyType_Slot test_slots[] = {
    {Py_tp_new, test_new},
    {Py_tp_dealloc, text_dealloc},
    {Py_tp_doc, "Test(function): for which strings a function gives something else than None and False."},
    {0, NULL},
};

PyType_Spec tilesmith_test_spec = TILESMITH_TYPE("Test", Text, test_slots);
