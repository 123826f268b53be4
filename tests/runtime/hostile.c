/* Calls a library of a model in every wrong way, and in the right ones.
 *
 *     hostile WEIGHTS CUT_WEIGHTS OTHER_WEIGHTS CHANGED_WEIGHTS
 *
 * The model: y = table[i], z = x . w for x: f32[n,16], i: i64[2], with n from 1 to 64. */
#include "hostile.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                           \
    do {                                                                                                           \
        if (!(condition)) {                                                                                        \
            fprintf(stderr, "line %d: expected %s\n", __LINE__, #condition);                                       \
            exit(1);                                                                                               \
        }                                                                                                          \
    } while (0)

static struct tilesmith_model *model;
static float x[64 * 16], y[2 * 4], z[64 * 8], expected[64 * 8];
static int64_t indices[2] = {1, 4};
static const int64_t extents[1] = {64};

static void *arena_of(int64_t bytes) {
    void *arena = aligned_alloc(TILESMITH_ALIGNMENT, (size_t)(bytes + 63) / 64 * 64);
    CHECK(arena);
    memset(arena, 0xFF, (size_t)bytes);
    return arena;
}

static void *many_runs(void *unused) {
    const void *inputs[] = {x, indices};
    float mine[64 * 8], rows[2 * 4];
    void *outputs[] = {rows, mine};
    void *arena = arena_of(hostile_arena_bytes(model, extents));
    for (int i = 0; i < 200; i++) {
        memset(mine, 0, sizeof mine);
        CHECK(hostile_run(model, extents, inputs, outputs, arena) == TILESMITH_OK);
        CHECK(!memcmp(mine, expected, sizeof mine));
    }
    free(arena);
    return unused;
}

static int32_t created(const char *weights, int64_t threads, int32_t verify) {
    struct tilesmith_options options = {.abi = TILESMITH_ABI, .size = sizeof options};
    options.weights = weights;
    options.threads = threads;
    options.verify = verify;
    hostile_destroy(model);
    model = NULL;
    int32_t code = hostile_create(&options, &model);
    CHECK(!model == !!code);
    return code;
}

static void creation(char **files) {
    struct tilesmith_options options = {.abi = TILESMITH_ABI + 1, .size = sizeof options};
    CHECK(hostile_create(NULL, NULL) == TILESMITH_ARGUMENT);
    CHECK(hostile_create(&options, &model) == TILESMITH_VERSION && !model);
    CHECK(hostile_create(NULL, &model) == TILESMITH_WEIGHTS && !model);
    CHECK(created("no such file", 1, 0) == TILESMITH_WEIGHTS);
    CHECK(created("/", 1, 0) == TILESMITH_WEIGHTS);
    CHECK(created(files[1], 1, 0) == TILESMITH_WEIGHTS);
    CHECK(created(files[2], 1, 0) == TILESMITH_WEIGHTS);
    CHECK(created(files[3], 1, 1) == TILESMITH_WEIGHTS);
    CHECK(created(files[3], 1, 0) == TILESMITH_OK);
    CHECK(created(files[0], -1, 0) == TILESMITH_ARGUMENT);
    CHECK(created(files[0], TILESMITH_MOST_THREADS + 1, 0) == TILESMITH_ARGUMENT);
    options.abi = TILESMITH_ABI;
    options.weights_data = files;
    options.weights_bytes = 8;
    CHECK(hostile_create(&options, &model) == TILESMITH_WEIGHTS && !model);
    options.size = 8; /* an older caller, which knows no other field */
    CHECK(hostile_create(&options, &model) == TILESMITH_WEIGHTS && !model);
    CHECK(created(files[0], 2, 1) == TILESMITH_OK);
}

static void runs(void) {
    const void *inputs[] = {x, indices};
    void *outputs[] = {y, z};
    void *arena = arena_of(hostile_arena_bytes(model, extents));
    int64_t shapes[4], none[1] = {0}, many[1] = {65}, wild[1] = {INT64_MIN};
    char text[256], cut[8];
    CHECK(hostile_sizes(model, extents, shapes) == TILESMITH_OK);
    CHECK(shapes[0] == 2 && shapes[1] == 4 && shapes[2] == 64 && shapes[3] == 8);
    CHECK(hostile_sizes(model, extents, NULL) == TILESMITH_ARGUMENT);
    CHECK(hostile_sizes(NULL, extents, shapes) == TILESMITH_ARGUMENT);
    CHECK(hostile_arena_bytes(model, NULL) == -1 && hostile_arena_bytes(NULL, extents) == -1);
    CHECK(hostile_arena_bytes(model, none) == -1 && hostile_arena_bytes(model, wild) == -1);
    CHECK(hostile_run(model, many, inputs, outputs, arena) == TILESMITH_SIZES);
    CHECK(hostile_run(model, NULL, inputs, outputs, arena) == TILESMITH_ARGUMENT);
    CHECK(hostile_run(NULL, extents, inputs, outputs, arena) == TILESMITH_ARGUMENT);
    CHECK(hostile_run(model, extents, NULL, outputs, arena) == TILESMITH_ARGUMENT);
    CHECK(hostile_run(model, extents, inputs, NULL, arena) == TILESMITH_ARGUMENT);
    CHECK(hostile_run(model, extents, inputs, outputs, NULL) == TILESMITH_ARGUMENT);
    CHECK(hostile_run(model, extents, inputs, outputs, (char *)arena + 8) == TILESMITH_ARGUMENT);
    inputs[0] = (char *)x + 2;
    CHECK(hostile_run(model, extents, inputs, outputs, arena) == TILESMITH_ARGUMENT);
    inputs[0] = NULL;
    CHECK(hostile_run(model, extents, inputs, outputs, arena) == TILESMITH_ARGUMENT);
    inputs[0] = x;
    outputs[1] = NULL;
    CHECK(hostile_run(model, extents, inputs, outputs, arena) == TILESMITH_ARGUMENT);
    outputs[1] = z;
    indices[1] = 5;
    int32_t code = hostile_run(model, extents, inputs, outputs, arena);
    CHECK(code == TILESMITH_ASSERTION);
    CHECK(hostile_error(model, code, arena, text, sizeof text) == (int64_t)strlen(text));
    CHECK(strstr(text, "expected indices from -5 to 4, found 5 at position 1"));
    CHECK(hostile_error(model, code, arena, cut, sizeof cut) == (int64_t)strlen(text) && strlen(cut) == 7);
    CHECK(hostile_error(model, code, arena, NULL, 0) == (int64_t)strlen(text));
    for (int32_t c = -1; c < 32; c++)
        CHECK(hostile_error(NULL, c, NULL, text, sizeof text) > 0);
    void *unused = arena_of(hostile_arena_bytes(model, extents));
    CHECK(hostile_error(model, code, unused, text, sizeof text) == (int64_t)strlen(text));
    free(unused);
    indices[1] = 4;
    CHECK(hostile_run(model, extents, inputs, outputs, arena) == TILESMITH_OK);
    for (int i = 0; i < 4; i++)
        CHECK(y[i] == (float)(4 + i) && y[4 + i] == (float)(16 + i));
    memcpy(expected, z, sizeof z);
    free(arena);
}

int main(int argc, char **argv) {
    pthread_t others[3];
    CHECK(argc == 5);
    for (int i = 0; i < 64 * 16; i++)
        x[i] = (float)(i % 7);
    creation(argv + 1);
    runs();
    for (int i = 0; i < 3; i++)
        CHECK(!pthread_create(&others[i], NULL, many_runs, NULL));
    for (int i = 0; i < 3; i++)
        CHECK(!pthread_join(others[i], NULL));
    hostile_destroy(model);
    hostile_destroy(NULL);
    puts("ok");
    return 0;
}
