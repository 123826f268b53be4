int32_t NAME_create(const struct tilesmith_options *options, struct tilesmith_model **model);
void NAME_destroy(struct tilesmith_model *model);
int64_t NAME_arena_bytes(const struct tilesmith_model *model, const int64_t *extents);
int32_t NAME_sizes(const struct tilesmith_model *model, const int64_t *extents, int64_t *shapes);
int32_t NAME_found(const struct tilesmith_model *model, const int64_t *extents, const void *arena, int64_t *shapes);
const void *NAME_default(const struct tilesmith_model *model, int64_t input);
int32_t NAME_run(const struct tilesmith_model *model, const int64_t *extents, const void *const *inputs,
                 void *const *outputs, void *arena);
int32_t NAME_input_sizes(const struct tilesmith_model *model, const int64_t *extents, int64_t *shapes);
int64_t NAME_error(const struct tilesmith_model *model, int32_t code, const void *arena, char *text, int64_t size);

/* Runs with bound inputs and outputs. */
int32_t NAME_instance_create(const struct tilesmith_model *model, const int64_t *extents,
                             struct tilesmith_instance **instance);
void NAME_instance_destroy(struct tilesmith_instance *instance);
int32_t NAME_set_input(struct tilesmith_instance *instance, int64_t index, const void *data, int64_t bytes);
int32_t NAME_set_output(struct tilesmith_instance *instance, int64_t index, void *data, int64_t bytes);
int32_t NAME_get_output(const struct tilesmith_instance *instance, int64_t index, void **data, int64_t *bytes);
int32_t NAME_instance_shape(const struct tilesmith_instance *instance, int64_t index, int64_t *shape);
int32_t NAME_reset(struct tilesmith_instance *instance);
int32_t NAME_instance_run(struct tilesmith_instance *instance);
int32_t NAME_submit(struct tilesmith_instance *instance, tilesmith_done_fn done, void *user);
int32_t NAME_wait(struct tilesmith_instance *instance);
int64_t NAME_instance_error(const struct tilesmith_instance *instance, int32_t code, char *text, int64_t size);

/* Names, types and shapes; the library's version; the version of its native interface (TILESMITH_ABI). */
const struct tilesmith_description *NAME_description(void);
const char *NAME_version(void);
uint32_t NAME_abi(void);

#ifdef __cplusplus
}
#endif
#endif
