/* The Python extension `tilesmith.runtime._native` (stable ABI, Python 3.11 and later).
 *
 * `Runner` is the fast path of a call: it checks the arrays, takes an arena from its free list, releases the GIL and
 * runs the entry point.  Everything slow (conversion, error messages) is Python's business.
 *
 * Arenas that no run has used for a while are given back to the system by the next call of any runner.
 */
#include "python.h"

#include <stdlib.h>
#include <string.h>

#include "accel.h"
#include "arenas.h"
#include "growth.h"
#include "host.h"
#include "natives.h"
#include "pages.h"
#include "pool.h"
#include "provider.h"

#define MAX_ARRAYS 64  /* beyond this the arrays' descriptions go to the heap */

/* What an argument array must look like. */
typedef struct {
    char kind; /* b, i, u or f, as in NumPy; s: strings; o: another object of the host, in an array without extents */
    int rank;
    Py_ssize_t item;
    Py_ssize_t shape[TILESMITH_RANK]; /* -1: any extent */
} Spec;

typedef struct Runner {
    PyObject_HEAD
    tilesmith_entry entry;
    struct tilesmith_context context; /* what all runs have in common */
    Arenas memory;
    Py_ssize_t inputs, arrays;        /* number of inputs; of inputs and outputs */
    Spec *specs;
    Py_ssize_t *homes; /* of each output: the input that is the same array, or -1 */
    int has_objects; /* whether an array holds objects of the host */
    int64_t first;   /* slot that is no output */
    int64_t limit;   /* bytes of memory that a run may take */
    PyObject *owner; /* keeps code and constants alive */
} Runner;

char tilesmith_kind(const char *format) {
    if (format == NULL)
        return 'u'; /* plain bytes */
    if (format[0] == '@' || format[0] == '=' || format[0] == '<')
        format++;
    if (format[0] == 0 || format[1] != 0)
        return 0;
    if (strchr("efd", format[0]))
        return 'f';
    if (strchr("bhilq", format[0]))
        return 'i';
    if (strchr("BHILQ", format[0]))
        return 'u';
    return format[0] == '?' ? 'b' : 0;
}

static PyTypeObject *array_type; /* numpy.ndarray, whose buffer is all that it says */

int tilesmith_is_bare(PyObject *object) {
    static const char *const names[] = {"mask", "unit", "units"}; /* see support/arrays.py */
    PyTypeObject *type = Py_TYPE(object);
    for (size_t i = 0; type != array_type && i < sizeof names / sizeof *names; i++)
        if (PyObject_HasAttrString((PyObject *)type, names[i]))
            return 0;
    return 1;
}

static PyTypeObject *imported_array_type(void) {
    PyObject *numpy = PyImport_ImportModule("numpy");
    PyObject *type = numpy ? PyObject_GetAttrString(numpy, "ndarray") : NULL;
    Py_XDECREF(numpy);
    return (PyTypeObject *)type;
}

static int is_host(const Spec *spec) { return spec->kind == 's' || spec->kind == 'o'; }

static int fits(const Spec *spec, const Py_buffer *view) {
    int is_kind = is_host(spec) ? view->format && strcmp(view->format, "O") == 0
                                : tilesmith_kind(view->format) == spec->kind;
    if (view->ndim != spec->rank || view->itemsize != spec->item || !is_kind)
        return 0;
    for (int i = 0; i < spec->rank; i++)
        if (view->shape[i] != spec->shape[i] && spec->shape[i] >= 0)
            return 0;
    return ((uintptr_t)view->buf % (uintptr_t)spec->item) == 0;
}

static int parse_spec(PyObject *item, Spec *spec) {
    const char *kind;
    PyObject *shape;
    if (!PyArg_ParseTuple(item, "snO", &kind, &spec->item, &shape))
        return -1;
    spec->kind = kind[0];
    Py_ssize_t rank = PyTuple_Size(shape);
    if (rank < 0)
        return -1;
    if (rank > TILESMITH_RANK || spec->item <= 0) {
        PyErr_Format(PyExc_ValueError, "an array has at most %d dimensions and elements of at least one byte", TILESMITH_RANK);
        return -1;
    }
    spec->rank = (int)rank;
    for (Py_ssize_t i = 0; i < rank; i++) {
        spec->shape[i] = PyLong_AsSsize_t(PyTuple_GetItem(shape, i));
        if (PyErr_Occurred())
            return -1;
    }
    return 0;
}

