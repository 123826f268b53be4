/* ONNX Runtime's execution provider.
 *
 * ONNX Runtime asks a provider which nodes of a model's graph it computes, and lets it compile them.  Both questions
 * go to an object of Python, engines/ort/provider.py, which reads the graph through the C API.  Runs of compiled nodes
 * need no Python: inputs and outputs are ONNX Runtime's memory, and the program runs as in a Runner.  Whatever is out of
 * the ordinary, such as shapes that don't fit or results that grow, Python computes, or says in words.
 *
 * Methods of the object: begin(api), which is asked once; session(options, logger), whose result has
 * capability(graph, support) and compile(graphs, fused nodes, places for context nodes).  All arguments are addresses.
 * compile returns for each node (plan, runner, sizes, number of its values, number of symbols, inputs, outputs): `plan`
 * has run(context), `runner` is None where only that can run it, inputs and outputs are as parse_border reads them.
 */
#include "provider.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "library/shapes.h"

#define MAX_TENSORS 256 /* of a node that runs without Python */
#define MAX_VALUES 1024 /* that the function of its sizes computes */
#define MESSAGE 2048    /* bytes */

enum { FAIL = 1, NOT_IMPLEMENTED = 9 };

static PyObject *answers;           /* never freed: ONNX Runtime may ask until the process ends */
static const ort_any_function *api; /* of the ONNX Runtime that loaded this */

#define CALL(place, type) ((type)api[place])

typedef struct ort_status *(*status_fn)(int code, const char *text);
typedef int (*device_type_fn)(const void *device);
typedef const ort_any_function *(*ep_api_fn)(void);
typedef struct ort_status *(*ep_device_fn)(struct ort_factory *, const void *device, const void *metadata,
                                           const void *options, void **ep_device);
typedef struct ort_status *(*input_fn)(const struct ort_context *, size_t, const struct ort_value **);
typedef struct ort_status *(*output_fn)(struct ort_context *, size_t, const int64_t *, size_t, struct ort_value **);
typedef struct ort_status *(*read_data_fn)(const struct ort_value *, const void **);
typedef struct ort_status *(*data_fn)(struct ort_value *, void **);
typedef struct ort_status *(*shape_fn)(const struct ort_value *, int *type, const int64_t **shape, size_t *rank);

static struct ort_status *failed(const char *text) { return CALL(ORT_CREATE_STATUS, status_fn)(FAIL, text); }

/* The exception of Python as a status. */
static struct ort_status *raised(void) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject *text = value ? PyObject_Str(value) : NULL;
    PyObject *bytes = text ? PyUnicode_AsEncodedString(text, "utf-8", "replace") : NULL;
    const char *said = bytes ? PyBytes_AsString(bytes) : NULL;
    struct ort_status *made = failed(said && *said ? said : "tilesmith failed without a message");
    Py_XDECREF(bytes);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    PyErr_Clear();
    return made;
}

static struct ort_status *ended(void) { return failed("the Python interpreter that tilesmith runs in has ended"); }

/* Nodes. */

/* An input or output: its place among those of the node, bytes of an element, and shape (as that of a tensor of
 * tilesmith_model.h). */
struct border {
    int64_t place;
    struct tilesmith_tensor tensor;
};

/* head: must be first: ONNX Runtime hands a pointer to it back. */
struct node {
    struct ort_node head;
    PyObject *plan, *runner;
    tilesmith_sizes_fn sizes; /* NULL: no symbols */
    int64_t size_values, symbols, inputs, outputs;
    struct border *borders; /* the program's inputs, then its outputs */
};

static struct ort_status *run_in_python(const struct node *node, struct ort_context *context) {
    if (!Py_IsInitialized())
        return ended();
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *done = PyObject_CallMethod(node->plan, "run", "K", (unsigned long long)(uintptr_t)context);
    struct ort_status *status = done ? NULL : raised();
    Py_XDECREF(done);
    PyGILState_Release(state);
    return status;
}

/* What takes the place of tensors without elements, which have no address. */
static void *const NOWHERE = (void *)(uintptr_t)TILESMITH_ALIGNMENT;

static int64_t count_of(const int64_t *shape, size_t rank) {
    int64_t count = 1;
    for (size_t a = 0; a < rank; a++)
        count *= shape[a];
    return count;
}

