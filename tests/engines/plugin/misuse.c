/* Calls of a plugin that are wrong: each gives a code and a text. */
#include "ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int32_t stop(void *engine, const struct tilesmith_operator *op) {
    (void)op;
    ++*(int *)engine;
    return 7;
}

static int32_t find(void *engine, const struct tilesmith_operator *op) {
    if (!strcmp(op->name, "Rows"))
        *(const struct tilesmith_operator **)engine = op;
    return 0;
}

int main(void) {
    int calls = 0;
    const struct tilesmith_operator *op = NULL;
    if (ops_register(NULL, NULL) != TILESMITH_ARGUMENT || ops_register(stop, &calls) != 7 || calls != 1)
        return 1;
    if (ops_register(find, &op) || !op || op->size != sizeof *op || op->abi != TILESMITH_ABI)
        return 2;
    struct tilesmith_model *kernel;
    if (op->create(NULL, NULL, &kernel) != TILESMITH_ARGUMENT || op->create(op, NULL, &kernel))
        return 3;
    struct tilesmith_shape shapes[2] = {{2, {5, 3}}, {1, {2}}}, result;
    float table[15] = {0}, rows[6];
    int32_t index[2] = {1, 9};
    const void *inputs[] = {table, index};
    void *outputs[] = {rows};
    if (op->workspace_bytes(NULL, shapes) != -1 || op->workspace_bytes(kernel, NULL) != -1)
        return 4;
    char *workspace = malloc((size_t)op->workspace_bytes(kernel, shapes) + 1), text[200];
    /* any address serves; the second index is none */
    int32_t code = op->run(kernel, shapes, inputs, outputs, workspace + 1);
    op->error(kernel, code, shapes, workspace + 1, text, sizeof text);
    puts(text);
    if (op->run(kernel, shapes, inputs, outputs, NULL) != TILESMITH_ARGUMENT ||
        op->run(NULL, shapes, inputs, outputs, workspace) != TILESMITH_ARGUMENT ||
        op->run(kernel, shapes, NULL, outputs, workspace) != TILESMITH_ARGUMENT)
        return 5;
    shapes[0].extents[0] = 6;
    code = op->shapes(kernel, shapes, &result);
    op->error(kernel, code, shapes, NULL, text, sizeof text);
    puts(text);
    shapes[0].rank = 1;
    code = op->run(kernel, shapes, inputs, outputs, workspace);
    op->error(kernel, code, shapes, workspace, text, sizeof text);
    puts(text);
    if (op->error(NULL, code, NULL, NULL, NULL, 0) != (int64_t)strlen("the shape of an input does not fit the operator"))
        return 6;
    free(workspace);
    op->destroy(kernel);
    return 0;
}
