/* How often sequences of words stand in rows of words. */
#include "natives.h"

#include <stdlib.h>
#include <string.h>

/* A step of the tree of sequences (see `host_functions/vectorizers.py`): from a node, with a word, to another node. */
typedef struct {
    int64_t key; /* node * (words + 1) + the word's number; -1: no step */
    int64_t node;
} Step;

typedef struct {
    Native native;
    PyObject *numbers; /* dict: of words, from 1; others are 0 */
    Step *steps;       /* a hash table: a step stands at its place, or in the next free one behind */
    int64_t *first;    /* nodes by the number of the first word; -1: there is none */
    int64_t *place;    /* in the result, by node; -1: no sequence ends there */
    float *scale;      /* of each place; NULL: counts are not scaled */
    int64_t width, nodes, size, shortest, longest, skips;
    size_t mask;
    int is_capped; /* whether a sequence counts once */
} Grams;

static size_t place_of(const Grams *self, int64_t key) {
    uint64_t mixed = (uint64_t)key * 0x9E3779B97F4A7C15u;
    return (size_t)(mixed ^ mixed >> 29) & self->mask;
}

static int64_t after(const Grams *self, int64_t node, int64_t word) {
    int64_t key = node * self->width + word;
    for (size_t i = place_of(self, key);; i = (i + 1) & self->mask) {
        if (self->steps[i].key == key)
            return self->steps[i].node;
        if (self->steps[i].key < 0)
            return -1;
    }
}

/* Count the sequences of a row; 0, or -1 with an exception. */
static int count_row(const Grams *self, const int64_t *words, int64_t count, float *counts, int64_t *done) {
    for (int64_t distance = 1; distance - 1 <= self->skips && (distance == 1 || distance < count); distance++) {
        if (tilesmith_native_rest(done, count))
            return -1;
        int64_t least = distance > 1 && self->shortest < 2 ? 2 : self->shortest;
        for (int64_t begin = 0; begin < count; begin++) {
            int64_t node = self->longest > 0 ? self->first[words[begin]] : -1;
            for (int64_t n = 1, at = begin; node >= 0; n++) {
                int64_t place = self->place[node];
                if (n >= least && place >= 0)
                    counts[place] += 1;
                if (n == self->longest || distance >= count - at)
                    break;
                at += distance;
                node = words[at] ? after(self, node, words[at]) : -1;
            }
        }
    }
    if (self->is_capped)
        for (int64_t i = 0; i < self->size; i++)
            counts[i] = counts[i] > 1 ? 1 : counts[i];
    if (self->scale)
        for (int64_t i = 0; i < self->size; i++)
            counts[i] *= self->scale[i];
    return 0;
}

/* The numbers of words; 0, or 1 for what can't be looked up. */
static int number(const Grams *self, PyObject *const *words, int64_t count, int64_t *numbers) {
    for (int64_t i = 0; i < count; i++) {
        if (words[i] == NULL)
            return 1;
        PyObject *word = Py_NewRef(words[i]), *found = PyDict_GetItemWithError(self->numbers, word);
        numbers[i] = found ? PyLong_AsLongLong(found) : 0;
        Py_DECREF(word);
        if (found == NULL && PyErr_Occurred())
            return 1;
        if (numbers[i] < 0 || numbers[i] >= self->width)
            return 1;
    }
    return 0;
}

static int grams_run(PyObject *object, Value *x, Value *y, PyObject *empty) {
    (void)empty;
    Grams *self = (Grams *)object;
    if (x->kind != 's' || x->rank < 1 || x->rank > 2 || y->kind != 'f' || y->item != 4)
        return 1;
    int64_t rows = x->rank == 2 ? x->shape[0] : 1, count = x->shape[x->rank - 1];
    if (y->count != rows * self->size)
        return 1;
    int64_t *numbers = malloc(((size_t)count + 1) * sizeof *numbers);
    int64_t done = 0;
    int other = numbers == NULL;
    memset(y->data, 0, (size_t)y->count * sizeof(float));
    for (int64_t i = 0; i < rows && !other; i++) {
        other = number(self, (PyObject **)x->data + i * count, count, numbers);
        if (!other)
            other = count_row(self, numbers, count, (float *)y->data + i * self->size, &done);
    }
    free(numbers);
    return other;
}

