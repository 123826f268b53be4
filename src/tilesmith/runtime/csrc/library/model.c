/* A compiled model as a C library: see tilesmith_model.h. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif

#include "processor.h"
#include "tilesmith_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__unix__) || defined(__APPLE__)
#define CAN_MAP 1
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

#define HEAD_BYTES 128 /* of an arena: the record of its last run */

struct tilesmith_model {
    const struct tilesmith_description *description;
    const struct tilesmith_program *program;
    const void *constants;
    int64_t threads;
    tilesmith_parallel_for_fn parallel_for;
    void *pool;
    void *weights; /* what was mapped or read, or NULL */
    int64_t weights_bytes;
};

/* What an arena begins with. */
struct record {
    struct tilesmith_failure failure;
};

static int64_t round_up(int64_t bytes) { return (bytes + TILESMITH_ALIGNMENT - 1) & -(int64_t)TILESMITH_ALIGNMENT; }

static int is_aligned(const void *address, int64_t to) { return (uintptr_t)address % (uintptr_t)to == 0; }

/* Weights. */

uint64_t tilesmith_sum(const void *data, int64_t bytes) {
    uint64_t sum = (uint64_t)bytes, factor = 1;
    const unsigned char *at = data;
    for (int64_t i = 0; i < bytes; i += 8) {
        uint64_t word = 0;
        for (int64_t b = 0; b < 8 && i + b < bytes; b++)
            word |= (uint64_t)at[i + b] << (8 * b);
        sum += word * factor;
        factor += 2;
    }
    return sum;
}

#ifdef CAN_MAP
/* The whole file in memory, or NULL. */
static void *read_file(const char *path, int64_t bytes) {
    struct stat info;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    void *data = MAP_FAILED;
    if (file < 0)
        return NULL;
    if (!fstat(file, &info) && (int64_t)info.st_size == bytes)
        data = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    return data == MAP_FAILED ? NULL : data;
}

static void free_file(void *data, int64_t bytes) { munmap(data, (size_t)bytes); }
#elif defined(__wasm__)
/* WebAssembly has no files: weights are in memory that the host fills. */
static void *read_file(const char *path, int64_t bytes) {
    (void)path, (void)bytes;
    return NULL;
}

static void free_file(void *data, int64_t bytes) { (void)data, (void)bytes; }
#else
static void *read_file(const char *path, int64_t bytes) {
    FILE *file = fopen(path, "rb");
    char *data = file ? malloc((size_t)bytes + TILESMITH_ALIGNMENT) : NULL, *aligned = NULL;
    if (data) { /* what malloc gave is kept before the aligned contents */
        aligned = data + TILESMITH_ALIGNMENT - (uintptr_t)data % TILESMITH_ALIGNMENT;
        memcpy(aligned - sizeof data, &data, sizeof data);
        if (fread(aligned, 1, (size_t)bytes, file) != (size_t)bytes || fgetc(file) != EOF) {
            free(data);
            aligned = NULL;
        }
    }
    if (file)
        fclose(file);
    return aligned;
}

static void free_file(void *data, int64_t bytes) {
    void *given;
    (void)bytes;
    memcpy(&given, (char *)data - sizeof given, sizeof given);
    free(given);
}
#endif

/* A file of weights begins with this; contents begin at multiples of TILESMITH_ALIGNMENT. */
struct weights_head {
    char magic[8];
    int64_t bytes;   /* of the file */
    uint64_t sums[6]; /* of the programs' constants: the file belongs to a model if these are the model's */
};

