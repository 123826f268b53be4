/* Whether arguments of a call are the objects that they were, and hold what they held.
 *
 * The objects belong to another library, whose functions say where an object's memory is and how often it was
 * written.  They take the address of a handle, which lies in the object at a fixed offset.  Not all writes are counted
 * there, so what the memory holds is compared by digests, unless the caller says that counters are enough.  Threads
 * share that work: it is limited by memory, and a program that follows waits for it.
 *
 * Where the system tells which pages were written (`pages.h`), whole pages that it watches are not read.  They are
 * watched once some comparisons found nothing new, since each page that is watched and written costs a fault: twice
 * as many after each time that something was written.
 */
#include "python.h"

#include "pages.h"
#include "pool.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef int32_t (*AddressOf)(void *handle, void **address); /* gives 0 for success */
typedef int64_t (*WritesOf)(const void *handle);

#define LANES 8
#define STRIPE (LANES * sizeof(uint64_t))
#define PART ((Py_ssize_t)1 << 16)  /* bytes of a digest, at most */
#define WATCHED ((Py_ssize_t)1 << 16) /* bytes of whole pages that are worth a question to the system, at least */
#define MOST_QUIET ((Py_ssize_t)1 << 24)
#define ALONE ((Py_ssize_t)1 << 18) /* bytes that one thread reads sooner than others wake: about 5 microseconds */

/* A digest of memory: sums of its words times powers of an odd number, in lanes that depend on no other.  A change of
 * one word in a lane always changes it, since powers of odd numbers have inverses; several changes cancel each other in
 * one case of 2^64. */
typedef struct {
    uint64_t lanes[LANES];
} Digest;

typedef struct {
    PyObject *object;
    Py_ssize_t number; /* of the argument */
    void *address;
    int64_t writes; /* compared where `bytes` is negative */
    Py_ssize_t bytes;
    Py_ssize_t first, last; /* the bytes of whole pages, which may be watched; none if these are equal */
    Watch *watch;           /* of these bytes, at `watched` */
    void *watched;
    uint64_t since;
    int is_unwritten; /* these bytes are what they were, and are not read */
} Held;

/* At most PART bytes of what one object's memory holds. */
typedef struct {
    Py_ssize_t held, first, bytes;
    int is_whole; /* of whole pages */
    Digest digest;
} Part;

static inline uint64_t word(const unsigned char *at) {
    uint64_t found;
    memcpy(&found, at, sizeof found);
    return found;
}

/* The lanes are variables of their own, so that they stay in registers: memory of bytes may alias any array. */
static Digest digest_of(const void *memory, size_t bytes) {
    static const uint64_t factor = UINT64_C(0x9E3779B97F4A7C15);
    const unsigned char *at = memory;
    uint64_t a = 0, b = 1, c = 2, d = 3, e = 4, f = 5, g = 6, h = 7;
    for (size_t left = bytes / STRIPE; left > 0; left--, at += STRIPE) {
        a = a * factor + word(at);
        b = b * factor + word(at + 8);
        c = c * factor + word(at + 16);
        d = d * factor + word(at + 24);
        e = e * factor + word(at + 32);
        f = f * factor + word(at + 40);
        g = g * factor + word(at + 48);
        h = h * factor + word(at + 56);
    }
    Digest found = {{a, b, c, d, e, f, g, h}};
    if (bytes % STRIPE) {
        uint64_t rest[LANES] = {0};
        memcpy(rest, at, bytes % STRIPE);
        for (int i = 0; i < LANES; i++)
            found.lanes[i] = found.lanes[i] * factor + rest[i];
    }
    return found;
}

typedef struct Unchanged {
    PyObject_HEAD
    AddressOf address_of;
    WritesOf writes_of;
    Py_ssize_t offset, count, part_count, threads;
    Py_ssize_t quiet;    /* comparisons that found nothing new */
    Py_ssize_t patience; /* after how many of them pages are watched; never if negative */
    PyObject *may_watch;
    Held *held;
    Part *parts;
} Unchanged;

/* A pass over all parts. */
typedef struct {
    Part *parts;
    const Held *held;
    int takes; /* the digests are noted; else they are compared */
    _Atomic(int) differs;
} Pass;

static void read_parts(void *env, int64_t begin, int64_t end, int64_t thread) {
    Pass *pass = env;
    (void)thread;
    for (int64_t i = begin; i < end && !atomic_load_explicit(&pass->differs, memory_order_relaxed); i++) {
        Part *part = &pass->parts[i];
        if (part->is_whole && pass->held[part->held].is_unwritten)
            continue;
        const char *memory = pass->held[part->held].address;
        Digest found = digest_of(memory + part->first, (size_t)part->bytes);
        if (pass->takes)
            part->digest = found;
        else if (memcmp(&found, &part->digest, sizeof found) != 0)
            atomic_store_explicit(&pass->differs, 1, memory_order_relaxed);
    }
}

/* Read all parts, but those that are known not to be written.  Returns whether a digest differs from the one that was
 * noted. */
