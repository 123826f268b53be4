/* Instances of a model: see tilesmith_model.h. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif

#include "tilesmith_model.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#ifdef __linux__
#include <sys/mman.h>
#endif

#define HUGE_BYTES ((size_t)2 << 20) /* of a huge page on most processors */
#define STACK_BYTES ((size_t)8 << 20) /* kernels keep small tiles on the stack */

/* What the thread of an instance does. */
enum state {
    READY,    /* nothing */
    WAITING,  /* a run was submitted */
    RUNNING,  /* it runs */
    ANSWERING /* it calls back: the instance is the callback's */
};

/* Memory of one input or output. */
struct slot {
    void *own; /* of an output that does not live in an input, and of a state */
    int64_t bytes; /* the most that it may take */
    int64_t found; /* of an output: what the last run wrote */
};

struct tilesmith_instance {
    const struct tilesmith_model *model;
    const struct tilesmith_description *description;
    int64_t *extents;
    void *arena;
    const void **inputs;
    void **outputs;
    struct slot *input_slots, *output_slots;
    int64_t *shapes; /* of the outputs in the last run, one after the other */

    pthread_mutex_t mutex; /* guards the rest */
    pthread_cond_t change;
    pthread_t thread;
    int has_thread, is_ending;
    enum state state;
    int32_t code; /* of the last run */
    tilesmith_done_fn done;
    void *user;
};

/* Memory aligned to TILESMITH_ALIGNMENT.  Much of it lies in huge pages where the system has them: the first run then
 * takes a few page faults instead of thousands. */
static void *take(int64_t bytes) {
    size_t wanted = (size_t)bytes + 1, to = TILESMITH_ALIGNMENT;
    void *data = NULL;
#ifdef __linux__
    if (wanted >= HUGE_BYTES)
        to = HUGE_BYTES;
#endif
    wanted = (wanted + to - 1) / to * to;
#ifdef _WIN32
    data = _aligned_malloc(wanted, to);
#else
    if (posix_memalign(&data, to, wanted))
        return NULL;
#endif
#ifdef __linux__
    if (to == HUGE_BYTES)
        madvise(data, wanted, MADV_HUGEPAGE); /* advice only: where it fails, pages are small */
#endif
    return data;
}

static void give(void *data) {
#ifdef _WIN32
    _aligned_free(data);
#else
    free(data);
#endif
}

/* Bytes of tensors, whose extents stand one after the other. */
static void measure(const struct tilesmith_tensor *tensors, int64_t count, const int64_t *shapes, struct slot *slots) {
    for (int64_t i = 0; i < count; i++) {
        slots[i].bytes = tensors[i].element_bytes;
        for (int64_t axis = 0; axis < tensors[i].rank; axis++)
            slots[i].bytes *= *shapes++;
        slots[i].found = slots[i].bytes;
    }
}

/* Learn what the last run wrote. */
static int32_t settle(struct tilesmith_instance *instance) {
    const struct tilesmith_description *d = instance->description;
    const int64_t *shape = instance->shapes;
    int32_t code = tilesmith_model_found(instance->model, d->symbol_count ? instance->extents : NULL, instance->arena,
                                         instance->shapes);
    for (int64_t o = 0; !code && o < d->output_count; o++) {
        instance->output_slots[o].found = d->outputs[o].element_bytes;
        for (int64_t axis = 0; axis < d->outputs[o].rank; axis++)
            instance->output_slots[o].found *= *shape++;
    }
    return code;
}

static int64_t axes(const struct tilesmith_tensor *tensors, int64_t count) {
    int64_t total = 0;
    for (int64_t i = 0; i < count; i++)
        total += tensors[i].rank;
    return total;
}

/* Bind an input, and the outputs that live in it. */
static void bind(struct tilesmith_instance *instance, int64_t index, const void *data) {
    const struct tilesmith_description *d = instance->description;
    instance->inputs[index] = data;
    for (int64_t o = 0; o < d->output_count; o++)
        if (d->outputs[o].home == index)
            instance->outputs[o] = (void *)(uintptr_t)data;
}