static PyObject *runner_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    unsigned long long entry, constants;
    Py_ssize_t arena, scratch, threads, slots = 0, first = 0, limit = PY_SSIZE_T_MAX;
    PyObject *inputs, *outputs, *owner, *homes = NULL;
    if (!PyArg_ParseTuple(args, "KKnnnO!O!O|nnnO!", &entry, &constants, &arena, &scratch, &threads, &PyTuple_Type,
                          &inputs, &PyTuple_Type, &outputs, &owner, &slots, &first, &limit, &PyTuple_Type, &homes))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Runner *self = (Runner *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    int positive = threads >= 1 && slots >= 0 && first >= 0 && first <= PyTuple_Size(outputs);
    if (positive)
        tilesmith_arenas_open(&self->memory, (size_t)threads, (size_t)slots);
    if (!positive || scratch % TILESMITH_ALIGNMENT || !tilesmith_arenas_fit(&self->memory, arena, scratch)) {
        Py_DECREF(self);
        PyErr_Format(PyExc_ValueError, "sizes are not negative, scratch a multiple of %d, threads at least 1",
                     TILESMITH_ALIGNMENT);
        return NULL;
    }
    self->entry = (tilesmith_entry)(uintptr_t)entry;
    self->context = (struct tilesmith_context){
        .abi = TILESMITH_ABI,
        .size = sizeof self->context,
        .constants = (const void *)(uintptr_t)constants,
        .scratch_bytes = scratch,
        .threads = threads,
        .parallel_for = tilesmith_pool_for,
        .arena_bytes = arena,
        .grow = tilesmith_grow,
    };
    self->first = first;
    self->limit = limit;
    self->inputs = PyTuple_Size(inputs);
    self->arrays = self->inputs + PyTuple_Size(outputs);
    Py_INCREF(owner);
    self->owner = owner;
    self->specs = calloc((size_t)self->arrays + 1, sizeof(Spec));
    self->homes = malloc(((size_t)self->arrays + 1) * sizeof *self->homes);
    if (self->specs == NULL || self->homes == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(outputs); i++)
        self->homes[i] = homes && i < PyTuple_Size(homes) ? PyLong_AsSsize_t(PyTuple_GetItem(homes, i)) : -1;
    for (Py_ssize_t i = 0; i < self->arrays; i++) {
        PyObject *item = i < self->inputs ? PyTuple_GetItem(inputs, i) : PyTuple_GetItem(outputs, i - self->inputs);
        if (parse_spec(item, &self->specs[i]) < 0) {
            Py_DECREF(self);
            return NULL;
        }
        self->has_objects |= is_host(&self->specs[i]);
    }
    return (PyObject *)self;
}

static void runner_dealloc(PyObject *object) {
    Runner *self = (Runner *)object;
    PyTypeObject *type = Py_TYPE(object);
    tilesmith_arenas_close(&self->memory);
    free(self->specs);
    free(self->homes);
    Py_XDECREF(self->owner);
    freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free_object(object);
    Py_DECREF(type);
}

/* The arrays of one run. */
typedef struct {
    Py_buffer *views; /* NULL: the caller answers for addresses */
    void **pointers;
    int64_t *numbers; /* of the host's objects, where their pointers point */
} Memory;

/* Put the object of the host, in a view of an array, among those of the run; 0: it does not fit, -1: an exception. */
static int take_object(const Spec *spec, const Py_buffer *view, HostRun *host, int64_t *number) {
    if (spec->kind == 's') {
        *number = tilesmith_host_add_strings(host, view);
        return *number >= 0 ? 1 : *number == -2 ? 0 : -1;
    }
    PyObject *object = *(PyObject **)view->buf;
    *number = object ? tilesmith_host_add(host, Py_NewRef(object)) : 0;
    return object ? (*number >= 0 ? 1 : -1) : 0;
}

