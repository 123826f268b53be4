/* Shapes that a caller gives, compared with those of a model. */
#ifndef TILESMITH_SHAPES_H
#define TILESMITH_SHAPES_H

#include "tilesmith_model.h"

/* Compare the shape of an input with the model's, and take the extents that only this run knows from it.
 * shape: as many extents as the input has axes.
 * extents: of the run; -1 where they are not known yet.
 * expected: what the axis that does not fit should have had.
 * Returns that axis, or -1: all fit. */
static inline int64_t tilesmith_match(const struct tilesmith_tensor *input, const int64_t *shape, int64_t *extents,
                                      int64_t *expected) {
    for (int64_t axis = 0; axis < input->rank; axis++) {
        *expected = input->shape[axis];
        if (*expected < 0) {
            int64_t *extent = &extents[-1 - *expected];
            if (*extent < 0)
                *extent = shape[axis];
            *expected = *extent;
        }
        if (shape[axis] != *expected || *expected < 0)
            return axis;
    }
    return -1;
}

#endif
