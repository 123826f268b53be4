/* The functions of operators of a plugin, to which the tables of each refer: see tilesmith_plugin.h. */
#ifndef TILESMITH_PLUGIN_FUNCTIONS_H
#define TILESMITH_PLUGIN_FUNCTIONS_H

#include "tilesmith_plugin.h"

int32_t tilesmith_plugin_create(const struct tilesmith_operator *op, const struct tilesmith_options *options,
                                struct tilesmith_model **kernel);
int32_t tilesmith_plugin_shapes(const struct tilesmith_model *kernel, const struct tilesmith_shape *inputs,
                                struct tilesmith_shape *outputs);
int64_t tilesmith_plugin_workspace_bytes(const struct tilesmith_model *kernel, const struct tilesmith_shape *inputs);
int32_t tilesmith_plugin_run(const struct tilesmith_model *kernel, const struct tilesmith_shape *shapes,
                             const void *const *inputs, void *const *outputs, void *workspace);
int64_t tilesmith_plugin_error(const struct tilesmith_model *kernel, int32_t code, const struct tilesmith_shape *shapes,
                               const void *workspace, char *text, int64_t size);

#endif
