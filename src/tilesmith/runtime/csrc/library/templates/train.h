/* Training of NAME, with the functions of NAME.h.  A checkpoint is a .safetensors file, which
 * ts.Trainer restores, too. */
#ifndef UPPER_TRAIN_H
#define UPPER_TRAIN_H

#include "NAME.h"

#include <stdio.h>
#include <string.h>

#define UPPER_BATCH_COUNT COUNT /* arrays of a batch: the inputs, then the labels */

static const char NAME_checkpoint[] =
CHECKPOINT;
static const int64_t NAME_states[] = {STATES}; /* numbers of outputs, in the order of a checkpoint */

/* One step on a batch, whose arrays are as in NAME.h.  `loss` gets the loss before it.  A loss that is not finite leaves the
 * weights as they are.  Returns a code. */
static inline int32_t NAME_step(struct tilesmith_instance *instance, const void *const *batch, TYPE *loss) {
    const struct tilesmith_description *d = NAME_description();
    void *data = NULL;
    int64_t bytes = 0;
    int32_t code = TILESMITH_OK;
    for (int64_t i = 0; !code && i < UPPER_BATCH_COUNT; i++) {
        bytes = d->inputs[i].element_bytes;
        for (int64_t a = 0; a < d->inputs[i].rank; a++)
            bytes *= d->inputs[i].shape[a];
        code = NAME_set_input(instance, i, batch[i], bytes);
    }
    if (!code)
        code = NAME_instance_run(instance);
    if (!code)
        code = NAME_get_output(instance, 0, &data, &bytes);
    if (!code)
        memcpy(loss, data, sizeof *loss);
    return code;
}

/* Write the weights and all other states to a file.  Returns 0, or 1 if it can't be written.  Write it beside the last
 * checkpoint and rename it: the file is whole only when this returns. */
static inline int NAME_save(struct tilesmith_instance *instance, const char *path) {
    FILE *file = fopen(path, "wb");
    uint64_t length = sizeof NAME_checkpoint - 1;
    int is_bad = !file || fwrite(&length, 8, 1, file) != 1 || fwrite(NAME_checkpoint, length, 1, file) != 1;
    for (size_t i = 0; !is_bad && i < sizeof NAME_states / sizeof *NAME_states; i++) {
        void *data;
        int64_t bytes;
        is_bad = NAME_get_output(instance, NAME_states[i], &data, &bytes) ||
                 fwrite(data, (size_t)bytes, 1, file) != 1;
    }
    for (int i = 0; !is_bad && i < REST; i++)
        is_bad = fputc(0, file) == EOF;
    if (file && fclose(file))
        is_bad = 1;
    return is_bad;
}

/* Read what NAME_save wrote, or what ts.Trainer saved.  Returns 0; 1 for a file that can't be read or is of another
 * training: the states are undefined then, until NAME_reset. */
static inline int NAME_load(struct tilesmith_instance *instance, const char *path) {
    FILE *file = fopen(path, "rb");
    uint64_t length = 0;
    int is_bad = !file || fread(&length, 8, 1, file) != 1 || length != sizeof NAME_checkpoint - 1;
    for (uint64_t i = 0; !is_bad && i < length; i++)
        is_bad = fgetc(file) != (unsigned char)NAME_checkpoint[i];
    for (size_t i = 0; !is_bad && i < sizeof NAME_states / sizeof *NAME_states; i++) {
        void *data;
        int64_t bytes;
        is_bad = NAME_get_output(instance, NAME_states[i], &data, &bytes) ||
                 fread(data, (size_t)bytes, 1, file) != 1;
    }
    if (file)
        fclose(file);
    return is_bad;
}

#endif
