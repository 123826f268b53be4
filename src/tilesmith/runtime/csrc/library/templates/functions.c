EXPORTED int32_t NAME_create(const struct tilesmith_options *options, struct tilesmith_model **model) {
    return tilesmith_model_create(&description, options, model);
}

EXPORTED void NAME_destroy(struct tilesmith_model *model) { tilesmith_model_destroy(model); }

EXPORTED int64_t NAME_arena_bytes(const struct tilesmith_model *model, const int64_t *extents) {
    return tilesmith_model_arena_bytes(model, extents);
}

EXPORTED int32_t NAME_sizes(const struct tilesmith_model *model, const int64_t *extents, int64_t *shapes) {
    return tilesmith_model_sizes(model, extents, shapes);
}

EXPORTED int32_t NAME_found(const struct tilesmith_model *model, const int64_t *extents, const void *arena,
                            int64_t *shapes) {
    return tilesmith_model_found(model, extents, arena, shapes);
}

EXPORTED const void *NAME_default(const struct tilesmith_model *model, int64_t input) {
    return tilesmith_model_default(model, input);
}

EXPORTED int32_t NAME_run(const struct tilesmith_model *model, const int64_t *extents, const void *const *inputs,
                          void *const *outputs, void *arena) {
    return tilesmith_model_run(model, extents, inputs, outputs, arena);
}

EXPORTED int64_t NAME_error(const struct tilesmith_model *model, int32_t code, const void *arena, char *text,
                            int64_t size) {
    return tilesmith_model_error(model, code, arena, text, size);
}

EXPORTED int32_t NAME_input_sizes(const struct tilesmith_model *model, const int64_t *extents, int64_t *shapes) {
    return tilesmith_model_input_sizes(model, extents, shapes);
}

EXPORTED int32_t NAME_instance_create(const struct tilesmith_model *model, const int64_t *extents,
                                      struct tilesmith_instance **instance) {
    return tilesmith_instance_create(model, extents, instance);
}

EXPORTED void NAME_instance_destroy(struct tilesmith_instance *instance) { tilesmith_instance_destroy(instance); }

EXPORTED int32_t NAME_set_input(struct tilesmith_instance *instance, int64_t index, const void *data, int64_t bytes) {
    return tilesmith_instance_set_input(instance, index, data, bytes);
}

EXPORTED int32_t NAME_set_output(struct tilesmith_instance *instance, int64_t index, void *data, int64_t bytes) {
    return tilesmith_instance_set_output(instance, index, data, bytes);
}

EXPORTED int32_t NAME_get_output(const struct tilesmith_instance *instance, int64_t index, void **data,
                                 int64_t *bytes) {
    return tilesmith_instance_get_output(instance, index, data, bytes);
}

EXPORTED int32_t NAME_instance_shape(const struct tilesmith_instance *instance, int64_t index, int64_t *shape) {
    return tilesmith_instance_shape(instance, index, shape);
}

EXPORTED int32_t NAME_reset(struct tilesmith_instance *instance) { return tilesmith_instance_reset(instance); }

EXPORTED int32_t NAME_instance_run(struct tilesmith_instance *instance) { return tilesmith_instance_run(instance); }

EXPORTED int32_t NAME_submit(struct tilesmith_instance *instance, tilesmith_done_fn done, void *user) {
    return tilesmith_instance_submit(instance, done, user);
}

EXPORTED int32_t NAME_wait(struct tilesmith_instance *instance) { return tilesmith_instance_wait(instance); }

EXPORTED int64_t NAME_instance_error(const struct tilesmith_instance *instance, int32_t code, char *text,
                                     int64_t size) {
    return tilesmith_instance_error(instance, code, text, size);
}

EXPORTED const struct tilesmith_description *NAME_description(void) { return &description; }

EXPORTED const char *NAME_version(void) { return description.version; }

EXPORTED uint32_t NAME_abi(void) { return TILESMITH_ABI; }
