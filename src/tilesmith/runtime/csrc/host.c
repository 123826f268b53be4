#include "host.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "natives.h"

#define MAX_VALUES 16 /* inputs and outputs of a Native */

PyTypeObject *tilesmith_host_type;

/* One call of a function. */
typedef struct {
    PyObject *native; /* NULL: there is only the Python function */
    Py_ssize_t inputs, outputs, arguments;
    Value *values;  /* of inputs and outputs; an extent of -1 is an argument of the call */
    double seconds; /* that all runs spent */
} Call;

typedef struct {
    PyObject_HEAD
    PyObject *empty, *function;
    Py_ssize_t count;
    Call *calls;
} Host;

/* Read what a value is, and add its extents that are arguments to `arguments`; 0 is success. */
static int parse_value(PyObject *item, Value *value, Py_ssize_t *arguments) {
    const char *kind;
    PyObject *shape;
    if (!PyArg_ParseTuple(item, "snO!", &kind, &value->item, &PyTuple_Type, &shape))
        return -1;
    Py_ssize_t rank = PyTuple_Size(shape);
    value->kind = kind[0];
    value->rank = (int)(rank > TILESMITH_RANK ? -1 : rank); /* -1: not for a Native */
    for (Py_ssize_t i = 0; i < rank; i++) {
        Py_ssize_t extent = PyLong_AsSsize_t(PyTuple_GetItem(shape, i));
        if (PyErr_Occurred())
            return -1;
        if (i < value->rank)
            value->shape[i] = extent;
        *arguments += extent < 0;
    }
    return 0;
}

static int parse_call(PyObject *item, Call *call) {
    PyObject *native, *values;
    if (!PyArg_ParseTuple(item, "OnO!", &native, &call->inputs, &PyTuple_Type, &values))
        return -1;
    Py_ssize_t count = PyTuple_Size(values);
    call->outputs = count - call->inputs;
    call->values = calloc((size_t)count + 1, sizeof(Value));
    if (call->values == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int fits = native != Py_None && count <= MAX_VALUES;
    call->arguments = count;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = PyTuple_GetItem(values, i);
        if (parse_value(value, &call->values[i], &call->arguments) < 0)
            return -1;
        fits = fits && call->values[i].rank >= 0;
    }
    if (fits && tilesmith_is_native(native)) {
        Native *given = (Native *)native;
        if ((given->inputs < 0 || given->inputs == call->inputs) && given->outputs == call->outputs)
            call->native = Py_NewRef(native);
    }
    return 0;
}

static PyObject *host_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    PyObject *calls, *empty, *function;
    if (!PyArg_ParseTuple(args, "O!OO", &PyTuple_Type, &calls, &empty, &function))
        return NULL;
    Host *self = (Host *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self == NULL)
        return NULL;
    self->empty = Py_NewRef(empty);
    self->function = Py_NewRef(function);
    self->count = PyTuple_Size(calls);
    self->calls = calloc((size_t)self->count + 1, sizeof(Call));
    if (self->calls == NULL) {
        self->count = 0;
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < self->count; i++)
        if (parse_call(PyTuple_GetItem(calls, i), &self->calls[i]) < 0) {
            Py_DECREF(self);
            return NULL;
        }
    return (PyObject *)self;
}

static void host_dealloc(PyObject *object) {
    Host *self = (Host *)object;
    PyTypeObject *type = Py_TYPE(object);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Py_XDECREF(self->calls[i].native);
        free(self->calls[i].values);
    }
    free(self->calls);
    Py_XDECREF(self->empty);
    Py_XDECREF(self->function);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *host_seconds(PyObject *object, PyObject *unused) {
    (void)unused;
    Host *self = (Host *)object;
    PyObject *made = PyList_New(self->count);
    for (Py_ssize_t i = 0; made && i < self->count; i++) {
        PyObject *value = PyFloat_FromDouble(self->calls[i].seconds);
        if (value == NULL || PyList_SetItem(made, i, value) < 0)
            Py_CLEAR(made);
    }
    return made;
}

void tilesmith_host_open(HostRun *run, PyObject *functions) {
    run->functions = functions;
    run->objects = run->few;
    run->count = 0;
    run->room = (Py_ssize_t)(sizeof run->few / sizeof run->few[0]);
    run->type = run->value = run->traceback = NULL;
}

void tilesmith_host_close(HostRun *run) {
    for (Py_ssize_t i = 0; i < run->count; i++)
        Py_DECREF(run->objects[i]);
    if (run->objects != run->few)
        free(run->objects);
}

