/* Runs NAME: `main [WEIGHTS [INPUT ... OUTPUT ...]]`, files of raw tensors in the order of NAME.h.  Inputs that are not
 * given have their default or are zero, outputs that are not given are not written.  A model with extents takes the least that are allowed. */
#include "NAME.h"

#include <stdio.h>
#include <stdlib.h>

static int fail(const struct tilesmith_model *model, int32_t code, const void *arena) {
    char text[512];
    NAME_error(model, code, arena, text, sizeof text);
    fprintf(stderr, "NAME: %s\n", text);
    return code;
}

static void *memory(int64_t bytes) {
    size_t whole = ((size_t)bytes / TILESMITH_ALIGNMENT + 1) * TILESMITH_ALIGNMENT;
#ifdef _WIN32
    char *found = _aligned_malloc(whole, TILESMITH_ALIGNMENT);
#else
    char *found = aligned_alloc(TILESMITH_ALIGNMENT, whole);
#endif
    for (size_t i = 0; found && i < whole; i++)
        found[i] = 0;
    return found;
}

int main(int argc, char **argv) {
    const struct tilesmith_description *d = NAME_description();
    struct tilesmith_options options = {.abi = TILESMITH_ABI, .size = sizeof options};
    struct tilesmith_model *model;
    const void *inputs[UPPER_INPUT_COUNT + 1];
    void *outputs[UPPER_OUTPUT_COUNT + 1], *arena;
    int64_t extents[UPPER_EXTENT_COUNT + 1], shapes[UPPER_OUTPUT_AXES + 1], *shape = shapes;
    options.weights = argc > 1 ? argv[1] : NULL;
    options.threads = 1;
    int32_t code = NAME_create(&options, &model);
    if (code)
        return fail(NULL, code, NULL);
    for (int i = 0; i < UPPER_EXTENT_COUNT; i++)
        extents[i] = d->symbols[i].least;
    arena = memory(NAME_arena_bytes(model, extents));
    code = NAME_sizes(model, extents, shapes);
    if (code)
        return fail(model, code, NULL);
    for (int i = 0; i < UPPER_INPUT_COUNT; i++) {
        int64_t bytes = d->inputs[i].element_bytes;
        for (int64_t a = 0; a < d->inputs[i].rank; a++) {
            int64_t n = d->inputs[i].shape[a];
            if (n < -UPPER_EXTENT_COUNT)
                return fail(model, TILESMITH_ARGUMENT, NULL); /* a formula: this example does not compute it */
            bytes *= n >= 0 ? n : extents[-1 - n];
        }
        void *data = memory(bytes);
        FILE *file = data && argc > 2 + i ? fopen(argv[2 + i], "rb") : NULL;
        if (!data || (file && fread(data, 1, (size_t)bytes, file) != (size_t)bytes))
            return fail(model, TILESMITH_ARGUMENT, NULL);
        if (file)
            fclose(file);
        const char *first = file ? NULL : NAME_default(model, i);
        for (int64_t b = 0; first && b < bytes; b++)
            ((char *)data)[b] = first[b]; /* a run changes what the model keeps */
        inputs[i] = data;
    }
    int64_t sizes[UPPER_OUTPUT_COUNT + 1];
    for (int o = 0; o < UPPER_OUTPUT_COUNT; o++) {
        sizes[o] = d->outputs[o].element_bytes;
        for (int64_t a = 0; a < d->outputs[o].rank; a++)
            sizes[o] *= *shape++;
        outputs[o] = d->outputs[o].home < 0 ? memory(sizes[o]) : (void *)inputs[d->outputs[o].home];
    }
    code = NAME_run(model, extents, inputs, outputs, arena);
    if (!code)
        code = NAME_found(model, extents, arena, shapes);
    if (code)
        return fail(model, code, arena);
    shape = shapes;
    for (int o = 0; o < UPPER_OUTPUT_COUNT; o++) {
        sizes[o] = d->outputs[o].element_bytes;
        for (int64_t a = 0; a < d->outputs[o].rank; a++)
            sizes[o] *= *shape++; /* as the run found it */
        FILE *file = argc > 2 + UPPER_INPUT_COUNT + o ? fopen(argv[2 + UPPER_INPUT_COUNT + o], "wb") : NULL;
        if (file && (fwrite(outputs[o], 1, (size_t)sizes[o], file) != (size_t)sizes[o] || fclose(file)))
            return fail(model, TILESMITH_ARGUMENT, NULL);
        printf("%s: %lld bytes of %s\n", d->outputs[o].name, (long long)sizes[o], d->outputs[o].type);
    }
    NAME_destroy(model);
    return 0;
}
