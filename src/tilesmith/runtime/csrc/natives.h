/* The functions of the host that are also there in C. */
#ifndef TILESMITH_NATIVES_H
#define TILESMITH_NATIVES_H

#include "host.h"

/* Whether an object begins with a Native. */
int tilesmith_is_native(PyObject *object);

/* Make the types and enter them in the module; 0 is success. */
int tilesmith_native_types(PyObject *module);

/* A new object of `type`, which begins with a Native; NULL with an exception. */
void *tilesmith_native_new(PyTypeObject *type, tilesmith_native_fn run, Py_ssize_t inputs, Py_ssize_t outputs);

/* Note `steps` of some nanoseconds.  Now and then other threads and signals get their turn; 0, or -1 with what a handler
 * of a signal raised. */
int tilesmith_native_rest(int64_t *done, int64_t steps);

/* Free an object of a type from the heap. */
void tilesmith_native_free(PyObject *object);

extern PyType_Spec tilesmith_lookup_spec, tilesmith_take_spec, tilesmith_equal_spec, tilesmith_join_spec,
    tilesmith_split_spec, tilesmith_normalize_spec, tilesmith_test_spec, tilesmith_grams_spec,
    tilesmith_maps_spec, tilesmith_row_spec, tilesmith_match_spec, tilesmith_reshape_spec, tilesmith_concat_spec;

#endif