static int find_constants(struct tilesmith_model *model, const struct tilesmith_options *options) {
    const struct tilesmith_program *program = model->program;
    const struct tilesmith_description *d = model->description;
    model->constants = program->constants;
    if (!program->constants) {
        const struct weights_head *head = options->weights_data;
        int64_t number = program - d->programs;
        if (head) {
            if (options->weights_bytes != d->weights_bytes || !is_aligned(head, TILESMITH_ALIGNMENT))
                return TILESMITH_WEIGHTS;
        } else {
            if (!options->weights)
                return TILESMITH_WEIGHTS;
            head = model->weights = read_file(options->weights, d->weights_bytes);
            model->weights_bytes = d->weights_bytes;
            if (!head)
                return TILESMITH_WEIGHTS;
        }
        if (memcmp(head->magic, "TSWEIGHT", 8) || head->bytes != d->weights_bytes ||
            head->sums[number] != program->constants_sum)
            return TILESMITH_WEIGHTS;
        model->constants = (const char *)head + program->constants_begin;
    }
    if (options->verify && tilesmith_sum(model->constants, program->constants_bytes) != program->constants_sum)
        return TILESMITH_WEIGHTS;
    return TILESMITH_OK;
}

/* Making and unmaking. */

static int fill_in(struct tilesmith_model *model, const struct tilesmith_options *options) {
    const struct tilesmith_description *d = model->description;
    struct processor processor;
    int64_t i = 0;
    if (options->threads < 0 || options->threads > TILESMITH_MOST_THREADS)
        return TILESMITH_ARGUMENT;
    ask(&processor);
    while (i < d->program_count && !runs_here(&processor, &d->programs[i]))
        i++;
    if (i == d->program_count)
        return TILESMITH_CPU;
    model->program = &d->programs[i];
    model->threads = options->threads ? options->threads : 1;
    model->parallel_for = options->parallel_for;
    if (!model->parallel_for)
        model->parallel_for = model->threads > 1 ? tilesmith_pool_for : tilesmith_serial_for;
    model->pool = options->pool;
    return find_constants(model, options);
}

int32_t tilesmith_model_create(const struct tilesmith_description *description,
                               const struct tilesmith_options *options, struct tilesmith_model **model) {
    struct tilesmith_options all = {TILESMITH_ABI, sizeof all, NULL, NULL, 0, 0, NULL, NULL, 0};
    int32_t code;
    if (!model)
        return TILESMITH_ARGUMENT;
    *model = NULL;
    if (options) {
        if (options->abi != TILESMITH_ABI)
            return TILESMITH_VERSION;
        memcpy(&all, options, options->size < sizeof all ? options->size : sizeof all);
    }
    struct tilesmith_model *made = calloc(1, sizeof *made);
    if (!made)
        return TILESMITH_NO_MEMORY;
    made->description = description;
    code = fill_in(made, &all);
    if (code != TILESMITH_OK) {
        tilesmith_model_destroy(made);
        return code;
    }
    *model = made;
    return TILESMITH_OK;
}

void tilesmith_model_destroy(struct tilesmith_model *model) {
    if (model && model->weights)
        free_file(model->weights, model->weights_bytes);
    free(model);
}

/* Runs. */

#define MOST_VALUES 512 /* that the function for sizes computes; `tilesmith export` refuses more */

/* The sizes of a run: bytes of arena and of each thread's scratch, then extents of outputs. */
static int32_t sizes_of(const struct tilesmith_model *model, const int64_t *extents, int64_t *values) {
    const struct tilesmith_program *program = model->program;
    if (program->sizes)
        return extents ? program->sizes(extents, values) : TILESMITH_ARGUMENT;
    values[0] = program->arena_bytes;
    values[1] = program->scratch_bytes;
    return TILESMITH_OK;
}

/* How many extents of outputs a run finds. */
static int64_t measured_axes(const struct tilesmith_description *d) {
    int64_t axes = 0;
    for (int64_t o = 0; o < d->output_count; o++)
        axes += d->outputs[o].is_measured ? d->outputs[o].rank : 0;
    return axes;
}

static int is_measuring(const struct tilesmith_description *d) {
    for (int64_t o = 0; o < d->output_count; o++)
        if (d->outputs[o].is_measured)
            return 1;
    return 0;
}