/* Memory of its own with `count` numbers in bytes; NULL with an exception. */
static void *copied(PyObject *bytes, int64_t count, size_t item) {
    void *made = NULL;
    if (PyBytes_Size(bytes) == count * (int64_t)item && (made = malloc((size_t)count * item + 1)) != NULL)
        memcpy(made, PyBytes_AsString(bytes), (size_t)count * item);
    else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "tables have other sizes, or there is no memory for them");
    return made;
}

/* Fill the tables of steps; 0 is success. */
static int make_steps(Grams *self, const int64_t *keys, const int64_t *nodes, int64_t count) {
    size_t room = 2;
    while (room < 2 * (size_t)count + 2)
        room *= 2;
    self->mask = room - 1;
    self->steps = malloc(room * sizeof *self->steps);
    self->first = malloc((size_t)self->width * sizeof *self->first);
    if (self->steps == NULL || self->first == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < room; i++)
        self->steps[i] = (Step){-1, -1};
    for (int64_t i = 0; i < self->width; i++)
        self->first[i] = -1;
    for (int64_t i = 0; i < count; i++) {
        if (keys[i] < 0 || keys[i] >= self->nodes * self->width || nodes[i] < 0 || nodes[i] >= self->nodes) {
            PyErr_SetString(PyExc_ValueError, "a step leads from or to a node that is not there");
            return -1;
        }
        size_t at = place_of(self, keys[i]);
        while (self->steps[at].key >= 0)
            at = (at + 1) & self->mask;
        self->steps[at] = (Step){keys[i], nodes[i]};
        if (keys[i] < self->width)
            self->first[keys[i]] = nodes[i];
    }
    return 0;
}

static PyObject *grams_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    PyObject *numbers, *keys, *nodes, *place, *scale;
    long long size, shortest, longest, skips;
    int is_capped;
    if (!PyArg_ParseTuple(args, "O!O!O!O!OLLLLp", &PyDict_Type, &numbers, &PyBytes_Type, &keys, &PyBytes_Type, &nodes,
                          &PyBytes_Type, &place, &scale, &size, &shortest, &longest, &skips, &is_capped))
        return NULL;
    Grams *self = tilesmith_native_new(type, grams_run, 1, 1);
    if (self == NULL)
        return NULL;
    int64_t count = PyBytes_Size(keys) / 8;
    self->numbers = Py_NewRef(numbers);
    self->width = PyDict_Size(numbers) + 1;
    self->nodes = PyBytes_Size(place) / 8;
    self->size = size;
    self->shortest = shortest;
    self->longest = longest;
    self->skips = skips;
    self->is_capped = is_capped;
    int64_t *from = copied(keys, count, 8), *to = from ? copied(nodes, count, 8) : NULL;
    int made = to && make_steps(self, from, to, count) == 0 && (self->place = copied(place, self->nodes, 8)) != NULL;
    free(from);
    free(to);
    for (int64_t i = 0; made && i < self->nodes; i++)
        if (self->place[i] >= size) {
            PyErr_SetString(PyExc_ValueError, "a place is outside of the result");
            made = 0;
        }
    if (made && scale != Py_None) {
        made = PyBytes_Check(scale) && (self->scale = copied(scale, size, 4)) != NULL;
        if (!made && !PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "the scale is bytes or None");
    }
    if (made)
        return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static void grams_dealloc(PyObject *object) {
    Grams *self = (Grams *)object;
    Py_XDECREF(self->numbers);
    free(self->steps);
    free(self->first);
    free(self->place);
    free(self->scale);
    tilesmith_native_free(object);
}

static PyType_Slot grams_slots[] = {
    {Py_tp_new, grams_new},
    {Py_tp_dealloc, grams_dealloc},
    {Py_tp_doc, "Grams(numbers, keys, nodes, place, scale, size, shortest, longest, skips, is_capped): how often sequences\n"
                "of words stand in each row, f32.  `numbers` is a dict of the words from 1; `keys`, `nodes` and `place` are\n"
                "bytes of i64, `scale` bytes of f32 or None."},
    {0, NULL},
};

PyType_Spec tilesmith_grams_spec = TILESMITH_TYPE("Grams", Grams, grams_slots);
