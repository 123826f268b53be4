/* ONNX Runtime's execution provider, and what the C API of ONNX Runtime 1.24 says about it, as far as it is used.
 *
 * The extension is itself the library that ONNX Runtime loads: it exports CreateEpFactories and ReleaseEpFactory.
 */
#ifndef TILESMITH_PROVIDER_H
#define TILESMITH_PROVIDER_H

#include "python.h"

#include <stdbool.h>

#include "library/tilesmith_ort.h"

#define PROVIDER_NAME "TilesmithExecutionProvider"
#define PROVIDER_ORT_VERSION 24 /* of the C API: the first with all functions below */

/* Places in the array of the API's functions, and the version of ONNX Runtime that each came with. */
enum ort_provider_function {
    ORT_DEVICE_TYPE = 307,           /* HardwareDevice_Type, 1.22 */
    ORT_EP_API = 317,                /* GetEpApi, 1.22 */
    ORT_READ_TENSOR_DATA = 378,      /* GetTensorData, 1.23 */
    ORT_TENSOR_SHAPE = 414           /* GetTensorElementTypeAndShapeDataReference, 1.24 */
};

enum ort_ep_function {
    ORT_CREATE_EP_DEVICE = 0 /* 1.22 */
};

enum { ORT_CPU_DEVICE = 0 };

struct ort_ep;
struct ort_node;

/* What ONNX Runtime reads of a factory, an execution provider and a compiled node; `version` says which fields there
 * are.  Functions that may be absent and are never here are untyped. */
struct ort_factory {
    uint32_t version;
    const char *(*name)(const struct ort_factory *);
    const char *(*vendor)(const struct ort_factory *);
    struct ort_status *(*supported_devices)(struct ort_factory *, const void *const *devices, size_t count,
                                            void **ep_devices, size_t room, size_t *found);
    struct ort_status *(*create)(struct ort_factory *, const void *const *devices, const void *const *metadata,
                                 size_t count, const void *session_options, const void *logger, struct ort_ep **);
    void (*release)(struct ort_factory *, struct ort_ep *);
    uint32_t (*vendor_id)(const struct ort_factory *);
    const char *(*library_version)(const struct ort_factory *);
    ort_any_function validate_compiled, create_allocator, release_allocator;
    struct ort_status *(*create_data_transfer)(struct ort_factory *, void **transfer);
    bool (*is_stream_aware)(const struct ort_factory *);
    ort_any_function create_stream, incompatibility, importer, custom_domain_count, custom_domains;
};

struct ort_ep {
    uint32_t version;
    const char *(*name)(const struct ort_ep *);
    struct ort_status *(*capability)(struct ort_ep *, const void *graph, void *support);
    struct ort_status *(*compile)(struct ort_ep *, const void **graphs, const void **fused, size_t count,
                                  struct ort_node **nodes, void **context_nodes);
    void (*release_nodes)(struct ort_ep *, struct ort_node **nodes, size_t count);
    ort_any_function preferred_layout, should_convert_layout, set_options, run_start, run_end, create_allocator,
        create_stream, compatibility, kernel_registry, is_concurrent;
};

struct ort_node {
    uint32_t version;
    struct ort_status *(*create_state)(struct ort_node *, void *context, void **state);
    struct ort_status *(*compute)(struct ort_node *, void *state, struct ort_context *);
    void (*release_state)(struct ort_node *, void *state);
};

/* The object that answers what ONNX Runtime asks: see provider.c. */
PyObject *tilesmith_set_provider(PyObject *module, PyObject *answers);

#define MAX_SYMBOLS 64 /* sizes that only a run knows */
#define NO_ARENA (-1)  /* what a run returns for which there is no memory */

/* Run the program of a Runner without the GIL, on memory that the caller answers for: inputs, then outputs.
 * extents: of the run, with the bytes of arena and scratch for them; NULL for a program without symbols.
 * Returns a code, or NO_ARENA. */
int32_t tilesmith_runner_run(PyObject *runner, void **pointers, int64_t arena_bytes, int64_t scratch_bytes,
                             const int64_t *extents);

#endif