/* What this file takes of an arena: a record, the extents that the run finds, the addresses of the outputs and of those
 * extents. */
static int64_t head_bytes(const struct tilesmith_description *d) {
    return HEAD_BYTES + (is_measuring(d) ? round_up(8 * (measured_axes(d) + d->output_count + 1)) : 0);
}

static int64_t *found_in(const void *arena) { return (int64_t *)(uintptr_t)((const char *)arena + HEAD_BYTES); }

/* The extents of an output, or what they do not exceed, among the sizes of a run: those of outputs, formulas of inputs,
 * then bounds. */
static const int64_t *shape_of(const struct tilesmith_model *model, const int64_t *values, int64_t output) {
    const struct tilesmith_description *d = model->description;
    int64_t is_measured = d->outputs[output].is_measured, next = 2;
    if (!model->program->sizes)
        return d->outputs[output].shape;
    for (int64_t o = 0; o < (is_measured ? d->output_count : output); o++)
        next += d->outputs[o].is_measured ? 0 : d->outputs[o].rank;
    for (int64_t i = 0; is_measured && i < d->input_count; i++)
        for (int64_t axis = 0; axis < d->inputs[i].rank; axis++)
            next += d->inputs[i].shape[axis] == INT64_MIN;
    for (int64_t o = 0; is_measured && o < output; o++)
        next += d->outputs[o].is_measured ? d->outputs[o].rank : 0;
    return values + next;
}

/* Bytes of a whole arena, or -1 if they don't fit 64 bits. */
static int64_t total_bytes(const struct tilesmith_model *model, const int64_t *values) {
    int64_t scratch = round_up(values[1]);
    if (values[0] < 0 || scratch < 0 || values[0] > INT64_MAX / 2 || scratch > INT64_MAX / 4 / model->threads)
        return -1;
    return head_bytes(model->description) + round_up(values[0]) + scratch * model->threads;
}

int64_t tilesmith_model_arena_bytes(const struct tilesmith_model *model, const int64_t *extents) {
    int64_t values[MOST_VALUES];
    if (!model || sizes_of(model, extents, values))
        return -1;
    return total_bytes(model, values);
}

int32_t tilesmith_model_sizes(const struct tilesmith_model *model, const int64_t *extents, int64_t *shapes) {
    int64_t values[MOST_VALUES];
    int32_t code;
    if (!model || !shapes)
        return TILESMITH_ARGUMENT;
    code = sizes_of(model, extents, values);
    for (int64_t o = 0; !code && o < model->description->output_count; o++) {
        const int64_t *shape = shape_of(model, values, o);
        for (int64_t axis = 0; axis < model->description->outputs[o].rank; axis++)
            *shapes++ = shape[axis];
    }
    return code;
}

int32_t tilesmith_model_found(const struct tilesmith_model *model, const int64_t *extents, const void *arena,
                              int64_t *shapes) {
    int32_t code = arena ? tilesmith_model_sizes(model, extents, shapes) : TILESMITH_ARGUMENT;
    if (code)
        return code;
    const struct tilesmith_description *d = model->description;
    const int64_t *found = found_in(arena);
    for (int64_t o = 0; o < d->output_count; o++)
        for (int64_t axis = 0; axis < d->outputs[o].rank; axis++, shapes++)
            if (d->outputs[o].is_measured)
                *shapes = *found++;
    return TILESMITH_OK;
}

int32_t tilesmith_model_input_sizes(const struct tilesmith_model *model, const int64_t *extents, int64_t *shapes) {
    int64_t values[MOST_VALUES];
    int32_t code;
    if (!model || !shapes)
        return TILESMITH_ARGUMENT;
    const struct tilesmith_description *d = model->description;
    int64_t next = 2;
    code = sizes_of(model, extents, values);
    for (int64_t o = 0; o < d->output_count; o++)
        next += d->outputs[o].is_measured ? 0 : d->outputs[o].rank;
    for (int64_t i = 0; !code && i < d->input_count; i++)
        for (int64_t axis = 0; axis < d->inputs[i].rank; axis++) {
            int64_t n = d->inputs[i].shape[axis];
            *shapes++ = n >= 0 ? n : n == INT64_MIN ? values[next++] : extents[-1 - n];
        }
    return code;
}