/* Take views of arrays `first ..`; returns how many were taken (fewer than `count`: that one does not fit), or -1 with
 * an exception.  A Block in the place of an output has none: it grows during the run.  Nor has an object. */
static Py_ssize_t take_views(Runner *self, PyObject *arrays, Py_ssize_t first, Py_ssize_t count, Memory *memory,
                             HostRun *host) {
    int is_output = first >= self->inputs, flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (is_output ? PyBUF_WRITABLE : 0);
    for (Py_ssize_t i = 0; i < count; i++) {
        const Spec *spec = &self->specs[first + i];
        Py_buffer *view = &memory->views[first + i];
        void **pointer = &memory->pointers[first + i];
        PyObject *array = PyTuple_GetItem(arrays, i);
        *view = (Py_buffer){.buf = NULL};
        if (is_host(spec)) {
            *pointer = &memory->numbers[first + i];
            if (is_output)
                continue;
        } else if (is_output && Py_IS_TYPE(array, tilesmith_block_type)) {
            *pointer = array;
            continue;
        }
        if (!tilesmith_is_bare(array) || PyObject_GetBuffer(array, view, flags) < 0) {
            PyErr_Clear();
            return i;
        }
        int taken = fits(spec, view);
        if (taken && is_host(spec))
            taken = take_object(spec, view, host, &memory->numbers[first + i]);
        if (taken <= 0) {
            PyBuffer_Release(view);
            return taken ? -1 : i;
        }
        if (!is_host(spec))
            *pointer = view->buf;
    }
    return count;
}

/* Take the addresses of arrays `first ..`, for which the caller answers; 0 is success. */
static int take_addresses(PyObject *addresses, Py_ssize_t first, Py_ssize_t count, void **pointers) {
    for (Py_ssize_t i = 0; i < count; i++)
        pointers[first + i] = PyLong_AsVoidPtr(PyTuple_GetItem(addresses, i));
    return PyErr_Occurred() ? -1 : 0;
}

/* The first output that shares memory with an array before it, or is another array than the input that it lives in;
 * `self->arrays` if there is none. */
static Py_ssize_t overlapping_output(const Runner *self, const Py_buffer *views) {
    Py_ssize_t i = self->inputs;
    for (; i < self->arrays; i++)
        for (Py_ssize_t j = 0; j < i; j++) {
            int is_home = self->homes[i - self->inputs] == j;
            if (is_home ? views[i].buf != views[j].buf : tilesmith_overlap(&views[i], &views[j]))
                return i;
        }
    return i;
}

/* The sizes of one run, from the tuple (arena_bytes, scratch_bytes, *extents); 0 is success. */
static int take_sizes(PyObject *sizes, struct tilesmith_context *context, int64_t *extents) {
    Py_ssize_t count = PyTuple_Check(sizes) ? PyTuple_Size(sizes) : -1;
    if (count < 2 || count > 2 + MAX_SYMBOLS) {
        PyErr_Format(PyExc_ValueError, "sizes are the bytes of arena and scratch and at most %d extents", MAX_SYMBOLS);
        return -1;
    }
    context->arena_bytes = PyLong_AsLongLong(PyTuple_GetItem(sizes, 0));
    context->scratch_bytes = PyLong_AsLongLong(PyTuple_GetItem(sizes, 1));
    for (Py_ssize_t i = 2; i < count; i++)
        extents[i - 2] = PyLong_AsLongLong(PyTuple_GetItem(sizes, i));
    context->extents = extents;
    return PyErr_Occurred() ? -1 : 0;
}

