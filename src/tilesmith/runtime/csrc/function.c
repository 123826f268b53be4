/* `Function`: a kernel as a Python callable on arrays.
 *
 * Everything that could make a call go wrong is checked here, in a microsecond: number, element type, shape (numbers
 * or expressions of symbols, which the arrays' shapes determine), contiguity, alignment, whether an output may be
 * written, and whether it overlaps another argument.  What is wrong, Python finds out again to say it in words.
 */
#include "python.h"

#include <stdlib.h>
#include <string.h>

#include "arenas.h"
#include "pool.h"

#define MAX_RANK 16
#define MAX_PARAMETERS 254 /* of a kernel, besides workspace and context */
#define MAX_SYMBOLS 64
#define MAX_DEPTH 32 /* operands of a dimension's expression that wait at one time */

/* A dimension is a sequence of steps on a stack of operands, its value the operand that is left. */
enum { PUSH, SYMBOL, ADD, SUB, MUL, FLOORDIV, FLOORMOD, MIN, MAX, OPERATIONS };

typedef struct {
    int32_t operation;
    int64_t value; /* of PUSH, and the number of SYMBOL */
} Step;

typedef struct {
    char kind, written;
    int rank, steps; /* steps of all its dimensions */
    Py_ssize_t item;
    int count[MAX_RANK]; /* steps of each dimension */
    Step *first;         /* those of all dimensions */
    unsigned char *same; /* for each argument: whether a written array may be the same memory */
} Array;

/* An amount that symbols determine. */
typedef struct {
    int count;
    Step *first;
} Amount;

typedef struct {
    PyObject_HEAD
    void *kernel;
    struct tilesmith_context context; /* what all runs have in common */
    Arenas memory;
    Amount arena, scratch; /* bytes; of scratch for each thread */
    Py_ssize_t arrays, given, symbols, buffers, scalars;
    int32_t *given_symbols;  /* the symbols that integers after the arrays give */
    int32_t *buffer_arrays;  /* the argument behind each buffer parameter */
    int32_t *scalar_symbols; /* the symbol behind each scalar parameter */
    Array *specs;
    PyObject *owner; /* keeps the code alive */
} Function;

#define T8 void *, void *, void *, void *, void *, void *, void *, void *
#define T16 T8, T8
#define T32 T16, T16
#define T64 T32, T32
#define T128 T64, T64
#define A8(a) (a)[0], (a)[1], (a)[2], (a)[3], (a)[4], (a)[5], (a)[6], (a)[7]
#define A16(a) A8(a), A8((a) + 8)
#define A32(a) A16(a), A16((a) + 16)
#define A64(a) A32(a), A32((a) + 32)
#define A128(a) A64(a), A64((a) + 64)

/* Call a kernel with `count` arguments, pointers or 64-bit integers.  `arguments` has room for 256.  In the calling
 * conventions of x86-64 and AArch64 both are passed alike, and a function does not see arguments that it does not
 * declare: so a few numbers of arguments serve all. */
static int32_t invoke(void *kernel, void **arguments, Py_ssize_t count) {
    if (count <= 8)
        return ((int32_t(*)(T8))kernel)(A8(arguments));
    if (count <= 16)
        return ((int32_t(*)(T16))kernel)(A16(arguments));
    if (count <= 32)
        return ((int32_t(*)(T32))kernel)(A32(arguments));
    if (count <= 64)
        return ((int32_t(*)(T64))kernel)(A64(arguments));
    return ((int32_t(*)(T128, T128))kernel)(A128(arguments), A128(arguments + 128));
}

