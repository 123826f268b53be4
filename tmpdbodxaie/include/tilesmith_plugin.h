/* Compiled operators for other engines: a library registers each by its name, and the engine's own kind of layer calls it.
 *
 *     static int32_t add(void *engine, const struct tilesmith_operator *op) { ... }
 *     if (NAME_register(add, engine)) ...
 *
 *     struct tilesmith_model *kernel;                      one for each layer
 *     if (op->create(op, NULL, &kernel)) ...
 *     if (op->shapes(kernel, shapes, results)) ...         what memory the outputs need
 *     void *workspace = malloc(op->workspace_bytes(kernel, shapes));
 *     if (op->run(kernel, shapes, inputs, outputs, workspace)) ...
 *     op->destroy(kernel);
 *
 * Only `create` allocates.  Any number of runs may use a kernel at once, each with a workspace of its own.  Weights are in
 * the library.
 */
#ifndef TILESMITH_PLUGIN_H
#define TILESMITH_PLUGIN_H

#include "tilesmith_model.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TILESMITH_MOST_AXES 8 /* of a tensor of an operator */

/* The shape of a tensor, which is dense and row-major. */
struct tilesmith_shape {
    int64_t rank;
    int64_t extents[TILESMITH_MOST_AXES];
};

/* An operator.  It and what it refers to are constant, and live as long as the library is loaded.
 * Functions return a code where nothing else is said: TILESMITH_OK, or what `error` explains. */
struct tilesmith_operator {
    uint32_t abi;  /* TILESMITH_ABI of the library */
    uint32_t size; /* sizeof(struct tilesmith_operator) there: later versions append fields */
    const char *name;
    /* The inputs and outputs in order: names, types, ranks, and the extents that are fixed. */
    const struct tilesmith_description *description;

    /* Make a kernel; `options` may be NULL.  On failure `*kernel` is NULL. */
    int32_t (*create)(const struct tilesmith_operator *op, const struct tilesmith_options *options,
                      struct tilesmith_model **kernel);

    /* No run may be under way.  NULL is ignored. */
    void (*destroy)(struct tilesmith_model *kernel);

    /* The shapes of all outputs, from those of all inputs. */
    int32_t (*shapes)(const struct tilesmith_model *kernel, const struct tilesmith_shape *inputs,
                      struct tilesmith_shape *outputs);

    /* Bytes of the workspace of a run, or -1 if the shapes do not fit the operator. */
    int64_t (*workspace_bytes)(const struct tilesmith_model *kernel, const struct tilesmith_shape *inputs);

    /* Compute the outputs.
     * shapes: of the inputs.
     * inputs, outputs: addresses of dense tensors, aligned to their elements; no output overlaps anything else.
     * workspace: of workspace_bytes, at any address.  Its contents need not be kept. */
    int32_t (*run)(const struct tilesmith_model *kernel, const struct tilesmith_shape *shapes, const void *const *inputs,
                   void *const *outputs, void *workspace);

    /* Write what a code means to `text`, which has room for `size` bytes, cut and with a zero at the end.
     * kernel, shapes, workspace: what the call had that returned the code; each may be NULL.
     * Returns the length that the whole text has. */
    int64_t (*error)(const struct tilesmith_model *kernel, int32_t code, const struct tilesmith_shape *shapes,
                     const void *workspace, char *text, int64_t size);
};

/* What an engine does with an operator.  Other results than 0 end the registration. */
typedef int32_t (*tilesmith_add_fn)(void *engine, const struct tilesmith_operator *op);

#ifdef __cplusplus
}
#endif
#endif