/* Give the bound states their first values. */
static void reset(struct tilesmith_instance *instance) {
    for (int64_t i = 0; i < instance->description->input_count; i++)
        if (instance->description->inputs[i].is_state)
            memcpy((void *)(uintptr_t)instance->inputs[i], tilesmith_model_default(instance->model, i),
                   (size_t)instance->input_slots[i].bytes);
}

/* Find all sizes, and take memory for the arena and the outputs.  Returns a code. */
static int32_t furnish(struct tilesmith_instance *instance, const int64_t *extents) {
    const struct tilesmith_description *d = instance->description;
    int64_t in_axes = axes(d->inputs, d->input_count), out_axes = axes(d->outputs, d->output_count);
    int64_t *shapes = calloc((size_t)(in_axes + out_axes + 1), sizeof *shapes);
    instance->extents = calloc((size_t)d->symbol_count + 1, sizeof *instance->extents);
    instance->inputs = calloc((size_t)d->input_count + 1, sizeof *instance->inputs);
    instance->outputs = calloc((size_t)d->output_count + 1, sizeof *instance->outputs);
    instance->input_slots = calloc((size_t)d->input_count + 1, sizeof *instance->input_slots);
    instance->output_slots = calloc((size_t)d->output_count + 1, sizeof *instance->output_slots);
    instance->shapes = calloc((size_t)out_axes + 1, sizeof *instance->shapes);
    int32_t code = TILESMITH_NO_MEMORY;
    if (!shapes || !instance->shapes || !instance->extents || !instance->inputs || !instance->outputs || !instance->input_slots ||
        !instance->output_slots)
        goto end;
    if (d->symbol_count)
        memcpy(instance->extents, extents, (size_t)d->symbol_count * sizeof *extents);
    code = tilesmith_model_input_sizes(instance->model, instance->extents, shapes);
    if (!code)
        code = tilesmith_model_sizes(instance->model, instance->extents, shapes + in_axes);
    if (code)
        goto end;
    measure(d->inputs, d->input_count, shapes, instance->input_slots);
    measure(d->outputs, d->output_count, shapes + in_axes, instance->output_slots);
    memcpy(instance->shapes, shapes + in_axes, (size_t)out_axes * sizeof *shapes);
    int64_t bytes = tilesmith_model_arena_bytes(instance->model, instance->extents);
    code = bytes < 0 ? TILESMITH_OVERFLOW : TILESMITH_NO_MEMORY;
    if (bytes < 0 || !(instance->arena = take(bytes)))
        goto end;
    memset(instance->arena, 0, sizeof(struct tilesmith_failure)); /* an error may be asked for before the first run */
    for (int64_t o = 0; o < d->output_count; o++)
        if (d->outputs[o].home < 0) {
            instance->outputs[o] = instance->output_slots[o].own = take(instance->output_slots[o].bytes);
            if (!instance->outputs[o])
                goto end;
        }
    for (int64_t i = 0; i < d->input_count; i++) {
        if (d->inputs[i].is_state && !(instance->input_slots[i].own = take(instance->input_slots[i].bytes)))
            goto end;
        bind(instance, i, d->inputs[i].is_state ? instance->input_slots[i].own : tilesmith_model_default(instance->model, i));
    }
    reset(instance);
    code = TILESMITH_OK;
end:
    free(shapes);
    return code;
}

static void release(struct tilesmith_instance *instance) {
    for (int64_t o = 0; instance->output_slots && o < instance->description->output_count; o++)
        give(instance->output_slots[o].own);
    for (int64_t i = 0; instance->input_slots && i < instance->description->input_count; i++)
        give(instance->input_slots[i].own);
    give(instance->arena);
    free(instance->extents);
    free(instance->inputs);
    free(instance->outputs);
    free(instance->input_slots);
    free(instance->output_slots);
    free(instance->shapes);
    pthread_cond_destroy(&instance->change);
    pthread_mutex_destroy(&instance->mutex);
    free(instance);
}

