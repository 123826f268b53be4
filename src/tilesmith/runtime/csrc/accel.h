/* The simulators of the accelerator (src/tilesmith/accel): what the exact one and the one that counts cycles share. */
#ifndef TILESMITH_ACCEL_H
#define TILESMITH_ACCEL_H

#include "python.h"

#include "accel_table.h"

/* accel_run(machine, encoding, words, steps, memory), accel_clock(machine, encoding, words, times): see module.c. */
PyObject *tilesmith_accel_run(PyObject *module, PyObject *args);
PyObject *tilesmith_accel_clock(PyObject *module, PyObject *args);

#define ACCEL_WORD 16 /* bytes of an instruction */

/* Where the fields of an instruction, or of a micro-operation at OPCODE_COUNT, lie: first bit, width, is it signed. */
typedef int32_t AccelEncoding[OPCODE_COUNT + 1][FIELD_COUNT][3];

/* An instruction with all its fields; those that it lacks are 0. */
typedef struct {
    int opcode, unit;
    int64_t field[FIELD_COUNT];
} AccelInstruction;

/* A program on a machine, and for each unit the numbers of its instructions. */
typedef struct {
    const int64_t *machine;
    const AccelEncoding *encoding;
    const uint8_t *words;
    int64_t count;
    int32_t *order[UNIT_COUNT];
    int64_t ordered[UNIT_COUNT];
    uint8_t *unit_of;
} AccelProgram;

/* Why a run stopped: a CAUSE, the number of the instruction, and what else the message says (see accel/failures.py). */
typedef struct {
    int cause;
    int64_t number;
    int64_t detail[3];
} AccelFailure;

/* Open a program of whole words that `verify` accepted; 0, or -1 with an exception. */
int tilesmith_accel_open(AccelProgram *program, const Py_buffer *machine, const Py_buffer *encoding,
                         const Py_buffer *words);
void tilesmith_accel_close(AccelProgram *program);

/* Decode instruction `number`. */
void tilesmith_accel_decode(const AccelProgram *program, int64_t number, AccelInstruction *result);

/* The value of a field in the encoding `kind`. */
static inline int64_t accel_field(const AccelEncoding *encoding, int kind, int field, const uint8_t *word, int bytes) {
    const int32_t *place = (*encoding)[kind][field];
    int first = place[0], bits = place[1];
    if (bits == 0)
        return 0;
    uint64_t low = 0;
    int byte = first / 8, shift = first % 8, length = bytes - byte < 8 ? bytes - byte : 8;
    memcpy(&low, word + byte, (size_t)length);
    uint64_t value = low >> shift & ((UINT64_C(1) << bits) - 1);
    return place[2] && value >> (bits - 1) ? (int64_t)value - (INT64_C(1) << bits) : (int64_t)value;
}

/* The queue of tokens from which a unit takes (`step` -1: of the unit before, 1: of the one after).  Tokens from unit u to
 * u + 1 are in queue 2u, those back in queue 2u + 1. */
static inline int accel_taken(int unit, int step) { return step < 0 ? 2 * (unit - 1) : 2 * unit + 1; }

/* The queue to which a unit gives. */
static inline int accel_given(int unit, int step) { return step < 0 ? 2 * (unit - 1) + 1 : 2 * unit; }

#define ACCEL_QUEUES (2 * (UNIT_COUNT - 1))

/* Details of a deadlock: what the instruction waits for. */
enum { WAITS_PREV, WAITS_NEXT, WAITS_ROOM_PREV, WAITS_ROOM_NEXT };

/* A failure as a tuple (cause, number, *detail). */
static inline PyObject *accel_failure(const AccelFailure *f) {
    return Py_BuildValue("iLLLL", f->cause, (long long)f->number, (long long)f->detail[0], (long long)f->detail[1],
                         (long long)f->detail[2]);
}

#endif