PyObject *tilesmith_failure_of(int32_t code, const struct tilesmith_failure *failure) {
    int count = failure->count < TILESMITH_VALUES ? failure->count : TILESMITH_VALUES;
    PyObject *values = PyTuple_New(count > 0 ? count : 0);
    for (Py_ssize_t i = 0; values && i < PyTuple_Size(values); i++) {
        PyObject *value = PyLong_FromLongLong(failure->values[i]);
        if (value == NULL || PyTuple_SetItem(values, i, value) < 0) {
            Py_DECREF(values);
            return NULL;
        }
    }
    return values ? Py_BuildValue("iiiN", code, failure->call, failure->assertion, values) : NULL;
}

/* Run the entry point, without the GIL, on memory that was checked.  Returns a code, or NO_ARENA: there is no memory. */
static int32_t run_bare(Runner *self, struct tilesmith_context *context, void **pointers) {
    Arena *arena = tilesmith_arenas_take(&self->memory, context->arena_bytes, context->scratch_bytes);
    if (arena == NULL)
        return NO_ARENA;
    Growth growth = {
        .outputs = pointers + self->inputs,
        .count = self->first,
        .arena = arena,
        .others = (int64_t)self->memory.slots,
        .left = self->limit - tilesmith_arenas_bytes(&self->memory, arena),
    };
    context->inputs = pointers;
    context->outputs = pointers + self->inputs;
    context->arena = arena + 1;
    context->scratch = arena->scratch;
    context->memory = &growth;
    tilesmith_pool_enter();
    int32_t code = self->entry(context);
    tilesmith_pool_leave();
    if (code == TILESMITH_GROWTH) /* what this run took would be missing in the next one */
        tilesmith_slots_release(&self->memory, arena);
    tilesmith_arenas_keep(&self->memory, arena);
    return code;
}

int32_t tilesmith_runner_run(PyObject *runner, void **pointers, int64_t arena_bytes, int64_t scratch_bytes,
                             const int64_t *extents) {
    Runner *self = (Runner *)runner;
    struct tilesmith_context context = self->context;
    if (extents) {
        context.arena_bytes = arena_bytes;
        context.scratch_bytes = scratch_bytes;
        context.extents = extents;
    }
    return run_bare(self, &context, pointers);
}

/* Run the entry point on memory that was checked; 0, a failure, or an exception. */
static PyObject *run_entry(Runner *self, struct tilesmith_context *context, HostRun *host, void **pointers) {
    host->thread = PyEval_SaveThread(); /* which a function of the host takes up */
    int32_t code = run_bare(self, context, pointers);
    PyEval_RestoreThread(host->thread);
    if (code == NO_ARENA)
        return PyErr_NoMemory();
    if (host->type != NULL) {
        PyErr_Restore(host->type, host->value, host->traceback);
        return NULL;
    }
    return code ? tilesmith_failure_of(code, &context->failure) : PyLong_FromLong(0);
}

/* The results of a run with a host, as a list: the outputs, and objects in the place of those that are. */
static PyObject *host_results(const Runner *self, PyObject *outputs, const Memory *memory, const HostRun *host) {
    Py_ssize_t count = self->arrays - self->inputs;
    PyObject *made = PyList_New(count);
    for (Py_ssize_t i = 0; made && i < count; i++) {
        Py_ssize_t array = self->inputs + i;
        PyObject *result = is_host(&self->specs[array]) ? tilesmith_host_object(host, memory->numbers[array])
                                                        : PyTuple_GetItem(outputs, i);
        if (result == NULL || PyList_SetItem(made, i, Py_NewRef(result)) < 0)
            Py_CLEAR(made);
    }
    return made;
}

/* Run on arrays, which are checked first. */
static PyObject *run_views(Runner *self, PyObject *const *args, struct tilesmith_context *context, HostRun *host,
                           Memory *memory) {
    PyObject *result = NULL;
    Py_ssize_t inputs = take_views(self, args[0], 0, self->inputs, memory, host), outputs = 0;
    if (inputs == self->inputs)
        outputs = take_views(self, args[1], self->inputs, self->arrays - self->inputs, memory, host);
    Py_ssize_t taken = (inputs > 0 ? inputs : 0) + (outputs > 0 ? outputs : 0);
    if (inputs >= 0 && outputs >= 0) {
        Py_ssize_t fit = taken == self->arrays ? overlapping_output(self, memory->views) : taken;
        result = fit < self->arrays ? PyLong_FromSsize_t(-fit - 1) : run_entry(self, context, host, memory->pointers);
        if (fit == self->arrays && host->functions && result && PyLong_Check(result)) {
            Py_DECREF(result);
            result = host_results(self, args[1], memory, host);
        }
    }
    for (Py_ssize_t i = 0; i < taken; i++)
        PyBuffer_Release(&memory->views[i]);
    return result;
}

