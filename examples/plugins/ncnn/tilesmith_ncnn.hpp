// Operators of a Tilesmith plugin as custom layers of ncnn.
#ifndef TILESMITH_NCNN_HPP
#define TILESMITH_NCNN_HPP

#include "net.h"
#include "tilesmith_plugin.h"

// Register every operator of a plugin as a layer type of its name:
//     tilesmith_register_layers(net, operators_register);
// Returns 0, or what ncnn returned for the first operator that it refused.
int tilesmith_register_layers(ncnn::Net &net, int32_t (*plugin)(tilesmith_add_fn add, void *engine));

#endif