static int read_all(Unchanged *self, int takes) {
    Pass pass = {.parts = self->parts, .held = self->held, .takes = takes};
    struct tilesmith_context context = {.threads = self->threads};
    Py_ssize_t bytes = 0;
    for (Py_ssize_t i = 0; i < self->count; i++) {
        const Held *held = &self->held[i];
        if (held->bytes > 0)
            bytes += held->bytes - (held->is_unwritten ? held->last - held->first : 0);
    }
    if (bytes <= ALONE)
        context.threads = 1;
    tilesmith_pool_for(&context, read_parts, &pass, self->part_count);
    return atomic_load(&pass.differs);
}

static void forget(Held *held) {
    if (held->watch != NULL)
        tilesmith_unwatch(held->watch);
    held->watch = NULL;
    held->is_unwritten = 0;
}

/* Ask which memory was written.  Returns whether some that was watched is not known to be as it was. */
static int look(Unchanged *self) {
    int answers = -1, is_written = 0;
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Held *held = &self->held[i];
        if (held->watch == NULL)
            continue;
        if (answers < 0)
            answers = tilesmith_pages_answer();
        held->is_unwritten =
            answers && held->address == held->watched && tilesmith_is_unwritten(held->watch, held->since);
        if (!held->is_unwritten) {
            forget(held);
            is_written = 1;
        }
    }
    return is_written;
}

/* Watch memory that isn't watched yet.  All of it is read afterwards: a write before that is seen by its digest, one
 * after it by the system. */
static void watch(Unchanged *self) {
    Survey *survey = tilesmith_survey();
    uintptr_t page = tilesmith_page_bytes();
    for (Py_ssize_t i = 0; survey != NULL && i < self->count; i++) {
        Held *held = &self->held[i];
        uintptr_t first = (uintptr_t)held->address + (uintptr_t)held->first;
        if (held->watch != NULL || held->last == held->first || page == 0 || first % page != 0)
            continue;
        held->watch =
            tilesmith_watch(survey, first, first + (uintptr_t)(held->last - held->first), &held->since);
        held->watched = held->address;
    }
    tilesmith_survey_free(survey);
}

/* Where whole pages are in an object's memory, if they are worth watching. */
static void find_pages(Held *held, uintptr_t page) {
    if (page == 0 || held->bytes < WATCHED)
        return;
    uintptr_t address = (uintptr_t)held->address, end = address + (uintptr_t)held->bytes;
    uintptr_t first = (address + page - 1) / page * page, last = end / page * page;
    if (last < first || last - first < (uintptr_t)WATCHED)
        return;
    held->first = (Py_ssize_t)(first - address);
    held->last = (Py_ssize_t)(last - address);
}

/* Divide bytes of an object's memory into parts; NULL counts them only. */
static Py_ssize_t divide(Part *parts, Py_ssize_t held, Py_ssize_t first, Py_ssize_t end, int is_whole) {
    Py_ssize_t count = 0;
    for (; first < end; first += PART, count++)
        if (parts != NULL)
            parts[count] = (Part){
                .held = held, .first = first, .bytes = end - first < PART ? end - first : PART, .is_whole = is_whole};
    return count;
}

static Py_ssize_t divide_all(const Unchanged *self, Part *parts) {
    Py_ssize_t count = 0;
    for (Py_ssize_t i = 0; i < self->count; i++) {
        const Held *held = &self->held[i];
        Py_ssize_t ends[] = {0, held->first, held->last, held->bytes};
        for (int k = 0; k < 3; k++)
            count += divide(parts == NULL ? NULL : parts + count, i, ends[k], ends[k + 1], k == 1);
    }
    return count;
}

PyObject *tilesmith_digest(PyObject *module, PyObject *args) {
    Py_ssize_t address, bytes;
    (void)module;
    if (!PyArg_ParseTuple(args, "nn", &address, &bytes))
        return NULL;
    if (bytes < 0) {
        PyErr_SetString(PyExc_ValueError, "a number of bytes of 0 or more is expected");
        return NULL;
    }
    Digest d;
    Py_BEGIN_ALLOW_THREADS
    d = digest_of((const void *)address, (size_t)bytes);
    Py_END_ALLOW_THREADS
    return PyBytes_FromStringAndSize((const char *)&d, sizeof d);
}