int32_t tilesmith_instance_create(const struct tilesmith_model *model, const int64_t *extents,
                                  struct tilesmith_instance **instance) {
    if (!instance)
        return TILESMITH_ARGUMENT;
    *instance = NULL;
    if (!model || (!extents && tilesmith_model_description(model)->symbol_count))
        return TILESMITH_ARGUMENT;
    struct tilesmith_instance *made = calloc(1, sizeof *made);
    if (!made)
        return TILESMITH_NO_MEMORY;
    made->model = model;
    made->description = tilesmith_model_description(model);
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->change, NULL);
    int32_t code = furnish(made, extents);
    if (code) {
        release(made);
        return code;
    }
    *instance = made;
    return TILESMITH_OK;
}

void tilesmith_instance_destroy(struct tilesmith_instance *instance) {
    if (!instance)
        return;
    pthread_mutex_lock(&instance->mutex);
    instance->is_ending = 1;
    pthread_cond_broadcast(&instance->change);
    pthread_mutex_unlock(&instance->mutex);
    if (instance->has_thread)
        pthread_join(instance->thread, NULL);
    release(instance);
}

/* Whether the caller may use the instance; the mutex is held. */
static int is_free(const struct tilesmith_instance *instance) {
    return instance->state == READY ||
           (instance->state == ANSWERING && pthread_equal(pthread_self(), instance->thread));
}

/* Lock an instance for its owner.  Returns a code; the instance is locked if that is TILESMITH_OK. */
static int32_t enter(struct tilesmith_instance *instance) {
    if (!instance)
        return TILESMITH_ARGUMENT;
    pthread_mutex_lock(&instance->mutex);
    if (is_free(instance))
        return TILESMITH_OK;
    pthread_mutex_unlock(&instance->mutex);
    return TILESMITH_BUSY;
}

/* Unlock it.  Returns `code`. */
static int32_t leave(struct tilesmith_instance *instance, int32_t code) {
    pthread_mutex_unlock(&instance->mutex);
    return code;
}

/* Whether `data` can be bound to a tensor. */
static int is_fit(const struct tilesmith_tensor *tensor, const struct slot *slot, const void *data, int64_t bytes) {
    return !data || (bytes == slot->bytes && (uintptr_t)data % (uintptr_t)tensor->element_bytes == 0);
}

int32_t tilesmith_instance_set_input(struct tilesmith_instance *instance, int64_t index, const void *data,
                                     int64_t bytes) {
    int32_t code = enter(instance);
    if (code)
        return code;
    const struct tilesmith_description *d = instance->description;
    if (index < 0 || index >= d->input_count ||
        !is_fit(&d->inputs[index], &instance->input_slots[index], data, bytes))
        return leave(instance, TILESMITH_ARGUMENT);
    if (!data)
        data = d->inputs[index].is_state ? instance->input_slots[index].own : tilesmith_model_default(instance->model, index);
    bind(instance, index, data);
    return leave(instance, TILESMITH_OK);
}

int32_t tilesmith_instance_reset(struct tilesmith_instance *instance) {
    int32_t code = enter(instance);
    if (code)
        return code;
    reset(instance);
    return leave(instance, TILESMITH_OK);
}

int32_t tilesmith_instance_set_output(struct tilesmith_instance *instance, int64_t index, void *data, int64_t bytes) {
    int32_t code = enter(instance);
    if (code)
        return code;
    const struct tilesmith_description *d = instance->description;
    if (index < 0 || index >= d->output_count || d->outputs[index].home >= 0 ||
        !is_fit(&d->outputs[index], &instance->output_slots[index], data, bytes))
        return leave(instance, TILESMITH_ARGUMENT);
    instance->outputs[index] = data ? data : instance->output_slots[index].own;
    return leave(instance, TILESMITH_OK);
}

