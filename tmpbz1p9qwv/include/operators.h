/* operators: operators compiled by Tilesmith 0.1.0 for native.
 *
 * last
 * Inputs:
 *   0: A: f32[8,8]
 * Outputs:
 *   0: output: f32[8,8]
 */
#ifndef OPERATORS_H
#define OPERATORS_H

#include "tilesmith_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Call add(engine, op) for each operator.  Returns the first result other than 0, or
 * TILESMITH_ARGUMENT if `add` is NULL. */
int32_t operators_register(tilesmith_add_fn add, void *engine);

#ifdef __cplusplus
}
#endif
#endif
