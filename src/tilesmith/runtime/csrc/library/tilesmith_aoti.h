/* A compiled model with the C interface of libraries that AOTInductor writes, which PyTorch loads from a package.
 *
 * The functions that PyTorch calls are declared in torch/csrc/inductor/aoti_runtime/interface.h, those of PyTorch in
 * torch/csrc/inductor/aoti_torch/c/shim.h.  PyTorch promises that their binary interface stays as it is. */
#ifndef TILESMITH_AOTI_H
#define TILESMITH_AOTI_H

#include "tilesmith_model.h"

/* A model.
 * inputs_spec, outputs_spec: nesting of its arguments and results, as PyTorch writes it.
 * threads: of a run. */
struct tilesmith_aoti {
    const struct tilesmith_description *description;
    const char *inputs_spec, *outputs_spec;
    int64_t threads;
};

extern const struct tilesmith_aoti tilesmith_aoti_model;

#endif