int32_t tilesmith_instance_get_output(const struct tilesmith_instance *instance, int64_t index, void **data,
                                      int64_t *bytes) {
    struct tilesmith_instance *locked = (struct tilesmith_instance *)(uintptr_t)instance;
    int32_t code = enter(locked);
    if (code)
        return code;
    if (index < 0 || index >= instance->description->output_count || !data)
        return leave(locked, TILESMITH_ARGUMENT);
    *data = instance->outputs[index];
    if (bytes)
        *bytes = instance->output_slots[index].found;
    return leave(locked, TILESMITH_OK);
}

int32_t tilesmith_instance_shape(const struct tilesmith_instance *instance, int64_t index, int64_t *shape) {
    struct tilesmith_instance *locked = (struct tilesmith_instance *)(uintptr_t)instance;
    int32_t code = enter(locked);
    if (code)
        return code;
    if (index < 0 || index >= instance->description->output_count || !shape)
        return leave(locked, TILESMITH_ARGUMENT);
    const int64_t *from = instance->shapes + axes(instance->description->outputs, index);
    for (int64_t axis = 0; axis < instance->description->outputs[index].rank; axis++)
        shape[axis] = from[axis];
    return leave(locked, TILESMITH_OK);
}

static int32_t run(struct tilesmith_instance *instance) {
    int32_t code =
        tilesmith_model_run(instance->model, instance->description->symbol_count ? instance->extents : NULL,
                            instance->inputs, instance->outputs, instance->arena);
    return code ? code : settle(instance);
}

int32_t tilesmith_instance_run(struct tilesmith_instance *instance) {
    int32_t code = enter(instance);
    if (code)
        return code;
    return leave(instance, instance->code = run(instance));
}

/* The thread of an instance. */
static void *serve(void *argument) {
    struct tilesmith_instance *instance = argument;
    pthread_mutex_lock(&instance->mutex);
    for (;;) {
        while (instance->state != WAITING && !instance->is_ending)
            pthread_cond_wait(&instance->change, &instance->mutex);
        if (instance->state != WAITING)
            break;
        instance->state = RUNNING;
        pthread_mutex_unlock(&instance->mutex);
        int32_t code = run(instance);
        pthread_mutex_lock(&instance->mutex);
        instance->code = code;
        instance->state = ANSWERING;
        tilesmith_done_fn done = instance->done;
        void *user = instance->user;
        pthread_mutex_unlock(&instance->mutex);
        if (done)
            done(instance, code, user);
        pthread_mutex_lock(&instance->mutex);
        if (instance->state == ANSWERING)
            instance->state = READY;
        pthread_cond_broadcast(&instance->change);
    }
    pthread_mutex_unlock(&instance->mutex);
    return NULL;
}

static int start_thread(struct tilesmith_instance *instance) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    instance->has_thread = !pthread_create(&instance->thread, &attributes, serve, instance);
    pthread_attr_destroy(&attributes);
    return instance->has_thread;
}

int32_t tilesmith_instance_submit(struct tilesmith_instance *instance, tilesmith_done_fn done, void *user) {
    int32_t code = enter(instance);
    if (code)
        return code;
    if (instance->is_ending) /* a callback while the instance ends */
        return leave(instance, TILESMITH_BUSY);
    if (!instance->has_thread && !start_thread(instance))
        return leave(instance, TILESMITH_NO_MEMORY);
    instance->done = done;
    instance->user = user;
    instance->state = WAITING;
    pthread_cond_broadcast(&instance->change);
    return leave(instance, TILESMITH_OK);
}

int32_t tilesmith_instance_wait(struct tilesmith_instance *instance) {
    if (!instance)
        return TILESMITH_ARGUMENT;
    pthread_mutex_lock(&instance->mutex);
    if (instance->has_thread && pthread_equal(pthread_self(), instance->thread))
        return leave(instance, TILESMITH_BUSY);
    while (instance->state != READY)
        pthread_cond_wait(&instance->change, &instance->mutex);
    return leave(instance, instance->code);
}

int64_t tilesmith_instance_error(const struct tilesmith_instance *instance, int32_t code, char *text, int64_t size) {
    return tilesmith_model_error(instance ? instance->model : NULL, code, instance ? instance->arena : NULL, text, size);
}
