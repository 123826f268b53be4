/* A compiled model as a delegate of TensorFlow Lite and LiteRT, which their interpreters load by
 * tflite_plugin_create_delegate (tflite/delegates/external/external_delegate_interface.h). */
#ifndef TILESMITH_TFLITE_H
#define TILESMITH_TFLITE_H

#include "tilesmith_model.h"

/* A model.
 * inputs, outputs: the numbers of its tensors in the file.
 * tensor_count, nodes_sum, constants_sum: of the file, by which a delegate knows it: the number of tensors of its subgraph, a
 * sum of the operators' codes and tensors (see sum_of_nodes in tflite.c), and the sum of tilesmith_sum of each constant tensor
 * times 2 n + 1 for tensor number n.
 * threads: of a run. */
struct tilesmith_tflite {
    const struct tilesmith_description *description;
    const int32_t *inputs, *outputs;
    uint64_t tensor_count, nodes_sum, constants_sum;
    int64_t threads;
};

extern const struct tilesmith_tflite tilesmith_tflite_model;

#endif
