/* Compiled layers as node operators of Tengine's CPU device.  A library of them has two functions for
 * load_tengine_plugin and unload_tengine_plugin, NAME_init and NAME_release. */
#ifndef TILESMITH_TENGINE_H
#define TILESMITH_TENGINE_H

#include "tilesmith_model.h"

#define TILESMITH_ANY INT32_MIN /* a parameter that the others, or shapes, decide */

/* A layer.  It computes nodes with this operator, these parameters, shapes and constants.
 * op: the operator's name.
 * description: its inputs and its output.
 * params: the first numbers of the operator's parameters, as bits.
 * is_constant: for each input of a node, 1 for a constant, which is in the library.
 * constants_sum: the sum of tilesmith_sum of each constant times 2 n + 1 for input number n. */
struct tilesmith_tengine_layer {
    const char *op;
    const struct tilesmith_description *description;
    const int32_t *params;
    int64_t param_count;
    const char *is_constant;
    int64_t input_count;
    uint64_t constants_sum;
};

/* Register layers.  Returns 0, or -1 after a message on standard error. */
int tilesmith_tengine_init(const struct tilesmith_tengine_layer *const *layers, int64_t count);

/* Take them back.  No graph may use them. */
int tilesmith_tengine_release(void);

#endif
