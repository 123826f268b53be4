/* The instructions of the accelerator.  Made by `python -m tilesmith.accel.header`. */
#ifndef TILESMITH_ACCEL_TABLE_H
#define TILESMITH_ACCEL_TABLE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

enum { OPCODE_LOAD, OPCODE_STORE, OPCODE_GEMM, OPCODE_ALU, OPCODE_FINISH, OPCODE_COUNT };
enum { MEMORY_UOP, MEMORY_INP, MEMORY_WGT, MEMORY_ACC, MEMORY_OUT, MEMORY_COUNT };
enum { ALUOP_MOV, ALUOP_ADD, ALUOP_SUB, ALUOP_MUL, ALUOP_MIN, ALUOP_MAX, ALUOP_SHL, ALUOP_SHR, ALUOP_SCALE,
       ALUOP_FADD, ALUOP_ROUND, ALUOP_RESCALE, ALUOP_COUNT };
enum { UNIT_LOAD, UNIT_COMPUTE, UNIT_STORE, UNIT_COUNT };
enum { CAUSE_FIELD, CAUSE_DEADLOCK, CAUSE_TOKEN, CAUSE_DRAM, CAUSE_BOUNDS, CAUSE_UNINITIALISED, CAUSE_HAZARD,
       CAUSE_COUNT };
enum { FIELD_POP_PREV, FIELD_POP_NEXT, FIELD_PUSH_PREV, FIELD_PUSH_NEXT, FIELD_MEMORY, FIELD_SRAM, FIELD_DRAM,
       FIELD_ROWS, FIELD_COLUMNS, FIELD_STRIDE, FIELD_TOP, FIELD_BOTTOM, FIELD_LEFT, FIELD_RIGHT, FIELD_PAD,
       FIELD_WIDEN, FIELD_BEGIN, FIELD_END, FIELD_OUTER, FIELD_INNER, FIELD_DST_OUTER, FIELD_DST_INNER,
       FIELD_SRC_OUTER, FIELD_SRC_INNER, FIELD_WGT_OUTER, FIELD_WGT_INNER, FIELD_RESET, FIELD_OP, FIELD_USE_IMM,
       FIELD_IMM, FIELD_TO_OUT, FIELD_DST, FIELD_SRC, FIELD_WGT, FIELD_COUNT };
enum { MACHINE_BATCH, MACHINE_BLOCK_IN, MACHINE_BLOCK_OUT, MACHINE_INP_BYTES, MACHINE_WGT_BYTES, MACHINE_ACC_BYTES,
       MACHINE_OUT_BYTES, MACHINE_UOP_BYTES, MACHINE_DMA_BYTES, MACHINE_DMA_LATENCY, MACHINE_BURST_BYTES,
       MACHINE_COMMAND_DEPTH, MACHINE_TOKEN_DEPTH, MACHINE_GEMM_CYCLES, MACHINE_ALU_CYCLES,
       MACHINE_INSTRUCTION_CYCLES, MACHINE_OPERAND_BYTES, MACHINE_DEPTH_UOP, MACHINE_DEPTH_INP, MACHINE_DEPTH_WGT,
       MACHINE_DEPTH_ACC, MACHINE_DEPTH_OUT, MACHINE_TILE_UOP, MACHINE_TILE_INP, MACHINE_TILE_WGT, MACHINE_TILE_ACC,
       MACHINE_TILE_OUT, MACHINE_COUNT };
#define ALU_READS_DST 0xffe  /* a bit for each operation */
#define ALU_READS_PAIR 0x800

static inline float ts_f32_of_bits_u32(uint32_t a) { float b; memcpy(&b, &a, sizeof b); return b; }

static inline uint32_t ts_u32_of_bits_f32(float a) { uint32_t b; memcpy(&b, &a, sizeof b); return b; }

static inline int32_t ts_add_i32(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }

static inline float ts_max_f32(float a, float b) { return a >= b || a != a ? a : b; }

static inline int32_t ts_max_i32(int32_t a, int32_t b) { return a > b ? a : b; }

static inline float ts_min_f32(float a, float b) { return a <= b || a != a ? a : b; }