/* The address of input `i`; NULL with `*failure`, or, without one, if it is not as the program expects it. */
static const void *find_input(const struct node *node, const struct ort_context *context, int64_t i, int64_t *extents,
                              struct ort_status **failure) {
    const struct tilesmith_tensor *t = &node->borders[i].tensor;
    size_t place = (size_t)node->borders[i].place;
    const struct ort_value *value;
    const int64_t *shape;
    const void *data;
    size_t rank;
    int type;
    int64_t expected;
    if ((*failure = CALL(ORT_INPUT, input_fn)(context, place, &value)) ||
        (*failure = CALL(ORT_TENSOR_SHAPE, shape_fn)(value, &type, &shape, &rank)) ||
        (*failure = CALL(ORT_READ_TENSOR_DATA, read_data_fn)(value, &data)))
        return NULL;
    if (rank != (size_t)t->rank || tilesmith_match(t, shape, extents, &expected) >= 0)
        return NULL;
    if (count_of(shape, rank) == 0)
        return NOWHERE;
    return (uintptr_t)data % (uintptr_t)t->element_bytes ? NULL : data;
}

static struct ort_status *compute(struct ort_node *head, void *state, struct ort_context *context) {
    const struct node *node = (const struct node *)head;
    void *pointers[MAX_TENSORS];
    int64_t extents[MAX_SYMBOLS], values[MAX_VALUES];
    (void)state;
    if (node->runner == NULL)
        return run_in_python(node, context);
    for (int64_t s = 0; s < node->symbols; s++)
        extents[s] = -1;
    for (int64_t i = 0; i < node->inputs; i++) {
        struct ort_status *failure = NULL;
        pointers[i] = (void *)find_input(node, context, i, extents, &failure);
        if (pointers[i] == NULL)
            return failure ? failure : run_in_python(node, context);
    }
    if (node->sizes && node->sizes(extents, values) != TILESMITH_OK)
        return run_in_python(node, context);
    const int64_t *next = values + 2;
    for (int64_t o = node->inputs; o < node->inputs + node->outputs; o++) {
        const struct border *border = &node->borders[o];
        size_t rank = (size_t)border->tensor.rank;
        const int64_t *shape = node->sizes ? next : border->tensor.shape;
        struct ort_value *value;
        struct ort_status *failure =
            CALL(ORT_OUTPUT, output_fn)(context, (size_t)border->place, shape, rank, &value);
        if (failure || (failure = CALL(ORT_TENSOR_DATA, data_fn)(value, &pointers[o])))
            return failure;
        if (count_of(shape, rank) == 0)
            pointers[o] = NOWHERE;
        next += rank;
    }
    int32_t code = tilesmith_runner_run(node->runner, pointers, values[0], values[1], node->sizes ? extents : NULL);
    return code ? run_in_python(node, context) : NULL; /* which says why */
}

static struct ort_status *create_state(struct ort_node *node, void *context, void **state) {
    (void)context;
    *state = node; /* runs have none */
    return NULL;
}

static void release_state(struct ort_node *node, void *state) { (void)node, (void)state; }

static void free_node(struct node *node) {
    for (int64_t i = 0; i < node->inputs + node->outputs; i++)
        free((void *)node->borders[i].tensor.shape);
    free(node->borders);
    if (Py_IsInitialized()) {
        PyGILState_STATE state = PyGILState_Ensure();
        Py_XDECREF(node->plan);
        Py_XDECREF(node->runner);
        PyGILState_Release(state);
    }
    free(node);
}

/* Read (place, bytes of an element, extents); an extent is a number, or -1 - k for symbol k. */
static int parse_border(PyObject *item, struct border *border) {
    struct tilesmith_tensor *tensor = &border->tensor;
    long long place, bytes;
    PyObject *extents;
    if (!PyArg_ParseTuple(item, "LLO!", &place, &bytes, &PyTuple_Type, &extents))
        return -1;
    border->place = place;
    tensor->element_bytes = bytes;
    tensor->rank = PyTuple_Size(extents);
    int64_t *shape = malloc(((size_t)tensor->rank + 1) * sizeof *shape);
    tensor->shape = shape;
    for (int64_t a = 0; shape && a < tensor->rank; a++)
        shape[a] = PyLong_AsLongLong(PyTuple_GetItem(extents, a));
    return shape && !PyErr_Occurred() ? 0 : -1;
}

