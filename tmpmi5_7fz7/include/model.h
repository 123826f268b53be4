/* model: a model compiled by Tilesmith 0.1.0 for native.
 *
 * Inputs:
 *   0: x: f32[2,4]
 * Outputs:
 *   0: y: f32[2,4]
 *
 * Every function is described at its namesake in tilesmith_model.h. */
#ifndef MODEL_H
#define MODEL_H

#include "tilesmith_model.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MODEL_INPUT_COUNT 1
#define MODEL_OUTPUT_COUNT 1
#define MODEL_EXTENT_COUNT 0
#define MODEL_OUTPUT_AXES 2 /* extents of all outputs, see model_sizes */
#define MODEL_WEIGHTS_BYTES ((int64_t)320) /* of the file; 0: none */
#define MODEL_INPUT_0_BYTES ((int64_t)32)
#define MODEL_OUTPUT_0_BYTES ((int64_t)32)
#define MODEL_ARENA_BYTES(threads) ((int64_t)128 + (threads) * (int64_t)0)
#define MODEL_THREADS 1 /* that its schedules were made for */

int32_t model_create(const struct tilesmith_options *options, struct tilesmith_model **model);
void model_destroy(struct tilesmith_model *model);
int64_t model_arena_bytes(const struct tilesmith_model *model, const int64_t *extents);
int32_t model_sizes(const struct tilesmith_model *model, const int64_t *extents, int64_t *shapes);
int32_t model_run(const struct tilesmith_model *model, const int64_t *extents, const void *const *inputs,
                 void *const *outputs, void *arena);
int32_t model_input_sizes(const struct tilesmith_model *model, const int64_t *extents, int64_t *shapes);
int64_t model_error(const struct tilesmith_model *model, int32_t code, const void *arena, char *text, int64_t size);

/* Runs with bound inputs and outputs. */
int32_t model_instance_create(const struct tilesmith_model *model, const int64_t *extents,
                             struct tilesmith_instance **instance);
void model_instance_destroy(struct tilesmith_instance *instance);
int32_t model_set_input(struct tilesmith_instance *instance, int64_t index, const void *data, int64_t bytes);
int32_t model_set_output(struct tilesmith_instance *instance, int64_t index, void *data, int64_t bytes);
int32_t model_get_output(const struct tilesmith_instance *instance, int64_t index, void **data, int64_t *bytes);
int32_t model_instance_run(struct tilesmith_instance *instance);
int32_t model_submit(struct tilesmith_instance *instance, tilesmith_done_fn done, void *user);
int32_t model_wait(struct tilesmith_instance *instance);
int64_t model_instance_error(const struct tilesmith_instance *instance, int32_t code, char *text, int64_t size);

/* Names, types and shapes; the library's version; the version of its native interface (TILESMITH_ABI). */
const struct tilesmith_description *model_description(void);
const char *model_version(void);
uint32_t model_abi(void);

#ifdef __cplusplus
}
#endif
#endif