static int64_t floor_divided(int64_t a, int64_t b) {
    int64_t q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

/* The value of a dimension; -1, which no array has, where it can't be computed. */
static int64_t evaluate(const Step *step, int count, const int64_t *symbols) {
    int64_t stack[MAX_DEPTH];
    int depth = 0;
    for (const Step *end = step + count; step < end; step++) {
        if (step->operation <= SYMBOL) {
            stack[depth++] = step->operation == PUSH ? step->value : symbols[step->value];
            continue;
        }
        int64_t b = stack[--depth], a = stack[depth - 1], r = 0;
        switch (step->operation) {
        case ADD:
            if (__builtin_add_overflow(a, b, &r))
                return -1;
            break;
        case SUB:
            if (__builtin_sub_overflow(a, b, &r))
                return -1;
            break;
        case MUL:
            if (__builtin_mul_overflow(a, b, &r))
                return -1;
            break;
        case FLOORDIV:
        case FLOORMOD:
            if (b == 0 || (a == INT64_MIN && b == -1))
                return -1;
            r = floor_divided(a, b);
            r = step->operation == FLOORDIV ? r : a - r * b;
            break;
        case MIN:
            r = a < b ? a : b;
            break;
        default:
            r = a > b ? a : b;
        }
        stack[depth - 1] = r;
    }
    return stack[0];
}

/* Whether the views' shapes are those declared, which defines the symbols. */
static int shapes_fit(const Function *self, const Py_buffer *views, int64_t *symbols, unsigned char *known) {
    for (Py_ssize_t i = 0; i < self->arrays; i++) {
        const Step *step = self->specs[i].first;
        for (int d = 0; d < self->specs[i].rank; step += self->specs[i].count[d++])
            if (self->specs[i].count[d] == 1 && step->operation == SYMBOL && !known[step->value]) {
                known[step->value] = 1;
                symbols[step->value] = views[i].shape[d];
            }
    }
    for (Py_ssize_t s = 0; s < self->symbols; s++)
        if (!known[s])
            return 0;
    for (Py_ssize_t i = 0; i < self->arrays; i++) {
        const Step *step = self->specs[i].first;
        for (int d = 0; d < self->specs[i].rank; step += self->specs[i].count[d++])
            if (evaluate(step, self->specs[i].count[d], symbols) != views[i].shape[d])
                return 0;
    }
    return 1;
}

/* Whether no written array overlaps another argument, except where both may be the same memory. */
static int apart(const Function *self, const Py_buffer *views) {
    for (Py_ssize_t i = 0; i < self->arrays; i++) {
        if (!self->specs[i].written)
            continue;
        for (Py_ssize_t j = 0; j < self->arrays; j++) {
            if (j == i || !tilesmith_overlap(&views[i], &views[j]))
                continue;
            if (!(self->specs[i].same[j] && views[i].buf == views[j].buf && views[i].len == views[j].len))
                return 0;
        }
    }
    return 1;
}

static PyObject *run(Function *self, const Py_buffer *views, const int64_t *symbols) {
    void *arguments[2 + MAX_PARAMETERS];
    Py_ssize_t count = 0;
    for (Py_ssize_t i = 0; i < self->buffers; i++)
        arguments[count++] = views[self->buffer_arrays[i]].buf;
    for (Py_ssize_t i = 0; i < self->scalars; i++)
        arguments[count++] = (void *)(uintptr_t)symbols[self->scalar_symbols[i]];
    struct tilesmith_context context = self->context;
    Arena *arena = NULL;
    context.arena_bytes = evaluate(self->arena.first, self->arena.count, symbols);
    context.scratch_bytes = evaluate(self->scratch.first, self->scratch.count, symbols);
    if (context.arena_bytes || context.scratch_bytes) {
        arena = tilesmith_arenas_take(&self->memory, context.arena_bytes, context.scratch_bytes);
        if (arena == NULL)
            return PyErr_NoMemory();
        context.arena = arena + 1;
        context.scratch = arena->scratch;
    }
    arguments[count++] = context.arena;
    arguments[count++] = &context;
    memset(arguments + count, 0, (count <= 8 ? 8 : sizeof arguments / sizeof *arguments) * sizeof *arguments -
                                     (size_t)count * sizeof *arguments);
    int32_t code;
    Py_BEGIN_ALLOW_THREADS
    tilesmith_pool_enter();
    code = invoke(self->kernel, arguments, count);
    tilesmith_pool_leave();
    Py_END_ALLOW_THREADS
    if (arena)
        tilesmith_arenas_keep(&self->memory, arena);
    return code ? tilesmith_failure_of(code, &context.failure) : Py_NewRef(Py_None);
}

/* See the method's documentation. */
static PyObject *function_call(PyObject *object, PyObject *args) {
    Function *self = (Function *)object;
    if (!PyTuple_Check(args)) {
        PyErr_SetString(PyExc_TypeError, "call takes a tuple");
        return NULL;
    }
    if (PyTuple_Size(args) != self->arrays + self->given)
        Py_RETURN_FALSE;
    Py_buffer views[MAX_PARAMETERS];
    int64_t symbols[MAX_SYMBOLS];
    unsigned char known[MAX_SYMBOLS] = {0};
    Py_ssize_t taken = 0;
    for (; taken < self->arrays; taken++) {
        const Array *spec = &self->specs[taken];
        Py_buffer *view = &views[taken];
        int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (spec->written ? PyBUF_WRITABLE : 0);
        PyObject *array = PyTuple_GetItem(args, taken);
        if (!tilesmith_is_bare(array) || PyObject_GetBuffer(array, view, flags) < 0)
            break;
        if (view->ndim != spec->rank || view->itemsize != spec->item || tilesmith_kind(view->format) != spec->kind ||
            (uintptr_t)view->buf % (uintptr_t)spec->item) {
            PyBuffer_Release(view);
            break;
        }
    }
    int fit = taken == self->arrays;
    for (Py_ssize_t i = 0; fit && i < self->given; i++) {
        symbols[self->given_symbols[i]] = PyLong_AsLongLong(PyTuple_GetItem(args, self->arrays + i));
        known[self->given_symbols[i]] = 1;
        fit = !PyErr_Occurred();
    }
    PyErr_Clear(); /* what is no buffer or no integer does not fit */
    PyObject *result = fit && shapes_fit(self, views, symbols, known) && apart(self, views)
                           ? run(self, views, symbols)
                           : Py_NewRef(Py_False);
    for (Py_ssize_t i = 0; i < taken; i++)
        PyBuffer_Release(&views[i]);
    return result;
}

/* The integers of a tuple, each from 0 to `limit - 1`; NULL with an exception for others. */
static int32_t *numbers(PyObject *tuple, Py_ssize_t *count, Py_ssize_t limit) {
    *count = PyTuple_Size(tuple);
    int32_t *found = *count < 0 ? NULL : malloc(sizeof *found * ((size_t)*count + 1));
    for (Py_ssize_t i = 0; found && i < *count; i++) {
        Py_ssize_t value = PyLong_AsSsize_t(PyTuple_GetItem(tuple, i));
        if (!PyErr_Occurred() && (value < 0 || value >= limit))
            PyErr_Format(PyExc_ValueError, "expected a number from 0 to %zd, found %zd", limit - 1, value);
        found[i] = (int32_t)value;
        if (PyErr_Occurred()) {
            free(found);
            return NULL;
        }
    }
    return found;
}

/* One dimension as (operation, value) pairs; 0 is success. */
static int parse_dimension(PyObject *steps, Step *step, Py_ssize_t symbols) {
    int depth = 0;
    for (Py_ssize_t i = 0; i < PyTuple_Size(steps); i++, step++) {
        long long value;
        if (!PyArg_ParseTuple(PyTuple_GetItem(steps, i), "iL", &step->operation, &value))
            return -1;
        step->value = value;
        depth += step->operation <= SYMBOL ? 1 : -1;
        if (step->operation < 0 || step->operation >= OPERATIONS || depth < 1 || depth > MAX_DEPTH ||
            (step->operation == SYMBOL && (value < 0 || value >= symbols))) {
            PyErr_SetString(PyExc_ValueError, "the steps of a dimension are no expression that can be computed");
            return -1;
        }
    }
    if (depth != 1)
        PyErr_SetString(PyExc_ValueError, "the steps of a dimension leave no single value");
    return depth == 1 ? 0 : -1;
}

/* An amount as (operation, value) pairs; 0 is success. */
static int parse_amount(PyObject *steps, Amount *amount, Py_ssize_t symbols) {
    amount->count = (int)PyTuple_Size(steps);
    amount->first = calloc((size_t)amount->count + 1, sizeof *amount->first);
    if (amount->first == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return parse_dimension(steps, amount->first, symbols);
}

static int parse_array(PyObject *item, Array *spec, Py_ssize_t arrays, Py_ssize_t symbols) {
    const char *kind;
    PyObject *dims, *same;
    int written;
    if (!PyArg_ParseTuple(item, "snO!pO!", &kind, &spec->item, &PyTuple_Type, &dims, &written, &PyTuple_Type, &same))
        return -1;
    spec->kind = kind[0];
    spec->written = (char)written;
    Py_ssize_t rank = PyTuple_Size(dims);
    if (rank > MAX_RANK || spec->item <= 0) {
        PyErr_Format(PyExc_ValueError, "an array has at most %d dimensions and elements of at least one byte", MAX_RANK);
        return -1;
    }
    spec->rank = (int)rank;
    for (int d = 0; d < spec->rank; d++) {
        Py_ssize_t count = PyTuple_Size(PyTuple_GetItem(dims, d));
        if (count < 0)
            return -1;
        spec->count[d] = (int)count;
        spec->steps += spec->count[d];
    }
    spec->first = calloc((size_t)spec->steps + 1, sizeof *spec->first);
    spec->same = calloc((size_t)arrays, 1);
    if (spec->first == NULL || spec->same == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    Step *step = spec->first;
    for (int d = 0; d < spec->rank; step += spec->count[d++])
        if (parse_dimension(PyTuple_GetItem(dims, d), step, symbols) < 0)
            return -1;
    Py_ssize_t count;
    int32_t *others = numbers(same, &count, arrays);
    for (Py_ssize_t i = 0; others && i < count; i++)
        spec->same[others[i]] = 1;
    free(others);
    return others ? 0 : -1;
}

static PyObject *function_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    unsigned long long kernel;
    Py_ssize_t threads, symbols;
    PyObject *arena, *scratch, *arrays, *given, *buffers, *scalars, *owner;
    if (!PyArg_ParseTuple(args, "KO!O!nO!nO!O!O!O", &kernel, &PyTuple_Type, &arena, &PyTuple_Type, &scratch, &threads,
                          &PyTuple_Type, &arrays, &symbols, &PyTuple_Type, &given, &PyTuple_Type, &buffers,
                          &PyTuple_Type, &scalars, &owner))
        return NULL;
    if (PyTuple_Size(buffers) + PyTuple_Size(scalars) > MAX_PARAMETERS || PyTuple_Size(arrays) > MAX_PARAMETERS ||
        symbols > MAX_SYMBOLS) {
        PyErr_Format(PyExc_ValueError, "a function has at most %d parameters and %d symbols", MAX_PARAMETERS,
                     MAX_SYMBOLS);
        return NULL;
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Function *self = (Function *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->kernel = (void *)(uintptr_t)kernel;
    self->symbols = symbols;
    self->owner = Py_NewRef(owner);
    self->context = (struct tilesmith_context){
        .abi = TILESMITH_ABI,
        .size = sizeof self->context,
        .threads = threads,
        .parallel_for = tilesmith_pool_for,
    };
    Py_ssize_t count = PyTuple_Size(arrays);
    self->specs = calloc((size_t)count + 1, sizeof(Array));
    self->arrays = self->specs ? count : 0;
    int failed = self->specs == NULL;
    if (failed)
        PyErr_NoMemory();
    tilesmith_arenas_open(&self->memory, (size_t)threads, 0);
    failed = failed || parse_amount(arena, &self->arena, symbols) < 0 ||
             parse_amount(scratch, &self->scratch, symbols) < 0;
    for (Py_ssize_t i = 0; !failed && i < count; i++)
        failed = parse_array(PyTuple_GetItem(arrays, i), &self->specs[i], count, symbols) < 0;
    if (failed || !(self->given_symbols = numbers(given, &self->given, symbols)) ||
        !(self->buffer_arrays = numbers(buffers, &self->buffers, count)) ||
        !(self->scalar_symbols = numbers(scalars, &self->scalars, symbols))) {
        Py_DECREF(self);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void function_dealloc(PyObject *object) {
    Function *self = (Function *)object;
    PyTypeObject *type = Py_TYPE(object);
    tilesmith_arenas_close(&self->memory);
    for (Py_ssize_t i = 0; i < self->arrays; i++) {
        free(self->specs[i].first);
        free(self->specs[i].same);
    }
    free(self->specs);
    free(self->arena.first);
    free(self->scratch.first);
    free(self->given_symbols);
    free(self->buffer_arrays);
    free(self->scalar_symbols);
    Py_XDECREF(self->owner);
    freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free_object(object);
    Py_DECREF(type);
}

static PyMethodDef function_methods[] = {
    {"call", function_call, METH_O,
     "call(arguments) -> None, False when the arguments do not fit (nothing was run), or why the run failed:\n"
     "(code, call, assertion, values)."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot function_slots[] = {
    {Py_tp_new, function_new},
    {Py_tp_dealloc, function_dealloc},
    {Py_tp_methods, function_methods},
    {Py_tp_doc,
     "Function(kernel, arena, scratch, threads, arrays, symbols, given, buffers, scalars, owner)\n"
     "\n"
     "`arena` and `scratch`: their bytes, those of scratch for each thread, as tuples of steps.\n"
     "`arrays`: for each argument (kind, item size, dimensions, written, arguments that may be the same memory);\n"
     "a dimension is a tuple of steps (operation, value) on a stack.  `symbols`: how many there are.  `given`: the\n"
     "symbols that integers after the arrays give.  `buffers`: the argument behind each buffer of the kernel.\n"
     "`scalars`: the symbol behind each scalar."},
    {0, NULL},
};

PyType_Spec tilesmith_function_spec = TILESMITH_TYPE("Function", Function, function_slots);