static struct node *parse_node(PyObject *item) {
    PyObject *plan, *runner, *inputs, *outputs;
    unsigned long long sizes;
    long long size_values, symbols;
    if (!PyArg_ParseTuple(item, "OOKLLO!O!", &plan, &runner, &sizes, &size_values, &symbols, &PyTuple_Type, &inputs,
                          &PyTuple_Type, &outputs))
        return NULL;
    struct node *node = calloc(1, sizeof *node);
    int64_t count = PyTuple_Size(inputs) + PyTuple_Size(outputs);
    if (node == NULL || (node->borders = calloc((size_t)count + 1, sizeof *node->borders)) == NULL) {
        free(node);
        PyErr_NoMemory();
        return NULL;
    }
    node->head = (struct ort_node){PROVIDER_ORT_VERSION, create_state, compute, release_state};
    node->plan = Py_NewRef(plan);
    node->sizes = (tilesmith_sizes_fn)(uintptr_t)sizes;
    node->size_values = size_values;
    node->symbols = symbols;
    node->inputs = PyTuple_Size(inputs);
    node->outputs = PyTuple_Size(outputs);
    for (int64_t i = 0; i < count; i++) {
        PyObject *tensor = i < node->inputs ? PyTuple_GetItem(inputs, i) : PyTuple_GetItem(outputs, i - node->inputs);
        if (parse_border(tensor, &node->borders[i]) < 0) {
            free_node(node);
            if (!PyErr_Occurred())
                PyErr_NoMemory();
            return NULL;
        }
    }
    if (runner != Py_None && count <= MAX_TENSORS && symbols <= MAX_SYMBOLS && size_values <= MAX_VALUES)
        node->runner = Py_NewRef(runner);
    return node;
}

/* Providers: one for each session. */

struct provider {
    struct ort_ep head;
    PyObject *session;
};

static const char *provider_name(const struct ort_ep *ep) {
    (void)ep;
    return PROVIDER_NAME;
}

static struct ort_status *capability(struct ort_ep *ep, const void *graph, void *support) {
    if (!Py_IsInitialized())
        return ended();
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *done = PyObject_CallMethod(((struct provider *)ep)->session, "capability", "KK",
                                         (unsigned long long)(uintptr_t)graph, (unsigned long long)(uintptr_t)support);
    struct ort_status *status = done ? NULL : raised();
    Py_XDECREF(done);
    PyGILState_Release(state);
    return status;
}

static PyObject *addresses(const void **pointers, size_t count) {
    PyObject *made = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; made && i < count; i++)
        if (PyTuple_SetItem(made, (Py_ssize_t)i, PyLong_FromVoidPtr((void *)pointers[i])) < 0)
            Py_CLEAR(made);
    return made;
}

static void release_nodes(struct ort_ep *ep, struct ort_node **nodes, size_t count) {
    (void)ep;
    for (size_t i = 0; i < count; i++)
        if (nodes[i])
            free_node((struct node *)nodes[i]);
}

static struct ort_status *compile(struct ort_ep *ep, const void **graphs, const void **fused, size_t count,
                                  struct ort_node **nodes, void **context_nodes) {
    if (!Py_IsInitialized())
        return ended();
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *made = PyObject_CallMethod(((struct provider *)ep)->session, "compile", "NNK", addresses(graphs, count),
                                         addresses(fused, count), (unsigned long long)(uintptr_t)context_nodes);
    size_t parsed = 0;
    if (made && (!PyList_Check(made) || (size_t)PyList_Size(made) != count))
        PyErr_SetString(PyExc_TypeError, "compile returns a list with an item for each node");
    while (made && !PyErr_Occurred() && parsed < count) {
        struct node *node = parse_node(PyList_GetItem(made, (Py_ssize_t)parsed));
        if (node)
            nodes[parsed++] = &node->head;
    }
    struct ort_status *status = PyErr_Occurred() ? raised() : NULL;
    Py_XDECREF(made);
    PyGILState_Release(state);
    if (status) {
        release_nodes(ep, nodes, parsed);
        memset(nodes, 0, count * sizeof *nodes);
    }
    return status;
}

/* The factory. */

static const char *factory_name(const struct ort_factory *factory) {
    (void)factory;
    return PROVIDER_NAME;
}

static const char *vendor(const struct ort_factory *factory) {
    (void)factory;
    return "Tilesmith";
}

static uint32_t vendor_id(const struct ort_factory *factory) {
    (void)factory;
    return 0; /* of no maker of devices */
}

static const char *library_version(const struct ort_factory *factory) {
    (void)factory;
    return "0.1.0";
}