/* `call` and `call_at`: the memory is that of arrays, or addresses that the caller answers for. */
static PyObject *run(Runner *self, PyObject *const *args, Py_ssize_t count, int by_address) {
    if (count < 2 || count > 4 || !PyTuple_Check(args[0]) || !PyTuple_Check(args[1]) || PyTuple_Size(args[0]) != self->inputs ||
        PyTuple_Size(args[1]) != self->arrays - self->inputs) {
        PyErr_SetString(PyExc_TypeError, "call takes a tuple of all inputs and a tuple of all outputs");
        return NULL;
    }
    PyObject *functions = count > 3 && args[3] != Py_None ? args[3] : NULL;
    if (functions ? by_address || !Py_IS_TYPE(functions, tilesmith_host_type) : self->has_objects) {
        PyErr_SetString(PyExc_TypeError, "objects and functions of the host need a Host, and arrays in a call");
        return NULL;
    }
    struct tilesmith_context context = self->context;
    int64_t extents[MAX_SYMBOLS];
    if (count > 2 && args[2] != Py_None && take_sizes(args[2], &context, extents) < 0)
        return NULL;
    HostRun host;
    tilesmith_host_open(&host, functions);
    if (functions != NULL) {
        context.host = tilesmith_host_call;
        context.host_data = &host;
    }
    Py_buffer few_views[MAX_ARRAYS];
    void *few_pointers[MAX_ARRAYS];
    int64_t few_numbers[MAX_ARRAYS];
    Memory memory = {few_views, few_pointers, few_numbers};
    size_t arrays = (size_t)self->arrays;
    int is_large = arrays > MAX_ARRAYS;
    if (is_large)
        memory = (Memory){malloc(arrays * sizeof *memory.views), malloc(arrays * sizeof *memory.pointers),
                          malloc(arrays * sizeof *memory.numbers)};
    PyObject *result = NULL;
    if (!memory.views || !memory.pointers || !memory.numbers)
        PyErr_NoMemory();
    else if (!by_address)
        result = run_views(self, args, &context, &host, &memory);
    else if (take_addresses(args[0], 0, self->inputs, memory.pointers) == 0 &&
             take_addresses(args[1], self->inputs, self->arrays - self->inputs, memory.pointers) == 0)
        result = run_entry(self, &context, &host, memory.pointers);
    tilesmith_host_close(&host);
    if (is_large) {
        free(memory.views);
        free(memory.pointers);
        free(memory.numbers);
    }
    return result;
}

/* See the method's documentation. */
static PyObject *runner_call(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    return run((Runner *)object, args, count, 0);
}

/* See the method's documentation. */
static PyObject *runner_call_at(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    return run((Runner *)object, args, count, 1);
}

static PyObject *runner_trim(PyObject *object, PyObject *unused) {
    (void)unused;
    return PyLong_FromSize_t(tilesmith_arenas_trim(&((Runner *)object)->memory, INT64_MAX));
}

