/* Decodes programs of the accelerator by the table of their encoding. */
#include "accel.h"

#include <stdlib.h>

static int unit_of(const AccelEncoding *encoding, const uint8_t *word) {
    int opcode = word[0] & 7;
    if (opcode == OPCODE_STORE)
        return UNIT_STORE;
    if (opcode != OPCODE_LOAD)
        return UNIT_COMPUTE;
    int64_t memory = accel_field(encoding, opcode, FIELD_MEMORY, word, ACCEL_WORD);
    return memory == MEMORY_INP || memory == MEMORY_WGT ? UNIT_LOAD : UNIT_COMPUTE;
}

int tilesmith_accel_open(AccelProgram *program, const Py_buffer *machine, const Py_buffer *encoding,
                         const Py_buffer *words) {
    *program = (AccelProgram){machine->buf, encoding->buf, words->buf, words->len / ACCEL_WORD, {0}, {0}, NULL};
    if (machine->len != MACHINE_COUNT * 8 || encoding->len != sizeof(AccelEncoding) || words->len % ACCEL_WORD ||
        program->count >= INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "the machine or the encoding has another size than in accel_table.h");
        return -1;
    }
    program->unit_of = malloc((size_t)program->count + 1);
    int is_there = program->unit_of != NULL;
    for (int u = 0; u < UNIT_COUNT; u++)
        is_there &= (program->order[u] = malloc(((size_t)program->count + 1) * sizeof(int32_t))) != NULL;
    if (!is_there) {
        tilesmith_accel_close(program);
        PyErr_NoMemory();
        return -1;
    }
    for (int64_t i = 0; i < program->count; i++) {
        int unit = unit_of(program->encoding, program->words + i * ACCEL_WORD);
        program->unit_of[i] = (uint8_t)unit;
        program->order[unit][program->ordered[unit]++] = (int32_t)i;
    }
    return 0;
}

void tilesmith_accel_close(AccelProgram *program) {
    for (int u = 0; u < UNIT_COUNT; u++)
        free(program->order[u]);
    free(program->unit_of);
}

void tilesmith_accel_decode(const AccelProgram *program, int64_t number, AccelInstruction *result) {
    const uint8_t *word = program->words + number * ACCEL_WORD;
    result->opcode = word[0] & 7;
    result->unit = program->unit_of[number];
    for (int f = 0; f < FIELD_COUNT; f++)
        result->field[f] = accel_field(program->encoding, result->opcode, f, word, ACCEL_WORD);
}
