/* Whether arguments of a call are the objects that they were, and hold the memory that they held.
 *
 * The objects belong to another library, whose functions say where an object's memory is and how often it was
 * written.  They take the address of a handle, which lies in the object at a fixed offset.
 */
#include "python.h"

#include <stdlib.h>

typedef int32_t (*AddressOf)(void *handle, void **address); /* gives 0 for success */
typedef int64_t (*WritesOf)(const void *handle);

typedef struct {
    PyObject *object;
    Py_ssize_t number; /* of the argument */
    void *address;
    int64_t writes;
} Held;

typedef struct Unchanged {
    PyObject_HEAD
    AddressOf address_of;
    WritesOf writes_of;
    Py_ssize_t offset, count;
    Held *held;
} Unchanged;

static PyObject *unchanged_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    Py_ssize_t address_of, writes_of, offset;
    PyObject *numbers, *objects, *addresses, *writes;
    if (kwargs != NULL && PyDict_Size(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "Unchanged takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "nnnO!O!O!O!", &address_of, &writes_of, &offset, &PyTuple_Type, &numbers,
                          &PyTuple_Type, &objects, &PyTuple_Type, &addresses, &PyTuple_Type, &writes))
        return NULL;
    Py_ssize_t count = PyTuple_Size(numbers);
    if (PyTuple_Size(objects) != count || PyTuple_Size(addresses) != count || PyTuple_Size(writes) != count) {
        PyErr_SetString(PyExc_ValueError, "tuples of one length are expected");
        return NULL;
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Unchanged *self = (Unchanged *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->address_of = (AddressOf)(uintptr_t)address_of;
    self->writes_of = (WritesOf)(uintptr_t)writes_of;
    self->offset = offset;
    self->held = calloc(count ? (size_t)count : 1, sizeof(Held));
    if (self->held == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Held *held = &self->held[i];
        held->number = PyLong_AsSsize_t(PyTuple_GetItem(numbers, i));
        held->address = PyLong_AsVoidPtr(PyTuple_GetItem(addresses, i));
        held->writes = PyLong_AsLongLong(PyTuple_GetItem(writes, i));
        if (PyErr_Occurred()) {
            Py_DECREF(self);
            return NULL;
        }
        held->object = Py_NewRef(PyTuple_GetItem(objects, i));
        self->count = i + 1;
    }
    return (PyObject *)self;
}

static void unchanged_dealloc(PyObject *object) {
    Unchanged *self = (Unchanged *)object;
    PyTypeObject *type = Py_TYPE(object);
    for (Py_ssize_t i = 0; i < self->count; i++)
        Py_DECREF(self->held[i].object);
    free(self->held);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyObject *unchanged_in(PyObject *object, PyObject *args) {
    const Unchanged *self = (const Unchanged *)object;
    int is_list = PyList_Check(args);
    if (!is_list && !PyTuple_Check(args)) {
        PyErr_SetString(PyExc_TypeError, "a list or a tuple is expected");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < self->count; i++) {
        const Held *held = &self->held[i];
        PyObject *found = is_list ? PyList_GetItem(args, held->number) : PyTuple_GetItem(args, held->number);
        if (found == NULL)
            return NULL;
        if (found != held->object)
            Py_RETURN_FALSE;
        void *handle = (char *)found + self->offset, *address = NULL;
        if (self->address_of(handle, &address) != 0 || address != held->address ||
            self->writes_of(handle) != held->writes)
            Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

static PyMethodDef methods[] = {
    {"is_in", unchanged_in, METH_O, "is_in(arguments) -> whether the objects are these arguments, as they were."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, unchanged_new},
    {Py_tp_dealloc, unchanged_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "Unchanged(address_of, writes_of, offset, numbers, objects, addresses, writes)\n\n"
                "The objects that are arguments `numbers` of a call, with the addresses of their memory and how often\n"
                "it was written.  `address_of` and `writes_of` are addresses of C functions, which take the address of\n"
                "the handle that each object has at `offset` bytes."},
    {0, NULL},
};

PyType_Spec tilesmith_unchanged_spec = TILESMITH_TYPE("Unchanged", Unchanged, slots);
