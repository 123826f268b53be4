/* A compiled model as a C library.  `tilesmith export` writes a header NAME.h beside this one, whose functions
 * NAME_create, NAME_run and so on are those below for one model.
 *
 *     struct tilesmith_model *model;
 *     if (NAME_create(NULL, &model)) ...
 *     void *arena = aligned_alloc(TILESMITH_ALIGNMENT, NAME_arena_bytes(model, NULL));
 *     if (NAME_run(model, NULL, inputs, outputs, arena)) ...
 *     NAME_destroy(model);
 *
 * Or with an instance, which keeps an arena, outputs, and what is bound to it:
 *
 *     struct tilesmith_instance *instance;
 *     if (NAME_instance_create(model, NULL, &instance)) ...
 *     if (NAME_set_input(instance, 0, image, sizeof image) || NAME_instance_run(instance)) ...
 *     if (NAME_get_output(instance, 0, &classes, &bytes)) ...
 *     NAME_instance_destroy(instance);
 *
 * Memory.  Only `create`, `instance_create` and the first `submit` allocate.  A run uses the arena that its caller
 * gives, or that of the instance.
 *
 * Threads.  A model does not change after `create`: any number of runs may use it at once, each with an arena of its
 * own.  There is no other state, except the workers of tilesmith_pool_for, which all models of a library share.
 *
 * States.  A model may keep values from run to run, such as the last samples of a stream.  They are its last inputs,
 * and outputs that live in them.  An instance keeps them, NAME_reset gives them their first values again.  Without an
 * instance the caller keeps them: in memory that begins as a copy of NAME_default, and that each run changes.
 *
 * Weights in a file are mapped: while a model lives, that file must not change.
 */
#ifndef TILESMITH_MODEL_H
#define TILESMITH_MODEL_H

#include "tilesmith.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TILESMITH_MOST_THREADS 4096

/* What the functions below return besides the codes of a run. */
enum tilesmith_model_code {
    TILESMITH_ARGUMENT = 16, /* NULL, an address that is not aligned, memory that overlaps, or a number out of range */
    TILESMITH_CPU = 17,      /* this processor lacks instructions that every version of the code needs */
    TILESMITH_WEIGHTS = 18,  /* the weights can't be read, are damaged, or belong to another model */
    TILESMITH_NO_MEMORY = 19, /* the system has none */
    TILESMITH_BUSY = 20,      /* a run of the instance is under way */
    TILESMITH_SHAPE = 21      /* the shape of an input does not fit an operator of a plugin */
};

/* An input or output. */
struct tilesmith_tensor {
    const char *name;
    const char *type;       /* "f32", "i64", "u8", ... */
    int64_t element_bytes;
    int64_t rank;
    const int64_t *shape;   /* extents; -1 - k: number k of the run's extents; INT64_MIN: a formula of
                             * those, see tilesmith_model_sizes */
    int64_t home;           /* of an output: the number of the input whose memory it lives in, else -1 */
    int64_t is_measured;    /* 1: a run finds the extents of this output, and `shape` is what they do not exceed */
    int64_t is_state;       /* of an input: 1: a value that the model keeps from run to run; the output whose home this
                             * is holds the next one */
};

/* A size that only a run knows: a number for it is one of the `extents` of a run. */
struct tilesmith_symbol {
    const char *name;
    int64_t least, most;
};

/* A call of a kernel, for messages. */
struct tilesmith_call {
    const char *label;
    const char *const *messages; /* of its assertions; NULL: none */
};

/* The code of a model for one kind of processor.  `tilesmith export` writes these tables. */
struct tilesmith_program {
    const char *const *features; /* that the processor must have, then NULL */
    tilesmith_entry entry;
    tilesmith_sizes_fn sizes;    /* NULL: no symbols */
    int64_t size_values;         /* how many values that computes */
    int64_t arena_bytes, scratch_bytes;
    const void *constants;       /* NULL: they are in a file */
    int64_t constants_bytes;
    int64_t constants_begin;     /* where the file has them */
    uint64_t constants_sum;      /* see tilesmith_sum */
    const struct tilesmith_call *calls;
    const int64_t *defaults;     /* of each input, where the constants hold its default, else -1; NULL: none has one */
};

/* A model; `programs` are in order of preference. */
struct tilesmith_description {
    const char *name, *version;
    const struct tilesmith_tensor *inputs, *outputs;
    const struct tilesmith_symbol *symbols;
    int64_t input_count, output_count, symbol_count;
    int64_t weights_bytes;       /* size of the file of weights; 0: there is none */
    const struct tilesmith_program *programs;
    int64_t program_count;
};

/* How a model is to run.  Zero stands for the default of every field but the first two. */
struct tilesmith_options {
    uint32_t abi;                           /* TILESMITH_ABI */
    uint32_t size;                          /* sizeof(struct tilesmith_options) */
    const char *weights;                    /* path of the file of weights, which is mapped */
    const void *weights_data;               /* its contents instead, aligned; they must outlive the model */
    int64_t weights_bytes;                  /* size of that */
    int64_t threads;                        /* of a run, the caller included; default 1 */
    tilesmith_parallel_for_fn parallel_for; /* the host's threads; default: a pool of the library's own */
    void *pool;                             /* for parallel_for, which finds it in the context */
    int32_t verify;                         /* 1: `create` reads all weights and compares their sum */
};

struct tilesmith_model;

/* Make a model.  `options` may be NULL.  On failure, which the result tells, `*model` is NULL. */
int32_t tilesmith_model_create(const struct tilesmith_description *description,
                               const struct tilesmith_options *options, struct tilesmith_model **model);

/* No run may be under way.  NULL is ignored. */
void tilesmith_model_destroy(struct tilesmith_model *model);