const struct tilesmith_description *tilesmith_model_description(const struct tilesmith_model *model) {
    return model ? model->description : NULL;
}

const void *tilesmith_model_default(const struct tilesmith_model *model, int64_t input) {
    const int64_t *begins = model ? model->program->defaults : NULL;
    if (!begins || input < 0 || input >= model->description->input_count || begins[input] < 0)
        return NULL;
    return (const char *)model->constants + begins[input];
}

/* Whether all addresses that a run uses are there and aligned to their elements. */
static int are_usable(const struct tilesmith_tensor *tensors, int64_t count, const void *const *addresses) {
    if (count && !addresses)
        return 0;
    for (int64_t i = 0; i < count; i++)
        if (tensors[i].home < 0 && (!addresses[i] || !is_aligned(addresses[i], tensors[i].element_bytes)))
            return 0;
    return 1;
}

/* The memory of a run's outputs. */
struct room {
    const struct tilesmith_model *model;
    const int64_t *values; /* the sizes of the run */
    void *const *outputs;
};

/* `grow` of a run: outputs are as large as they may become. */
static void *give_output(void *memory, int64_t slot, int64_t bytes, int64_t keep) {
    const struct room *room = memory;
    (void)keep; /* it is where it was */
    if (slot < 0 || slot >= room->model->description->output_count)
        return NULL;
    const struct tilesmith_tensor *t = &room->model->description->outputs[slot];
    const int64_t *shape = shape_of(room->model, room->values, slot);
    int64_t most = t->element_bytes;
    for (int64_t axis = 0; axis < t->rank; axis++) {
        if (shape[axis] > 0 && most > INT64_MAX / shape[axis])
            return NULL;
        most *= shape[axis];
    }
    return bytes <= most ? room->outputs[slot] : NULL;
}

int32_t tilesmith_model_run(const struct tilesmith_model *model, const int64_t *extents, const void *const *inputs,
                            void *const *outputs, void *arena) {
    return tilesmith_model_run_on(model, extents, inputs, outputs, arena, model ? model->pool : NULL);
}

int32_t tilesmith_model_run_on(const struct tilesmith_model *model, const int64_t *extents, const void *const *inputs,
                               void *const *outputs, void *arena, void *pool) {
    int64_t values[MOST_VALUES];
    int32_t code;
    if (!model || !arena || !is_aligned(arena, TILESMITH_ALIGNMENT))
        return TILESMITH_ARGUMENT;
    const struct tilesmith_description *d = model->description;
    if (!are_usable(d->inputs, d->input_count, inputs) ||
        !are_usable(d->outputs, d->output_count, (const void *const *)outputs))
        return TILESMITH_ARGUMENT;
    code = sizes_of(model, extents, values);
    if (code)
        return code;
    if (total_bytes(model, values) < 0)
        return TILESMITH_OVERFLOW;
    char *begin = (char *)arena + head_bytes(d);
    struct room room = {model, values, outputs};
    struct tilesmith_context context;
    memset(&context, 0, sizeof context);
    context.abi = TILESMITH_ABI;
    context.size = sizeof context;
    context.inputs = (void *const *)inputs;
    context.outputs = outputs;
    context.constants = model->constants;
    context.arena = begin;
    context.arena_bytes = round_up(values[0]);
    context.scratch = begin + context.arena_bytes;
    context.scratch_bytes = round_up(values[1]);
    context.threads = model->threads;
    context.parallel_for = model->parallel_for;
    context.pool = pool;
    context.extents = extents;
    if (is_measuring(d)) { /* the array of what it finds stands behind all outputs */
        int64_t *found = found_in(arena), axes = measured_axes(d);
        void **addresses = (void **)(void *)(found + axes);
        for (int64_t i = 0; i < axes; i++)
            found[i] = 0; /* if the run fails before */
        for (int64_t o = 0; o < d->output_count; o++)
            addresses[o] = outputs[o];
        addresses[d->output_count] = found;
        context.outputs = addresses;
        context.grow = give_output;
        context.memory = &room;
    }
    code = model->program->entry(&context);
    ((struct record *)arena)->failure = context.failure;
    return code;
}

