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

/* Weights that the host has in memory: whole, not aligned, and with each part of their head damaged. */
static void memory(const char *file) {
    struct tilesmith_options options = {.abi = TILESMITH_ABI, .size = sizeof options};
    size_t bytes = (size_t)HOSTILE_WEIGHTS_BYTES;
    char *data = arena_of((int64_t)bytes + 64);
    FILE *opened = fopen(file, "rb");
    hostile_destroy(model);
    CHECK(opened && fread(data, 1, bytes, opened) == bytes && !fclose(opened));
    options.weights_data = data;
    options.weights_bytes = (int64_t)bytes;
    options.verify = 1;
    CHECK(hostile_create(&options, &model) == TILESMITH_OK);
    hostile_destroy(model);
    options.weights_bytes = (int64_t)bytes - 1;
    CHECK(hostile_create(&options, &model) == TILESMITH_WEIGHTS && !model);
    options.weights_bytes = INT64_MIN;
    CHECK(hostile_create(&options, &model) == TILESMITH_WEIGHTS && !model);
    options.weights_bytes = (int64_t)bytes;
    for (int at = 0; at <= 16; at += 8) { /* the magic, the size, the sum */
        data[at] ^= 1;
        CHECK(hostile_create(&options, &model) == TILESMITH_WEIGHTS && !model);
        data[at] ^= 1;
    }
    memmove(data + 8, data, bytes);
    options.weights_data = data + 8;
    CHECK(hostile_create(&options, &model) == TILESMITH_WEIGHTS && !model);
    free(data);
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

static struct tilesmith_instance *made(void) {
    struct tilesmith_instance *instance;
    CHECK(hostile_instance_create(model, extents, &instance) == TILESMITH_OK);
    return instance;
}

static void instances(void) {
    struct tilesmith_instance *instance;
    int64_t none[1] = {0}, wild[1] = {INT64_MIN}, shapes[3], bytes;
    char text[256];
    void *found;
    CHECK(hostile_input_sizes(model, extents, shapes) == TILESMITH_OK);
    CHECK(shapes[0] == 64 && shapes[1] == 16 && shapes[2] == 2);
    CHECK(hostile_input_sizes(NULL, extents, shapes) == TILESMITH_ARGUMENT);
    CHECK(hostile_input_sizes(model, extents, NULL) == TILESMITH_ARGUMENT);
    CHECK(hostile_input_sizes(model, wild, shapes) == TILESMITH_SIZES);
    CHECK(hostile_instance_create(model, extents, NULL) == TILESMITH_ARGUMENT);
    CHECK(hostile_instance_create(NULL, extents, &instance) == TILESMITH_ARGUMENT && !instance);
    CHECK(hostile_instance_create(model, NULL, &instance) == TILESMITH_ARGUMENT && !instance);
    CHECK(hostile_instance_create(model, none, &instance) == TILESMITH_SIZES && !instance);
    CHECK(hostile_instance_create(model, wild, &instance) == TILESMITH_SIZES && !instance);
    instance = made();
    CHECK(hostile_instance_error(instance, TILESMITH_ASSERTION, text, sizeof text) == (int64_t)strlen(text));
    CHECK(hostile_instance_run(instance) == TILESMITH_ARGUMENT); /* nothing is bound */
    CHECK(hostile_set_input(NULL, 0, x, sizeof x) == TILESMITH_ARGUMENT);
    CHECK(hostile_set_input(instance, -1, x, sizeof x) == TILESMITH_ARGUMENT);
    CHECK(hostile_set_input(instance, 2, x, sizeof x) == TILESMITH_ARGUMENT);
    CHECK(hostile_set_input(instance, 0, x, sizeof x - 4) == TILESMITH_ARGUMENT);
    CHECK(hostile_set_input(instance, 0, x, -1) == TILESMITH_ARGUMENT);
    CHECK(hostile_set_input(instance, 0, (char *)x + 2, sizeof x) == TILESMITH_ARGUMENT);
    CHECK(hostile_set_input(instance, 0, x, sizeof x) == TILESMITH_OK);
    CHECK(hostile_instance_run(instance) == TILESMITH_ARGUMENT); /* one is missing */
    CHECK(hostile_set_input(instance, 1, indices, sizeof indices) == TILESMITH_OK);
    CHECK(hostile_set_output(NULL, 0, y, sizeof y) == TILESMITH_ARGUMENT);
    CHECK(hostile_set_output(instance, 2, y, sizeof y) == TILESMITH_ARGUMENT);
    CHECK(hostile_set_output(instance, 0, y, sizeof y + 4) == TILESMITH_ARGUMENT);
    CHECK(hostile_set_output(instance, 0, (char *)y + 1, sizeof y) == TILESMITH_ARGUMENT);
    CHECK(hostile_get_output(NULL, 0, &found, &bytes) == TILESMITH_ARGUMENT);
    CHECK(hostile_get_output(instance, 2, &found, &bytes) == TILESMITH_ARGUMENT);
    CHECK(hostile_get_output(instance, INT64_MIN, &found, &bytes) == TILESMITH_ARGUMENT);
    CHECK(hostile_get_output(instance, 0, NULL, &bytes) == TILESMITH_ARGUMENT);
    CHECK(hostile_instance_run(NULL) == TILESMITH_ARGUMENT);
    CHECK(hostile_submit(NULL, NULL, NULL) == TILESMITH_ARGUMENT && hostile_wait(NULL) == TILESMITH_ARGUMENT);
    indices[1] = -6;
    int32_t code = hostile_instance_run(instance);
    CHECK(code == TILESMITH_ASSERTION);
    CHECK(hostile_instance_error(instance, code, text, sizeof text) == (int64_t)strlen(text));
    CHECK(strstr(text, "expected indices from -5 to 4, found -6 at position 1"));
    CHECK(hostile_submit(instance, NULL, NULL) == TILESMITH_OK);
    CHECK(hostile_wait(instance) == TILESMITH_ASSERTION);
    indices[1] = 4;
    CHECK(hostile_instance_error(NULL, code, NULL, 0) > 0);
    CHECK(hostile_instance_run(instance) == TILESMITH_OK);
    CHECK(hostile_get_output(instance, 1, &found, &bytes) == TILESMITH_OK);
    CHECK(found != z && bytes == sizeof z && !memcmp(found, expected, sizeof z));
    memset(z, 0, sizeof z);
    CHECK(hostile_set_output(instance, 1, z, sizeof z) == TILESMITH_OK);
    CHECK(hostile_instance_run(instance) == TILESMITH_OK && !memcmp(z, expected, sizeof z));
    CHECK(hostile_get_output(instance, 1, &found, NULL) == TILESMITH_OK && found == z);
    CHECK(hostile_set_output(instance, 1, NULL, 0) == TILESMITH_OK);
    CHECK(hostile_get_output(instance, 1, &found, NULL) == TILESMITH_OK && found != z);
    CHECK(hostile_set_input(instance, 0, NULL, 0) == TILESMITH_OK);
    CHECK(hostile_instance_run(instance) == TILESMITH_ARGUMENT);
    hostile_instance_destroy(instance);
    hostile_instance_destroy(NULL);
}

/* Runs that submit the next one. */
struct chain {
    pthread_mutex_t gate; /* held by whoever keeps callbacks from going on */
    int left, wrong;
};

static void again(struct tilesmith_instance *instance, int32_t code, void *user) {
    struct chain *chain = user;
    void *found;
    pthread_mutex_lock(&chain->gate);
    chain->wrong += code != TILESMITH_OK || hostile_get_output(instance, 1, &found, NULL) != TILESMITH_OK ||
                    memcmp(found, expected, sizeof expected) || hostile_wait(instance) != TILESMITH_BUSY;
    chain->wrong += --chain->left > 0 && hostile_submit(instance, again, chain) != TILESMITH_OK;
    pthread_mutex_unlock(&chain->gate);
}

static void submissions(void) {
    struct tilesmith_instance *several[3];
    struct chain chains[3];
    void *found;
    for (int i = 0; i < 3; i++) {
        several[i] = made();
        CHECK(hostile_wait(several[i]) == TILESMITH_OK); /* nothing is under way */
        chains[i] = (struct chain){PTHREAD_MUTEX_INITIALIZER, 50, 0};
        CHECK(hostile_set_input(several[i], 0, x, sizeof x) == TILESMITH_OK);
        CHECK(hostile_set_input(several[i], 1, indices, sizeof indices) == TILESMITH_OK);
        pthread_mutex_lock(&chains[i].gate); /* the first run can't be over before this is opened */
        CHECK(hostile_submit(several[i], again, &chains[i]) == TILESMITH_OK);
        CHECK(hostile_submit(several[i], again, &chains[i]) == TILESMITH_BUSY);
        CHECK(hostile_set_input(several[i], 0, x, sizeof x) == TILESMITH_BUSY);
        CHECK(hostile_set_output(several[i], 1, z, sizeof z) == TILESMITH_BUSY);
        CHECK(hostile_get_output(several[i], 1, &found, NULL) == TILESMITH_BUSY);
        CHECK(hostile_instance_run(several[i]) == TILESMITH_BUSY);
    }
    for (int i = 0; i < 3; i++)
        pthread_mutex_unlock(&chains[i].gate);
    for (int i = 0; i < 3; i++) {
        CHECK(hostile_wait(several[i]) == TILESMITH_OK);
        CHECK(chains[i].left == 0 && chains[i].wrong == 0);
    }
    chains[0].left = 1;
    CHECK(hostile_submit(several[0], again, &chains[0]) == TILESMITH_OK);
    for (int i = 0; i < 3; i++)
        hostile_instance_destroy(several[i]); /* waits for what is under way */
    CHECK(chains[0].left == 0 && chains[0].wrong == 0);
}

int main(int argc, char **argv) {
    pthread_t others[3];
    CHECK(argc == 5);
    for (int i = 0; i < 64 * 16; i++)
        x[i] = (float)(i % 7);
    memory(argv[1]);
    creation(argv + 1);
    runs();
    instances();
    submissions();
    for (int i = 0; i < 3; i++)
        CHECK(!pthread_create(&others[i], NULL, many_runs, NULL));
    for (int i = 0; i < 3; i++)
        CHECK(!pthread_join(others[i], NULL));
    hostile_destroy(model);
    hostile_destroy(NULL);
    puts("ok");
    return 0;
}