static inline int32_t ts_min_i32(int32_t a, int32_t b) { return a < b ? a : b; }

static inline int32_t ts_mul_i32(int32_t a, int32_t b) { return (int32_t)((uint32_t)a * (uint32_t)b); }

static inline int32_t ts_shl_i32(int32_t a, int32_t b) { return (uint64_t)b < 32 ? (int32_t)((uint32_t)a << b) : 0; }

static inline int32_t ts_shr_i32(int32_t a, int32_t b) {
    int32_t n = (uint64_t)b < 32 ? b : 32 - 1;
    return (int32_t)(a < 0 ? ~(~a >> n) : a >> n);
}

static inline int32_t ts_sub_i32(int32_t a, int32_t b) { return (int32_t)((uint32_t)a - (uint32_t)b); }

static inline int32_t ts_to_i32_f32(float a) { return (int32_t)(a > -2147483648.0 && a < 2147483648.0 ? (int32_t)a : INT32_MIN); }

/* n elements of a step of the ALU */
static inline void alu_step(int op, int n, const int32_t *a, const int32_t *b, const int32_t *c,
                            int32_t low, int32_t *y) {
    switch (op) {
    case ALUOP_MOV: /* copies */
        for (int i = 0; i < n; i++) {
            y[i] = b[i];
        }
        break;
    case ALUOP_ADD: /* adds */
        for (int i = 0; i < n; i++) {
            y[i] = ts_add_i32(a[i], b[i]);
        }
        break;
    case ALUOP_SUB: /* subtracts */
        for (int i = 0; i < n; i++) {
            y[i] = ts_sub_i32(a[i], b[i]);
        }
        break;
    case ALUOP_MUL: /* multiplies */
        for (int i = 0; i < n; i++) {
            y[i] = ts_mul_i32(a[i], b[i]);
        }
        break;
    case ALUOP_MIN: /* the smaller one */
        for (int i = 0; i < n; i++) {
            y[i] = ts_min_i32(a[i], b[i]);
        }
        break;
    case ALUOP_MAX: /* the larger one */
        for (int i = 0; i < n; i++) {
            y[i] = ts_max_i32(a[i], b[i]);
        }
        break;
    case ALUOP_SHL: /* shifts to the left */
        for (int i = 0; i < n; i++) {
            y[i] = ts_shl_i32(a[i], b[i] & 31);
        }
        break;
    case ALUOP_SHR: /* shifts to the right and copies the sign */
        for (int i = 0; i < n; i++) {
            y[i] = ts_shr_i32(a[i], b[i] & 31);
        }
        break;
    case ALUOP_SCALE: /* an integer times an f32, as f32 */
        for (int i = 0; i < n; i++) {
            y[i] = (int32_t)(ts_u32_of_bits_f32((float)a[i] * ts_f32_of_bits_u32((uint32_t)(b[i]))));
        }
        break;
    case ALUOP_FADD: /* adds two f32 */
        for (int i = 0; i < n; i++) {
            y[i] = (int32_t)(ts_u32_of_bits_f32(ts_f32_of_bits_u32((uint32_t)(a[i])) + ts_f32_of_bits_u32((uint32_t)(b[i]))));
        }
        break;
    case ALUOP_ROUND: /* an f32 as the nearest integer, ties to even, and at least `b` */
        for (int i = 0; i < n; i++) {
            y[i] = ts_max_i32(ts_to_i32_f32(ts_min_f32(ts_max_f32(rintf(ts_f32_of_bits_u32((uint32_t)(a[i]))), -2.1474836e+09f), 2.1474835e+09f)), b[i]);
        }
        break;
    case ALUOP_RESCALE: /* an integer times one f32 plus another one, as the nearest integer, and at least `low`; the product is exact, and the sum is rounded to an f32 */
        for (int i = 0; i < n; i++) {
            y[i] = ts_max_i32(ts_to_i32_f32(ts_min_f32(ts_max_f32(rintf((float)((double)(float)a[i] * (double)ts_f32_of_bits_u32((uint32_t)(b[i])) + (double)ts_f32_of_bits_u32((uint32_t)(c[i])))), -2.1474836e+09f), 2.1474835e+09f)), low);
        }
        break;
    }
}

#endif