static PyObject *unchanged_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    Py_ssize_t address_of, writes_of, offset, threads, patience;
    PyObject *may_watch, *numbers, *objects, *addresses, *writes, *sizes;
    if (kwargs != NULL && PyDict_Size(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "Unchanged takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "nnnO!O!O!O!O!nnO", &address_of, &writes_of, &offset, &PyTuple_Type, &numbers,
                          &PyTuple_Type, &objects, &PyTuple_Type, &addresses, &PyTuple_Type, &writes, &PyTuple_Type,
                          &sizes, &threads, &patience,
                          &may_watch))
        return NULL;
    Py_ssize_t count = PyTuple_Size(numbers);
    if (PyTuple_Size(objects) != count || PyTuple_Size(addresses) != count || PyTuple_Size(writes) != count ||
        PyTuple_Size(sizes) != count) {
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
    self->threads = threads > 1 ? threads : 1;
    self->patience = patience < MOST_QUIET ? patience : MOST_QUIET;
    self->may_watch = Py_NewRef(may_watch);
    uintptr_t page = patience < 0 ? 0 : tilesmith_page_bytes();
    self->held = calloc(count ? (size_t)count : 1, sizeof(Held));
    if (self->held == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    int has_pages = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        Held *held = &self->held[i];
        held->number = PyLong_AsSsize_t(PyTuple_GetItem(numbers, i));
        held->address = PyLong_AsVoidPtr(PyTuple_GetItem(addresses, i));
        held->writes = PyLong_AsLongLong(PyTuple_GetItem(writes, i));
        held->bytes = PyLong_AsSsize_t(PyTuple_GetItem(sizes, i));
        if (PyErr_Occurred()) {
            Py_DECREF(self);
            return NULL;
        }
        held->object = Py_NewRef(PyTuple_GetItem(objects, i));
        self->count = i + 1;
        find_pages(held, page);
        has_pages |= held->last > held->first;
    }
    self->part_count = divide_all(self, NULL);
    if (!has_pages)
        self->patience = -1;
    self->parts = calloc(self->part_count ? (size_t)self->part_count : 1, sizeof(Part));
    if (self->parts == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    divide_all(self, self->parts);
    read_all(self, 1);
    return (PyObject *)self;
}

static void unchanged_dealloc(PyObject *object) {
    Unchanged *self = (Unchanged *)object;
    PyTypeObject *type = Py_TYPE(object);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        forget(&self->held[i]); /* before its memory may be another object's */
        Py_DECREF(self->held[i].object);
    }
    Py_XDECREF(self->may_watch);
    free(self->held);
    free(self->parts);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyObject *unchanged_in(PyObject *object, PyObject *args) {
    Unchanged *self = (Unchanged *)object;
    int is_list = PyList_Check(args);
    if (!is_list && !PyTuple_Check(args)) {
        PyErr_SetString(PyExc_TypeError, "a list or a tuple is expected");
        return NULL;
    }
    int may_watch = 0;
    if (self->patience >= 0 && self->quiet == self->patience) { /* first, since it lets other threads in */
        PyObject *answer = PyObject_CallNoArgs(self->may_watch);
        may_watch = answer == NULL ? -1 : PyObject_IsTrue(answer);
        Py_XDECREF(answer);
        if (may_watch < 0)
            return NULL;
    }
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Held *held = &self->held[i];
        PyObject *found = is_list ? PyList_GetItem(args, held->number) : PyTuple_GetItem(args, held->number);
        if (found == NULL)
            return NULL;
        if (found != held->object)
            Py_RETURN_FALSE;
        void *handle = (char *)found + self->offset, *address = NULL;
        if (self->address_of(handle, &address) != 0)
            Py_RETURN_FALSE;
        if (held->bytes < 0 && (address != held->address || self->writes_of(handle) != held->writes))
            Py_RETURN_FALSE;
        held->address = address; /* it may lie elsewhere and hold the same */
    }
    if (look(self)) {
        self->quiet = 0;
        self->patience = self->patience < MOST_QUIET / 2 ? 2 * self->patience + 1 : MOST_QUIET;
    }
    if (may_watch)
        watch(self);
    int is_same = !read_all(self, 0);
    self->quiet = is_same ? self->quiet + 1 : 0;
    for (Py_ssize_t i = 0; !is_same && i < self->count; i++)
        forget(&self->held[i]); /* what is watched since this call holds something else */
    return PyBool_FromLong(is_same);
}

static PyObject *unchanged_watched(PyObject *object, PyObject *nothing) {
    const Unchanged *self = (Unchanged *)object;
    Py_ssize_t bytes = 0;
    (void)nothing;
    for (Py_ssize_t i = 0; i < self->count; i++)
        if (self->held[i].watch != NULL)
            bytes += self->held[i].last - self->held[i].first;
    return PyLong_FromSsize_t(bytes);
}

static PyMethodDef methods[] = {
    {"is_in", unchanged_in, METH_O, "is_in(arguments) -> whether the objects are these arguments, as they were."},
    {"watched", unchanged_watched, METH_NOARGS, "watched() -> the bytes that the next call need not read."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, unchanged_new},
    {Py_tp_dealloc, unchanged_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "Unchanged(address_of, writes_of, offset, numbers, objects, addresses, writes, sizes, threads,\n"
                "          patience, may_watch)\n\n"
                "The objects that are arguments `numbers` of a call, with the addresses of their memory, how often it\n"
                "was written, and its bytes: that many are compared, or addresses and writes where it is negative.\n"
                "`threads` share the reading.  After `patience` calls that found nothing new, where `may_watch()` is\n"
                "true, the system is asked which pages were written; never if `patience` is negative.\n"
                "`address_of` and `writes_of` are addresses of C functions, which take\n"
                "the address of the handle that each object has at `offset` bytes."},
    {0, NULL},
};

PyType_Spec tilesmith_unchanged_spec = TILESMITH_TYPE("Unchanged", Unchanged, slots);
