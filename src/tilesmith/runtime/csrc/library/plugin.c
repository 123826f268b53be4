/* Compiled operators for other engines: see tilesmith_plugin.h. */
#include "plugin.h"
#include "shapes.h"

#include <stdio.h>

#define MOST_SYMBOLS 64 /* of an operator */

/* Why shapes do not fit.  axis: -1: it is the rank. */
struct misfit {
    const char *name;
    int64_t axis, expected, found;
};

/* The extents of a run, which the shapes of its inputs say. */
static int32_t read_shapes(const struct tilesmith_description *d, const struct tilesmith_shape *shapes, int64_t *extents,
                           struct misfit *misfit) {
    if (!shapes && d->input_count)
        return TILESMITH_ARGUMENT;
    for (int64_t i = 0; i < d->symbol_count; i++)
        extents[i] = -1;
    for (int64_t i = 0; i < d->input_count; i++) {
        const struct tilesmith_tensor *input = &d->inputs[i];
        *misfit = (struct misfit){input->name, -1, input->rank, shapes[i].rank};
        if (shapes[i].rank != input->rank)
            return TILESMITH_SHAPE;
        misfit->axis = tilesmith_match(input, shapes[i].extents, extents, &misfit->expected);
        if (misfit->axis >= 0) {
            misfit->found = shapes[i].extents[misfit->axis];
            return TILESMITH_SHAPE;
        }
    }
    return TILESMITH_OK;
}

/* The arena in a workspace: the first aligned address. */
static void *arena_of(const void *workspace) {
    return (void *)(((uintptr_t)workspace + TILESMITH_ALIGNMENT - 1) & ~(uintptr_t)(TILESMITH_ALIGNMENT - 1));
}

int32_t tilesmith_plugin_create(const struct tilesmith_operator *op, const struct tilesmith_options *options,
                                struct tilesmith_model **kernel) {
    if (op)
        return tilesmith_model_create(op->description, options, kernel);
    if (kernel)
        *kernel = NULL;
    return TILESMITH_ARGUMENT;
}

int32_t tilesmith_plugin_shapes(const struct tilesmith_model *kernel, const struct tilesmith_shape *inputs,
                                struct tilesmith_shape *outputs) {
    const struct tilesmith_description *d = tilesmith_model_description(kernel);
    struct misfit misfit;
    if (!d || !outputs)
        return TILESMITH_ARGUMENT;
    int64_t extents[MOST_SYMBOLS + 1], axes = 0;
    int32_t code = read_shapes(d, inputs, extents, &misfit);
    for (int64_t o = 0; o < d->output_count; o++)
        axes += d->outputs[o].rank;
    int64_t found[axes + 1], *next = found;
    if (!code)
        code = tilesmith_model_sizes(kernel, extents, found);
    if (code)
        return code;
    for (int64_t o = 0; o < d->output_count; o++) {
        outputs[o].rank = d->outputs[o].rank;
        for (int64_t axis = 0; axis < outputs[o].rank; axis++)
            outputs[o].extents[axis] = *next++;
    }
    return TILESMITH_OK;
}

int64_t tilesmith_plugin_workspace_bytes(const struct tilesmith_model *kernel, const struct tilesmith_shape *inputs) {
    const struct tilesmith_description *d = tilesmith_model_description(kernel);
    int64_t extents[MOST_SYMBOLS + 1];
    struct misfit misfit;
    if (!d || read_shapes(d, inputs, extents, &misfit))
        return -1;
    int64_t bytes = tilesmith_model_arena_bytes(kernel, extents);
    return bytes < 0 ? bytes : bytes + TILESMITH_ALIGNMENT - 1;
}

int32_t tilesmith_plugin_run(const struct tilesmith_model *kernel, const struct tilesmith_shape *shapes,
                             const void *const *inputs, void *const *outputs, void *workspace) {
    const struct tilesmith_description *d = tilesmith_model_description(kernel);
    int64_t extents[MOST_SYMBOLS + 1];
    struct misfit misfit;
    if (!d || !workspace)
        return TILESMITH_ARGUMENT;
    int32_t code = read_shapes(d, shapes, extents, &misfit);
    return code ? code : tilesmith_model_run(kernel, extents, inputs, outputs, arena_of(workspace));
}

int64_t tilesmith_plugin_error(const struct tilesmith_model *kernel, int32_t code, const struct tilesmith_shape *shapes,
                               const void *workspace, char *text, int64_t size) {
    const struct tilesmith_description *d = tilesmith_model_description(kernel);
    size_t room = text && size > 0 ? (size_t)size : 0;
    int64_t extents[MOST_SYMBOLS + 1];
    struct misfit m;
    if (code != TILESMITH_SHAPE || !d || !shapes || read_shapes(d, shapes, extents, &m) != code)
        return tilesmith_model_error(kernel, code, workspace ? arena_of(workspace) : NULL, text, size);
    if (m.axis < 0)
        return snprintf(room ? text : NULL, room, "input %s: expected rank %lld, found %lld", m.name,
                        (long long)m.expected, (long long)m.found);
    return snprintf(room ? text : NULL, room, "input %s: expected extent %lld of axis %lld, found %lld", m.name,
                    (long long)m.expected, (long long)m.axis, (long long)m.found);
}