/* Errors. */

#define INDEX "an index is outside its axis" /* its values: the index, its position, the extent of the axis */

static const char *meaning(int32_t code) {
    switch (code) {
    case TILESMITH_OK: return "no error";
    case TILESMITH_VERSION: return "the library and its caller have other versions of the native interface";
    case TILESMITH_MEMORY: return "the arena is too small";
    case TILESMITH_SIZES: return "an extent is outside the range that the model was compiled for";
    case TILESMITH_OVERFLOW: return "a size does not fit 64 bits for these extents";
    case TILESMITH_EXTENT: return "an extent that the run found can't be";
    case TILESMITH_GROWTH: return "the run needs more memory, as its data say, than there is";
    case TILESMITH_HOST: return "the model calls a function of the host, and there is none";
    case TILESMITH_ARGUMENT:
        return "an argument is NULL, not aligned, or out of range: expected the addresses of all inputs, outputs and "
               "of an arena aligned to 64 bytes, and extents if the model has symbols";
    case TILESMITH_CPU: return "this processor lacks instructions that the code needs; export the model for its level";
    case TILESMITH_WEIGHTS:
        return "the weights can't be read, are damaged, or belong to another model: expected the file that was written "
               "with this library, in options.weights";
    case TILESMITH_NO_MEMORY: return "the system has no memory";
    case TILESMITH_BUSY: return "a submitted run of this instance is under way: wait for it first";
    case TILESMITH_SHAPE: return "the shape of an input does not fit the operator";
    default: return "the run failed";
    }
}

int64_t tilesmith_model_error(const struct tilesmith_model *model, int32_t code, const void *arena, char *text,
                              int64_t size) {
    size_t room = text && size > 0 ? (size_t)size : 0;
    const struct tilesmith_failure *f = arena ? &((const struct record *)arena)->failure : NULL;
    if (code != TILESMITH_ASSERTION || !model || !f || f->code != code)
        return snprintf(room ? text : NULL, room, "%s", meaning(code));
    const struct tilesmith_call *call = &model->program->calls[f->call];
    const char *message = call->messages[f->assertion];
    if (!strcmp(message, INDEX) && f->count == 3) {
        long long index = f->values[0], position = f->values[1], low = -f->values[2], high = f->values[2] - 1;
        if (index == -(1LL << 61)) /* of a divisor */
            return snprintf(room ? text : NULL, room, "%s: expected divisors other than 0, found 0 at position %lld",
                            call->label, position);
        if (position < 0) { /* of an index that never counts from the end, less 2^62 */
            index = (long long)((unsigned long long)index + (1ULL << 62));
            position = -1 - position;
            low = 0;
        }
        return snprintf(room ? text : NULL, room, "%s: expected indices from %lld to %lld, found %lld at position %lld",
                        call->label, low, high, index, position);
    }
    int64_t length = snprintf(room ? text : NULL, room, "%s: %s", call->label, message);
    for (int32_t i = 0; i < f->count && i < TILESMITH_VALUES; i++) {
        size_t used = (size_t)length < room ? (size_t)length : room;
        length += snprintf(room > used ? text + used : NULL, room - used, "%s%lld", i ? ", " : ": found ",
                           (long long)f->values[i]);
    }
    return length;
}