int64_t tilesmith_host_add(HostRun *run, PyObject *object) {
    if (object == NULL)
        return -1;
    if (run->count == run->room) {
        size_t bytes = (size_t)run->room * sizeof *run->objects;
        PyObject **more = run->objects == run->few ? malloc(2 * bytes) : realloc(run->objects, 2 * bytes);
        if (more == NULL) {
            Py_DECREF(object);
            PyErr_NoMemory();
            return -1;
        }
        if (run->objects == run->few)
            memcpy(more, run->few, bytes);
        run->objects = more;
        run->room *= 2;
    }
    run->objects[run->count] = object;
    return run->count++;
}

PyObject *tilesmith_host_object(const HostRun *run, int64_t number) {
    if (number >= 0 && number < run->count)
        return run->objects[number];
    PyErr_SetString(PyExc_SystemError, "compiled code gives a number that no object of the run has");
    return NULL;
}

PyObject *tilesmith_objects(PyObject *empty, int rank, const Py_ssize_t *shape, Py_buffer *view) {
    PyObject *extents = PyTuple_New(rank), *made = NULL;
    for (int i = 0; extents && i < rank; i++) {
        PyObject *extent = PyLong_FromSsize_t(shape[i]);
        if (extent == NULL || PyTuple_SetItem(extents, i, extent) < 0)
            Py_CLEAR(extents);
    }
    if (extents)
        made = PyObject_CallFunctionObjArgs(empty, extents, (PyObject *)&PyBaseObject_Type, NULL);
    Py_XDECREF(extents);
    if (made && PyObject_GetBuffer(made, view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0)
        Py_CLEAR(made);
    return made;
}

int64_t tilesmith_host_add_strings(HostRun *run, const Py_buffer *view) {
    PyObject *const *given = view->buf;
    Py_ssize_t count = view->len / (Py_ssize_t)sizeof *given;
    for (Py_ssize_t i = 0; i < count; i++)
        if (given[i] == NULL || !PyUnicode_Check(given[i]))
            return -2;
    Py_buffer made;
    PyObject *copy = tilesmith_objects(((Host *)run->functions)->empty, view->ndim, view->shape, &made);
    if (copy == NULL)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++)
        tilesmith_put(made.buf, i, Py_NewRef(given[i]));
    PyBuffer_Release(&made);
    return tilesmith_host_add(run, copy);
}

