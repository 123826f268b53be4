/* A host without threads and without Python: runs a program that is linked to it, once.
 *
 * Arguments: bytes of constants, of the arena, of scratch memory, of the input, and of each output.
 * Reads constants and input from standard input, writes the outputs. */
#include "tilesmith.h"

#include <stdio.h>
#include <stdlib.h>

extern int32_t tilesmith_main(struct tilesmith_context *context);

static void *room(const char *bytes) {
    size_t size = strtoull(bytes, NULL, 10);
    void *p = aligned_alloc(TILESMITH_ALIGNMENT, (size / TILESMITH_ALIGNMENT + 1) * TILESMITH_ALIGNMENT);
    return p ? p : (exit(2), NULL);
}

int main(int argc, char **argv) {
    if (argc < 6)
        return 2;
    void *constants = room(argv[1]), *input = room(argv[4]);
    void **outputs = calloc((size_t)argc, sizeof *outputs);
    for (int i = 5; i < argc; i++)
        outputs[i - 5] = room(argv[i]);
    size_t read = fread(constants, 1, strtoull(argv[1], NULL, 10), stdin);
    read += fread(input, 1, strtoull(argv[4], NULL, 10), stdin);
    if (read != strtoull(argv[1], NULL, 10) + strtoull(argv[4], NULL, 10))
        return 2;
    struct tilesmith_context context = {
        .abi = TILESMITH_ABI,
        .size = sizeof context,
        .inputs = (void *const[]){input},
        .outputs = outputs,
        .constants = constants,
        .arena = room(argv[2]),
        .scratch = room(argv[3]),
        .scratch_bytes = strtoll(argv[3], NULL, 10),
        .threads = 1,
        .parallel_for = tilesmith_serial_for,
        .arena_bytes = strtoll(argv[2], NULL, 10),
    };
    if (tilesmith_main(&context))
        return 1;
    for (int i = 5; i < argc; i++)
        fwrite(outputs[i - 5], 1, strtoull(argv[i], NULL, 10), stdout);
    return 0;
}