/* Bytes of the arena of a run, or -1 if `extents` are impossible.
 * extents: a number for each symbol, in order; NULL for a model without symbols. */
int64_t tilesmith_model_arena_bytes(const struct tilesmith_model *model, const int64_t *extents);

/* The extents of all outputs, one after the other; of those whose extents a run finds, what these do not exceed: their
 * memory must have room for so much.  Returns a code. */
int32_t tilesmith_model_sizes(const struct tilesmith_model *model, const int64_t *extents, int64_t *shapes);

/* The same of all inputs. */
int32_t tilesmith_model_input_sizes(const struct tilesmith_model *model, const int64_t *extents, int64_t *shapes);

/* The extents of all outputs of the last run that used `arena`, and `extents`.  Returns a code.  An output whose extents
 * the run found is a dense tensor of these, at the beginning of its memory. */
int32_t tilesmith_model_found(const struct tilesmith_model *model, const int64_t *extents, const void *arena,
                              int64_t *shapes);

/* What the model was made of; NULL for NULL. */
const struct tilesmith_description *tilesmith_model_description(const struct tilesmith_model *model);

/* The value of an input that its caller need not choose, to be given as its address; NULL: this input has none.  It is
 * the value that the model stores. */
const void *tilesmith_model_default(const struct tilesmith_model *model, int64_t input);

/* Run the model once.  Returns a code; after a failure the outputs hold nothing of use.
 * inputs, outputs: dense row-major tensors in order, aligned to their elements.  An output that lives in an input is
 *     written there, and its own address is not used.
 * arena: of tilesmith_model_arena_bytes, aligned to TILESMITH_ALIGNMENT.  Its contents need not be kept. */
int32_t tilesmith_model_run(const struct tilesmith_model *model, const int64_t *extents, const void *const *inputs,
                            void *const *outputs, void *arena);

/* The same, with a pool of its own for `parallel_for`, in place of that of the options. */
int32_t tilesmith_model_run_on(const struct tilesmith_model *model, const int64_t *extents, const void *const *inputs,
                               void *const *outputs, void *arena, void *pool);

/* Write what went wrong in the last run that used `arena`, or what a result of `create` means if `arena` is NULL, to
 * `text`, of `size` bytes with the final 0.  Returns the length that the whole text has. */
int64_t tilesmith_model_error(const struct tilesmith_model *model, int32_t code, const void *arena, char *text,
                              int64_t size);

/* Instances: runs of a model with bound inputs and outputs.  All instances of a model share its code and weights.  Any
 * number of instances may run at once; one instance belongs to one thread at a time. */
struct tilesmith_instance;

/* Make an instance, with an arena and memory for the outputs.  Inputs that have a default are bound to it.  On failure `*instance` is NULL.
 * model: must outlive the instance.
 * extents: a number for each symbol, which the instance keeps; NULL for a model without symbols. */
int32_t tilesmith_instance_create(const struct tilesmith_model *model, const int64_t *extents,
                                  struct tilesmith_instance **instance);

/* Waits for a run that is under way.  NULL is ignored.  Not from a callback of the instance. */
void tilesmith_instance_destroy(struct tilesmith_instance *instance);

/* Bind an input: later runs read `data`, which is not copied.
 * data: a dense row-major tensor aligned to its elements; NULL unbinds the input, or binds its default or the
 *     instance's own memory of a state again.  A run changes the memory that is bound to a state.
 * bytes: its size, which must be that of the input. */
int32_t tilesmith_instance_set_input(struct tilesmith_instance *instance, int64_t index, const void *data, int64_t bytes);

/* Bind an output: later runs write to `data` in place of the instance's own memory, which NULL brings back.  An output
 * that lives in an input has the memory that is bound there, and can't be bound. */
int32_t tilesmith_instance_set_output(struct tilesmith_instance *instance, int64_t index, void *data, int64_t bytes);

/* Where an output is, and its size in the last run.  Its contents are those of that run. */
int32_t tilesmith_instance_get_output(const struct tilesmith_instance *instance, int64_t index, void **data,
                                      int64_t *bytes);

/* The extents of an output in the last run; before one, the largest. */
int32_t tilesmith_instance_shape(const struct tilesmith_instance *instance, int64_t index, int64_t *shape);

/* Give all states their first values again.  Returns a code. */
int32_t tilesmith_instance_reset(struct tilesmith_instance *instance);

/* Run the model on what is bound.  Returns a code. */
int32_t tilesmith_instance_run(struct tilesmith_instance *instance);

/* Called when a submitted run is done, with its code, by the thread that ran it.  It may submit the next run and bind
 * what that uses. */
typedef void (*tilesmith_done_fn)(struct tilesmith_instance *instance, int32_t code, void *user);

/* Run the model on a thread of the instance, which the first call starts, and return at once.  TILESMITH_BUSY while a
 * run is under way, as set_input, set_output, get_output and run are then.
 * done: called after the run; may be NULL. */
int32_t tilesmith_instance_submit(struct tilesmith_instance *instance, tilesmith_done_fn done, void *user);

/* Wait until no submitted run is under way and its callback has returned.  Returns the code of the last run. */
int32_t tilesmith_instance_wait(struct tilesmith_instance *instance);

/* tilesmith_model_error for the last run of an instance. */
int64_t tilesmith_instance_error(const struct tilesmith_instance *instance, int32_t code, char *text, int64_t size);

/* A checksum of weights: a sum of 64-bit words, each multiplied by an odd number of its position. */
uint64_t tilesmith_sum(const void *data, int64_t bytes);

/* The `parallel_for` of the library's own threads, which sleep when they have nothing to do. */
void tilesmith_pool_for(struct tilesmith_context *context, tilesmith_body body, void *env, int64_t extent);

#ifdef __cplusplus
}
#endif
#endif