/* Give `value`, a copy of that of the call, its extents and its memory; 0, or 1 for what is not for a Native. */
static int bind(const HostRun *run, Value *value, void *memory, void *const **extent, int is_input) {
    PyObject *empty = ((Host *)run->functions)->empty;
    value->count = 1;
    for (int i = 0; i < value->rank; i++) {
        if (value->shape[i] < 0)
            value->shape[i] = (Py_ssize_t)(intptr_t) * (*extent)++;
        value->count *= value->shape[i];
    }
    value->data = memory;
    if (value->kind != 's' && value->kind != 'o')
        return 0;
    value->data = NULL;
    if (is_input) {
        value->object = tilesmith_host_object(run, *(int64_t *)memory);
        if (value->object == NULL)
            return 1;
        if (value->kind == 'o')
            return 0;
        if (PyObject_GetBuffer(value->object, &value->view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0)
            return 1;
        const Py_buffer *view = &value->view;
        value->data = view->buf;
        return view->ndim != value->rank || view->format == NULL || strcmp(view->format, "O") != 0 ||
               memcmp(view->shape, value->shape, (size_t)view->ndim * sizeof *view->shape) != 0;
    }
    if (value->kind == 'o')
        return 0;
    value->object = tilesmith_objects(empty, value->rank, value->shape, &value->view);
    if (value->object == NULL)
        return 1;
    value->data = value->view.buf;
    return 0;
}

/* Run a Native; 0, 1 if the Python function is to run, or -1 with an exception that ends the run, such as an interrupt. */
static int run_native(HostRun *run, Call *call, void *const *arguments) {
    Value values[MAX_VALUES];
    Py_ssize_t total = call->inputs + call->outputs, bound = 0;
    void *const *extent = arguments + total;
    int other = 0;
    while (bound < total && !other) {
        values[bound] = call->values[bound];
        other = bind(run, &values[bound], arguments[bound], &extent, bound < call->inputs);
        bound++;
    }
    if (!other)
        other = ((Native *)call->native)->run(call->native, values, values + call->inputs, ((Host *)run->functions)->empty);
    for (Py_ssize_t i = 0; i < bound; i++) {
        if (values[i].view.obj)
            PyBuffer_Release(&values[i].view);
        if (i < call->inputs || values[i].object == NULL)
            continue;
        if (other) {
            Py_DECREF(values[i].object);
            continue;
        }
        int64_t number = tilesmith_host_add(run, values[i].object);
        other = number < 0; /* for lack of memory: Python may find some */
        *(int64_t *)arguments[i] = number;
    }
    if (other && PyErr_Occurred() && (other < 0 || !PyErr_ExceptionMatches(PyExc_Exception)))
        return -1;
    if (other)
        PyErr_Clear();
    return other != 0;
}

/* Run the Python function; 0, or -1 with an exception. */
static int run_python(HostRun *run, int64_t number, const Call *call, void *const *arguments, int64_t count) {
    PyObject *integers = PyTuple_New((Py_ssize_t)count), *objects = PyTuple_New(call->inputs), *found = NULL;
    for (Py_ssize_t i = 0; integers && i < (Py_ssize_t)count; i++) {
        PyObject *value = PyLong_FromLongLong((long long)(intptr_t)arguments[i]);
        if (value == NULL || PyTuple_SetItem(integers, i, value) < 0)
            Py_CLEAR(integers);
    }
    for (Py_ssize_t i = 0; objects && i < call->inputs; i++) {
        char kind = call->values[i].kind;
        PyObject *object = kind == 's' || kind == 'o' ? tilesmith_host_object(run, *(int64_t *)arguments[i]) : Py_None;
        if (object == NULL || PyTuple_SetItem(objects, i, Py_NewRef(object)) < 0)
            Py_CLEAR(objects);
    }
    if (integers && objects)
        found = PyObject_CallFunction(((Host *)run->functions)->function, "LOO", (long long)number, integers, objects);
    Py_XDECREF(integers);
    Py_XDECREF(objects);
    if (found && !PyList_Check(found)) {
        PyErr_SetString(PyExc_TypeError, "a function of the host gives a list of its objects");
        Py_CLEAR(found);
    }
    Py_ssize_t next = 0;
    for (Py_ssize_t i = 0; found && i < call->outputs; i++) {
        char kind = call->values[call->inputs + i].kind;
        if (kind != 's' && kind != 'o')
            continue;
        PyObject *object = PyList_GetItem(found, next++); /* borrowed */
        Py_XINCREF(object);
        int64_t place = tilesmith_host_add(run, object);
        if (place < 0)
            Py_CLEAR(found);
        *(int64_t *)arguments[call->inputs + i] = place;
    }
    int failed = found == NULL;
    Py_XDECREF(found);
    return -failed;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Raise an exception for a call that is not described: code and description are of different programs. */
static void refuse(const Host *host, int64_t number, int64_t count) {
    PyObject *found = PyObject_CallFunction(host->function, "LLO", (long long)number, (long long)count, Py_None);
    Py_XDECREF(found);
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_SystemError, "compiled code calls a function of the host that is not there");
}

int32_t tilesmith_host_call(void *data, int64_t function, void *const *arguments, int64_t count) {
    HostRun *run = data;
    PyEval_RestoreThread(run->thread);
    const Host *host = (Host *)run->functions;
    Call *call = function >= 0 && function < host->count ? &host->calls[function] : NULL;
    int failed;
    if (call == NULL || count != call->arguments) {
        refuse(host, function, count);
        failed = 1;
    } else {
        double start = seconds();
        int left = call->native == NULL ? 1 : run_native(run, call, arguments);
        failed = left < 0 || (left && run_python(run, function, call, arguments, count) < 0);
        call->seconds += seconds() - start;
    }
    if (failed)
        PyErr_Fetch(&run->type, &run->value, &run->traceback);
    run->thread = PyEval_SaveThread();
    return failed;
}

static PyMethodDef host_methods[] = {
    {"seconds", host_seconds, METH_NOARGS, "seconds() -> the seconds that all runs together spent in each call."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot host_slots[] = {
    {Py_tp_new, host_new},
    {Py_tp_dealloc, host_dealloc},
    {Py_tp_methods, host_methods},
    {Py_tp_doc,
     "Host(calls, empty, function): the host functions of a program.\n\n"
     "`calls` are tuples (native, inputs, values): what runs in place of the Python function, or None; the number of\n"
     "inputs; and for inputs and outputs (kind, item size, shape), where kind s are strings and o other objects, and\n"
     "an extent of -1 is an argument of the call.  empty(shape, object) makes an array.  function(number,\n"
     "arguments, objects) runs the Python function and gives a list of the objects that it made.  Of a call that is\n"
     "not described, with another number of arguments, it gets that number and None, and raises what is wrong."},
    {0, NULL},
};

PyType_Spec tilesmith_host_spec = TILESMITH_TYPE("Host", Host, host_slots);