static PyMethodDef runner_methods[] = {
    {"call", (PyCFunction)(void (*)(void))runner_call, METH_FASTCALL,
     "call(inputs, outputs[, sizes[, host]]) -> 0, or -(i + 1) when array i does not fit its specification (outputs are\n"
     "counted after the inputs; a Block stands for one that grows) or is an output that shares memory with an array\n"
     "before it or is another array than the input that it lives in, or why the run failed: (code, call, assertion,\n"
     "values).  `sizes` is (arena_bytes, scratch_bytes, *extents), or None for those that the runner was made with.\n"
     "`host` is a Host, whose functions the run calls; what one raises, call raises.  A run with a host gives a list of\n"
     "the outputs instead of 0, with objects where the outputs are of kind s or o, for which None is given."},
    {"call_at", (PyCFunction)(void (*)(void))runner_call_at, METH_FASTCALL,
     "call_at(inputs, outputs[, sizes]) -> as call.  Inputs and outputs are addresses of memory that is not\n"
     "checked: the caller answers for it."},
    {"trim", runner_trim, METH_NOARGS, "trim() -> bytes of idle arenas that were given back to the system."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot runner_slots[] = {
    {Py_tp_new, runner_new},
    {Py_tp_dealloc, runner_dealloc},
    {Py_tp_methods, runner_methods},
    {Py_tp_doc, "Runner(entry, constants, arena_bytes, scratch_bytes_per_thread, threads, inputs, outputs, owner[, slots, first, limit, homes])\n\n"
                "`inputs` and `outputs` are tuples of (kind, item size, shape); an extent of -1 is not checked.  Kind s are\n"
                "arrays of strings, o another object, which an input has in an array of objects without extents.\n"
                "The program may grow `slots` pieces of memory besides its outputs, from number `first` on, to `limit`\n"
                "bytes of memory in all.  `homes`: of each output the number of the input that it lives in, or -1."},
    {0, NULL},
};

PyType_Spec tilesmith_runner_spec = TILESMITH_TYPE("Runner", Runner, runner_slots);

static PyObject *set_cores(PyObject *module, PyObject *cores) {
    (void)module;
    long value = PyLong_AsLong(cores);
    if (PyErr_Occurred())
        return NULL;
    if (value < 1 || value > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "the number of cores is at least 1");
        return NULL;
    }
    tilesmith_pool_set_cores((int)value);
    Py_RETURN_NONE;
}

static PyObject *own_pool(PyObject *module, PyObject *nothing) {
    (void)module, (void)nothing;
    return tilesmith_pool_own() ? Py_NewRef(Py_None) : PyErr_NoMemory();
}

static PyObject *keep_arenas(PyObject *module, PyObject *seconds) {
    (void)module;
    double value = PyFloat_AsDouble(seconds);
    if (PyErr_Occurred())
        return NULL;
    if (!(value >= 0 && value <= 1e9)) {
        PyErr_SetString(PyExc_ValueError, "a time from 0 to 1e9 seconds is expected");
        return NULL;
    }
    return PyFloat_FromDouble((double)tilesmith_arenas_keep_for((int64_t)(value * 1e9)) * 1e-9);
}

static PyObject *memory(PyObject *module, PyObject *args) {
    (void)module;
    long long address;
    Py_ssize_t bytes;
    if (!PyArg_ParseTuple(args, "Ln", &address, &bytes))
        return NULL;
    if (bytes < 0) {
        PyErr_SetString(PyExc_ValueError, "a size of at least 0 bytes is expected");
        return NULL;
    }
    return PyMemoryView_FromMemory((char *)(intptr_t)address, bytes, PyBUF_WRITE);
}

static PyObject *page_bytes(PyObject *module, PyObject *nothing) {
    (void)module, (void)nothing;
    return PyLong_FromSize_t(tilesmith_page_bytes());
}

static PyMethodDef functions[] = {
    {"set_cores", set_cores, METH_O, "set_cores(cores): callers and busy workers together number at most as many."},
    {"own_pool", own_pool, METH_NOARGS,
     "own_pool(): the workers that help the calling thread help no other one, until it ends."},
    {"keep_arenas", keep_arenas, METH_O, "keep_arenas(seconds) -> before: how long an arena is kept that no run uses."},
    {"memory", memory, METH_VARARGS, "memory(address, bytes) -> a view of memory, for which the caller answers."},
    {"digest", tilesmith_digest, METH_VARARGS,
     "digest(address, bytes) -> what tells the contents of memory, for which the caller answers, from others."},
    {"set_provider", tilesmith_set_provider, METH_O,
     "set_provider(answers): whom ONNX Runtime's execution provider asks (see provider.c)."},
    {"accel_run", tilesmith_accel_run, METH_VARARGS,
     "accel_run(machine, encoding, words, steps, memory) -> None, or why the run failed: (cause, instruction, *detail).\n"
     "Runs a verified program of the accelerator in `memory`."},
    {"accel_clock", tilesmith_accel_clock, METH_VARARGS,
     "accel_clock(machine, encoding, words, times) -> counts of a verified program of the accelerator as a list of\n"
     "integers, or a tuple as of accel_run.  `times` gets two int64 for each instruction if it has room for them."},
    {"page_bytes", page_bytes, METH_NOARGS,
     "page_bytes() -> the bytes of a page; 0 where the system doesn't tell which pages were written."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "The C runtime: thread pool and calls of compiled programs.",
    .m_size = -1,
    .m_methods = functions,
};

/* Where the fields of the context lie, as (name, offset, size): tests compare this with codegen/context.py. */
static PyObject *context_layout(void) {
#define FIELD(name) {#name, offsetof(struct tilesmith_context, name), sizeof((struct tilesmith_context *)0)->name}
#define FAILURE(name) {"failure_" #name, offsetof(struct tilesmith_context, failure.name), \
                       sizeof((struct tilesmith_context *)0)->failure.name}
    static const struct {
        const char *name;
        size_t offset, size;
    } fields[] = {FIELD(abi),         FIELD(size),         FIELD(inputs),       FIELD(outputs),
                  FIELD(constants),   FIELD(arena),        FIELD(scratch),      FIELD(scratch_bytes),
                  FIELD(threads),     FIELD(parallel_for), FIELD(pool),         FIELD(extents),
                  FIELD(arena_bytes), FIELD(grow),         FIELD(memory),       FIELD(host),
                  FIELD(host_data),   FAILURE(code),       FAILURE(call),       FAILURE(assertion),
                  FAILURE(count),     FAILURE(values)};
    Py_ssize_t count = sizeof fields / sizeof fields[0];
    PyObject *layout = PyTuple_New(count);
    for (Py_ssize_t i = 0; layout && i < count; i++) {
        PyObject *field = Py_BuildValue("snn", fields[i].name, (Py_ssize_t)fields[i].offset, (Py_ssize_t)fields[i].size);
        if (field == NULL || PyTuple_SetItem(layout, i, field) < 0) {
            Py_DECREF(layout);
            return NULL;
        }
    }
    return layout;
}

/* Add `value`, whose reference is taken; 0 is success. */
static int add(PyObject *m, const char *name, PyObject *value) {
    int failed = value == NULL || PyModule_AddObjectRef(m, name, value) < 0;
    Py_XDECREF(value);
    return failed;
}

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *m = PyModule_Create(&module);
    if (m == NULL)
        return NULL;
    array_type = imported_array_type();
    tilesmith_block_type = (PyTypeObject *)PyType_FromSpec(&tilesmith_block_spec);
    if (array_type == NULL || tilesmith_block_type == NULL ||
        PyModule_AddObjectRef(m, "Block", (PyObject *)tilesmith_block_type) < 0 ||
        (tilesmith_host_type = (PyTypeObject *)PyType_FromSpec(&tilesmith_host_spec)) == NULL ||
        PyModule_AddType(m, tilesmith_host_type) < 0 || tilesmith_native_types(m) < 0 ||
        add(m, "Runner", PyType_FromSpec(&tilesmith_runner_spec)) ||
        add(m, "Function", PyType_FromSpec(&tilesmith_function_spec)) ||
        add(m, "Unchanged", PyType_FromSpec(&tilesmith_unchanged_spec)) ||
        add(m, "ABI", PyLong_FromLong(TILESMITH_ABI)) ||
        add(m, "CONTEXT_LAYOUT", context_layout()) ||
        add(m, "PARALLEL_FOR", PyLong_FromVoidPtr((void *)(uintptr_t)tilesmith_pool_for))) {
        Py_DECREF(m);
        return NULL;
    }
    return m;
}
