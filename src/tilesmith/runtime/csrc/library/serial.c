/* The pool of processors without threads: loops run in their caller. */
#include "tilesmith_model.h"

void tilesmith_pool_for(struct tilesmith_context *context, tilesmith_body body, void *env, int64_t extent) {
    tilesmith_serial_for(context, body, env, extent);
}