/* The provider's memory is the CPU's, which needs none. */
static struct ort_status *create_data_transfer(struct ort_factory *factory, void **transfer) {
    (void)factory;
    *transfer = NULL;
    return NULL;
}

static bool is_stream_aware(const struct ort_factory *factory) {
    (void)factory;
    return false;
}

/* The first CPU. */
static struct ort_status *supported_devices(struct ort_factory *factory, const void *const *devices, size_t count,
                                            void **ep_devices, size_t room, size_t *found) {
    const ort_any_function *ep_api = CALL(ORT_EP_API, ep_api_fn)();
    *found = 0;
    for (size_t i = 0; i < count && *found < 1 && *found < room; i++)
        if (CALL(ORT_DEVICE_TYPE, device_type_fn)(devices[i]) == ORT_CPU_DEVICE) {
            struct ort_status *failure = ((ep_device_fn)ep_api[ORT_CREATE_EP_DEVICE])(factory, devices[i], NULL, NULL,
                                                                                      &ep_devices[*found]);
            if (failure)
                return failure;
            ++*found;
        }
    return NULL;
}

static struct ort_status *create(struct ort_factory *factory, const void *const *devices, const void *const *metadata,
                                 size_t count, const void *options, const void *logger, struct ort_ep **made) {
    (void)factory, (void)devices, (void)metadata, (void)count;
    if (!Py_IsInitialized())
        return ended();
    struct provider *provider = calloc(1, sizeof *provider);
    if (provider == NULL)
        return failed("the system has no memory");
    PyGILState_STATE state = PyGILState_Ensure();
    provider->session = PyObject_CallMethod(answers, "session", "KK", (unsigned long long)(uintptr_t)options,
                                            (unsigned long long)(uintptr_t)logger);
    struct ort_status *status = provider->session ? NULL : raised();
    PyGILState_Release(state);
    if (status) {
        free(provider);
        return status;
    }
    provider->head = (struct ort_ep){
        .version = PROVIDER_ORT_VERSION,
        .name = provider_name,
        .capability = capability,
        .compile = compile,
        .release_nodes = release_nodes,
    };
    *made = &provider->head;
    return NULL;
}

static void release(struct ort_factory *factory, struct ort_ep *ep) {
    struct provider *provider = (struct provider *)ep;
    (void)factory;
    if (Py_IsInitialized()) {
        PyGILState_STATE state = PyGILState_Ensure();
        Py_XDECREF(provider->session);
        PyGILState_Release(state);
    }
    free(provider);
}

static struct ort_factory factory = {
    .version = PROVIDER_ORT_VERSION,
    .name = factory_name,
    .vendor = vendor,
    .supported_devices = supported_devices,
    .create = create,
    .release = release,
    .vendor_id = vendor_id,
    .library_version = library_version,
    .create_data_transfer = create_data_transfer,
    .is_stream_aware = is_stream_aware,
};

#define EXPORTED __attribute__((visibility("default")))

/* What ONNX Runtime calls when the library is registered. */
EXPORTED struct ort_status *CreateEpFactories(const char *name, const struct ort_api_base *base, const void *logger,
                                              struct ort_factory **factories, size_t room, size_t *count) {
    (void)name, (void)logger;
    api = base->api(PROVIDER_ORT_VERSION);
    if (api == NULL) {
        char text[MESSAGE];
        snprintf(text, sizeof text, "tilesmith's execution provider: expected ONNX Runtime 1.%d or later, found %s",
                 PROVIDER_ORT_VERSION, base->version());
        return ((status_fn)base->api(1)[ORT_CREATE_STATUS])(NOT_IMPLEMENTED, text);
    }
    if (answers == NULL || !Py_IsInitialized())
        return failed("register tilesmith's execution provider by tilesmith.ort.register()");
    if (room < 1)
        return failed("expected room for a factory");
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *done = PyObject_CallMethod(answers, "begin", "K", (unsigned long long)(uintptr_t)api);
    struct ort_status *status = done ? NULL : raised();
    Py_XDECREF(done);
    PyGILState_Release(state);
    factories[0] = &factory;
    *count = status ? 0 : 1;
    return status;
}

EXPORTED struct ort_status *ReleaseEpFactory(struct ort_factory *released) {
    (void)released; /* it is static */
    return NULL;
}

PyObject *tilesmith_set_provider(PyObject *module, PyObject *given) {
    (void)module;
    PyObject *before = answers;
    answers = Py_NewRef(given);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}
