/* Compiled models as custom operators of ONNX Runtime.
 *
 * ONNX Runtime loads a library of operators by calling its RegisterCustomOps.  What it hands over is declared here, as far
 * as it is used: two structures of function pointers, to which versions only append (the C API of ONNX Runtime 1.17,
 * onnxruntime_c_api.h).  So no header of ONNX Runtime is needed to compile this.
 */
#ifndef TILESMITH_ORT_H
#define TILESMITH_ORT_H

#include "tilesmith_model.h"

#define TILESMITH_ORT_VERSION 17 /* of the C API: the first in which an operator may use the session's threads */

struct ort_status;  /* of a failure; NULL: success */
struct ort_options; /* of a session */
struct ort_context; /* of one run of an operator */
struct ort_value;

/* The API is an array of functions; these are the places of those that are used. */
enum ort_function {
    ORT_CREATE_STATUS = 0,
    ORT_CREATE_DOMAIN = 26,
    ORT_DOMAIN_ADD = 27,
    ORT_OPTIONS_ADD_DOMAIN = 28,
    ORT_TENSOR_DATA = 51,
    ORT_DIMENSION_COUNT = 61,
    ORT_DIMENSIONS = 62,
    ORT_TYPE_AND_SHAPE = 65,
    ORT_INPUT = 90,
    ORT_OUTPUT = 91,
    ORT_RELEASE_TYPE_AND_SHAPE = 99,
    ORT_PARALLEL_FOR = 274
};

typedef void (*ort_any_function)(void);

struct ort_api_base {
    const ort_any_function *(*api)(uint32_t version); /* NULL: the version is not supported */
    const char *(*version)(void);
};

/* What ONNX Runtime reads of an operator. */
struct ort_custom_op {
    uint32_t version;
    void *(*create)(const struct ort_custom_op *, const ort_any_function *api, const void *info); /* see create_2 */
    const char *(*name)(const struct ort_custom_op *);
    const char *(*provider)(const struct ort_custom_op *);
    int (*input_type)(const struct ort_custom_op *, size_t index);
    size_t (*input_count)(const struct ort_custom_op *);
    int (*output_type)(const struct ort_custom_op *, size_t index);
    size_t (*output_count)(const struct ort_custom_op *);
    void (*compute)(void *kernel, struct ort_context *); /* see compute_2 */
    void (*destroy)(void *kernel);
    int (*input_characteristic)(const struct ort_custom_op *, size_t index);
    int (*output_characteristic)(const struct ort_custom_op *, size_t index);
    int (*input_memory)(const struct ort_custom_op *, size_t index);
    int (*least_inputs)(const struct ort_custom_op *);
    int (*are_inputs_alike)(const struct ort_custom_op *);
    int (*least_outputs)(const struct ort_custom_op *);
    int (*are_outputs_alike)(const struct ort_custom_op *);
    struct ort_status *(*create_2)(const struct ort_custom_op *, const ort_any_function *api, const void *info,
                                   void **kernel);
    struct ort_status *(*compute_2)(void *kernel, struct ort_context *);
    struct ort_status *(*infer_shapes)(const struct ort_custom_op *, void *context);
    int (*first_version)(const struct ort_custom_op *);
    int (*last_version)(const struct ort_custom_op *);
};

/* A model as an operator.
 * head: must be first: ONNX Runtime hands a pointer to it back.
 * input_types, output_types: numbers of TensorProto.DataType.
 * threads: that a run uses.
 * has_own_pool: whether they are those of tilesmith_pool_for; else they are the session's. */
struct tilesmith_ort_op {
    struct ort_custom_op head;
    const char *name;
    const struct tilesmith_description *description;
    const int32_t *input_types, *output_types;
    int64_t threads;
    int32_t has_own_pool;
};

/* The head of every operator. */
extern const struct ort_custom_op tilesmith_ort_head;

/* Add operators to a session's options, as RegisterCustomOps must. */
struct ort_status *tilesmith_ort_register(struct ort_options *options, const struct ort_api_base *base,
                                          const char *domain, struct tilesmith_ort_op *const *ops, int64_t count);

#endif
