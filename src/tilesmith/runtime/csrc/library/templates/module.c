/* The functions that a WebAssembly module has for its host.  Addresses are offsets into its memory. */
#define EXPORTED(name) __attribute__((export_name(#name)))

#include <stdlib.h>

static int32_t code; /* of the last `create` */

/* NULL on failure, which last_code tells.  The weights must stay where they are. */
EXPORTED(create) struct tilesmith_model *create(const void *weights, int32_t bytes) {
    struct tilesmith_options options = {.abi = TILESMITH_ABI, .size = sizeof options};
    struct tilesmith_model *model;
    options.weights_data = weights;
    options.weights_bytes = bytes;
    code = tilesmith_model_create(&description, &options, &model);
    return model;
}

EXPORTED(last_code) int32_t last_code(void) { return code; }

EXPORTED(destroy) void destroy(struct tilesmith_model *model) { tilesmith_model_destroy(model); }

EXPORTED(arena_bytes) double arena_bytes(const struct tilesmith_model *model, const int64_t *extents) {
    return (double)tilesmith_model_arena_bytes(model, extents);
}

EXPORTED(sizes) int32_t sizes(const struct tilesmith_model *model, const int64_t *extents, int64_t *shapes) {
    return tilesmith_model_sizes(model, extents, shapes);
}

EXPORTED(default_input) const void *default_input(const struct tilesmith_model *model, int32_t input) {
    return tilesmith_model_default(model, input);
}

EXPORTED(run)
int32_t run(const struct tilesmith_model *model, const int64_t *extents, const void *const *addresses,
            void *const *results, void *arena) {
    return tilesmith_model_run(model, extents, addresses, results, arena);
}

/* The shapes of the last run's results, of which `sizes` gives the largest. */
EXPORTED(found)
int32_t found(const struct tilesmith_model *model, const int64_t *extents, const void *arena, int64_t *shapes) {
    return tilesmith_model_found(model, extents, arena, shapes);
}

EXPORTED(error)
int32_t error(const struct tilesmith_model *model, int32_t number, const void *arena, char *text, int32_t size) {
    return (int32_t)tilesmith_model_error(model, number, arena, text, size);
}

/* Aligned memory, or NULL. */
EXPORTED(allocate) void *allocate(uint32_t bytes) {
    uint32_t whole = (bytes + TILESMITH_ALIGNMENT) & -(uint32_t)TILESMITH_ALIGNMENT;
    return whole < bytes ? NULL : aligned_alloc(TILESMITH_ALIGNMENT, whole);
}

EXPORTED(release) void release(void *memory) { free(memory); }
