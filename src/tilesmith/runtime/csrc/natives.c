#include "natives.h"

static PyType_Spec *const specs[] = {
    &tilesmith_lookup_spec, &tilesmith_take_spec,  &tilesmith_equal_spec, &tilesmith_join_spec, &tilesmith_split_spec,
    &tilesmith_normalize_spec, &tilesmith_test_spec, &tilesmith_grams_spec, &tilesmith_maps_spec, &tilesmith_row_spec,
    &tilesmith_match_spec, &tilesmith_reshape_spec, &tilesmith_concat_spec,
};
#define STEPS (1 << 20) /* about 5 milliseconds */
#define COUNT ((int)(sizeof specs / sizeof specs[0]))

static PyTypeObject *types[COUNT];

int tilesmith_is_native(PyObject *object) {
    for (int i = 0; i < COUNT; i++)
        if (Py_IS_TYPE(object, types[i]))
            return 1;
    return 0;
}

int tilesmith_native_types(PyObject *module) {
    for (int i = 0; i < COUNT; i++) {
        types[i] = (PyTypeObject *)PyType_FromSpec(specs[i]);
        if (types[i] == NULL || PyModule_AddType(module, types[i]) < 0)
            return -1;
    }
    return 0;
}

void *tilesmith_native_new(PyTypeObject *type, tilesmith_native_fn run, Py_ssize_t inputs, Py_ssize_t outputs) {
    Native *self = (Native *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self) {
        self->run = run;
        self->inputs = inputs;
        self->outputs = outputs;
    }
    return self;
}

int tilesmith_native_rest(int64_t *done, int64_t steps) {
    *done += steps;
    if (*done < STEPS)
        return 0;
    *done = 0;
    Py_BEGIN_ALLOW_THREADS
    Py_END_ALLOW_THREADS
    return PyErr_CheckSignals();
}

void tilesmith_native_free(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}
