/* Operators of a Tilesmith plugin as custom kernels of Tengine. */
#ifndef TILESMITH_TENGINE_H
#define TILESMITH_TENGINE_H

#include "tengine/c_api.h"
#include "tilesmith_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The operators of a plugin that a search looks through. */
typedef int32_t (*tilesmith_register_fn)(tilesmith_add_fn add, void *engine);

/* Make operator `name` the kernel of a node on a device (NULL: the default one).  Returns 0, or -1: there is no such
 * operator, no memory, or Tengine refused it.
 *     tilesmith_set_kernel(node, NULL, operators_register, "RowNorm", 2);
 * threads: of a run. */
int tilesmith_set_kernel(node_t node, const char *device, tilesmith_register_fn plugin, const char *name, int threads);

#ifdef __cplusplus
}
#endif
#endif
