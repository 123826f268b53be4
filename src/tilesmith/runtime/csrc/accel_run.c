/* Runs a program of the accelerator exactly, and checks it.
 *
 * Each unit runs its instructions in order, as far as tokens let it.  Which unit runs first makes no difference to a
 * program without hazards.  To find hazards, each unit has a vector clock: of each unit, the number of instructions that
 * are known to be done.  A token carries the clock of its giver.  Each tile remembers the last instruction that wrote it
 * and the last one of the other unit that read it.  An access is a hazard if the other unit's instruction is not known
 * to be done (Lamport 1978, Mattern 1989). */
#include "accel.h"

#include <stdlib.h>

/* An on-chip buffer of numbers.  Stamps count the instructions of a unit from 1 on; 0 is none. */
typedef struct {
    int writer, reader; /* the unit that writes it, and the other one, which reads it */
    int64_t depth;
    int elements;       /* of a tile */
    uint32_t *written, *read;
    int16_t *operands;  /* or: */
    int32_t *sums;
} Buffer;

typedef struct {
    int32_t dst, src, wgt, is_there;
} Step;

typedef struct {
    uint32_t clock[UNIT_COUNT];
    int32_t giver; /* number of the instruction */
} Token;

typedef struct {
    Token *tokens;
    int64_t first, count;
} Queue;

typedef struct {
    AccelProgram program;
    Buffer buffers[MEMORY_COUNT];
    Step *steps; /* the buffer of micro-operations */
    const uint8_t *all_steps;
    uint8_t *memory;
    int64_t memory_bytes, granule; /* bytes that one stamp of DRAM stands for */
    uint32_t *stored, *loaded[2];  /* stamps of DRAM: by the store unit; by the load and compute units */
    uint32_t clock[UNIT_COUNT][UNIT_COUNT];
    Queue queues[ACCEL_QUEUES];
    int64_t room; /* tokens of a queue */
    int64_t fetched, waiting[UNIT_COUNT], done[UNIT_COUNT];
    int phase[UNIT_COUNT]; /* 0: takes tokens next; else 1 + the pushes that are left, 1: prev, 2: next */
    AccelInstruction current[UNIT_COUNT];
    int32_t *imm; /* a tile of immediate numbers */
    AccelFailure failure;
} Run;

static int fail(Run *run, int unit, int cause, int64_t a, int64_t b, int64_t c) {
    int64_t number = run->program.order[unit][run->done[unit]];
    run->failure = (AccelFailure){cause, number, {a, b, c}};
    return -1;
}

static inline uint32_t stamp(const Run *run, int unit) { return (uint32_t)run->done[unit] + 1; }

/* Whether the instruction of a unit with this stamp is done as far as `unit` knows. */
static inline int is_known(const Run *run, int unit, int other, uint32_t instruction) {
    return instruction <= run->clock[unit][other];
}

static int hazard(Run *run, int unit, int memory, int64_t place, int other, uint32_t instruction) {
    return fail(run, unit, CAUSE_HAZARD, memory, place, run->program.order[other][instruction - 1]);
}

/* `unit` reads a tile. */
static inline int reads(Run *run, int unit, int memory, int64_t tile) {
    Buffer *b = &run->buffers[memory];
    uint32_t written = b->written[tile];
    if (written == 0)
        return fail(run, unit, CAUSE_UNINITIALISED, memory, tile, -1);
    if (unit != b->writer) {
        if (!is_known(run, unit, b->writer, written))
            return hazard(run, unit, memory, tile, b->writer, written);
        b->read[tile] = stamp(run, unit);
    }
    return 0;
}

/* `unit`, its writer, writes a tile. */
static inline int writes(Run *run, int unit, int memory, int64_t tile) {
    Buffer *b = &run->buffers[memory];
    if (!is_known(run, unit, b->reader, b->read[tile]))
        return hazard(run, unit, memory, tile, b->reader, b->read[tile]);
    b->written[tile] = stamp(run, unit);
    return 0;
}

/* `unit` reads or writes bytes of DRAM. */
static int accesses(Run *run, int unit, int64_t first, int64_t bytes) {
    for (int64_t g = first / run->granule; g * run->granule < first + bytes; g++) {
        if (unit == UNIT_STORE) {
            for (int other = UNIT_LOAD; other <= UNIT_COMPUTE; other++)
                if (!is_known(run, unit, other, run->loaded[other][g]))
                    return hazard(run, unit, -1, g * run->granule, other, run->loaded[other][g]);
            run->stored[g] = stamp(run, unit);
        } else {
            if (!is_known(run, unit, UNIT_STORE, run->stored[g]))
                return hazard(run, unit, -1, g * run->granule, UNIT_STORE, run->stored[g]);
            run->loaded[unit][g] = stamp(run, unit);
        }
    }
    return 0;
}

/* Whether the rows of a copy, with tiles of some bytes, lie in DRAM; 0, or -1. */
static int check_rows(Run *run, int unit, const int64_t *f, int64_t bytes) {
    int64_t end = (f[FIELD_DRAM] + (f[FIELD_ROWS] - 1) * f[FIELD_STRIDE] + f[FIELD_COLUMNS]) * bytes;
    return end <= run->memory_bytes ? 0 : fail(run, unit, CAUSE_DRAM, end, run->memory_bytes, -1);
}

/* A tile of a buffer from the bytes at `from`, or padding if NULL. */
static void read_tile(Buffer *b, int64_t tile, const uint8_t *from, int from_bytes, int64_t pad) {
    int n = b->elements;
    for (int i = 0; i < n; i++) {
        int32_t value = (int32_t)pad;
        if (from && from_bytes == 1)
            value = (int8_t)from[i];
        else if (from && from_bytes == 2) {
            int16_t narrow;
            memcpy(&narrow, from + 2 * i, 2);
            value = narrow;
        } else if (from)
            memcpy(&value, from + 4 * i, 4);
        if (b->sums)
            b->sums[tile * n + i] = value;
        else
            b->operands[tile * n + i] = (int16_t)value;
    }
}

static void write_tile(const Buffer *b, int64_t tile, uint8_t *to, int to_bytes) {
    int n = b->elements;
    if (b->sums) {
        memcpy(to, b->sums + tile * n, (size_t)n * 4);
    } else if (to_bytes == 2) {
        memcpy(to, b->operands + tile * n, (size_t)n * 2);
    } else {
        for (int i = 0; i < n; i++)
            to[i] = (uint8_t)b->operands[tile * n + i];
    }
}

static void load_steps(Run *run, const int64_t *f) {
    const int64_t *m = run->program.machine;
    int bytes = (int)m[MACHINE_TILE_UOP];
    int64_t at = f[FIELD_SRAM];
    for (int64_t y = 0; y < f[FIELD_ROWS]; y++)
        for (int64_t x = 0; x < f[FIELD_COLUMNS]; x++) {
            const uint8_t *word = run->all_steps + (f[FIELD_DRAM] + y * f[FIELD_STRIDE] + x) * bytes;
            const AccelEncoding *e = run->program.encoding;
            run->steps[at++] = (Step){(int32_t)accel_field(e, OPCODE_COUNT, FIELD_DST, word, bytes),
                                      (int32_t)accel_field(e, OPCODE_COUNT, FIELD_SRC, word, bytes),
                                      (int32_t)accel_field(e, OPCODE_COUNT, FIELD_WGT, word, bytes), 1};
        }
}

static int run_load(Run *run, int unit, const int64_t *f) {
    const int64_t *m = run->program.machine;
    int memory = (int)f[FIELD_MEMORY];
    if (memory == MEMORY_UOP) {
        load_steps(run, f);
        return 0;
    }
    Buffer *b = &run->buffers[memory];
    int element = memory == MEMORY_ACC && !f[FIELD_WIDEN] ? 4 : (int)m[MACHINE_OPERAND_BYTES];
    int64_t bytes = (int64_t)b->elements * element, tile = f[FIELD_SRAM];
    if (check_rows(run, unit, f, bytes))
        return -1;
    for (int64_t y = -f[FIELD_TOP]; y < f[FIELD_ROWS] + f[FIELD_BOTTOM]; y++) {
        int is_row = y >= 0 && y < f[FIELD_ROWS];
        int64_t row = (f[FIELD_DRAM] + y * f[FIELD_STRIDE]) * bytes;
        if (is_row && accesses(run, unit, row, f[FIELD_COLUMNS] * bytes))
            return -1;
        for (int64_t x = -f[FIELD_LEFT]; x < f[FIELD_COLUMNS] + f[FIELD_RIGHT]; x++, tile++) {
            int is_inside = is_row && x >= 0 && x < f[FIELD_COLUMNS];
            if (writes(run, unit, memory, tile))
                return -1;
            read_tile(b, tile, is_inside ? run->memory + row + x * bytes : NULL, element, f[FIELD_PAD]);
        }
    }
    return 0;
}

static int run_store(Run *run, int unit, const int64_t *f) {
    int memory = (int)f[FIELD_MEMORY];
    Buffer *b = &run->buffers[memory];
    int element = memory == MEMORY_ACC ? 4 : (int)run->program.machine[MACHINE_OPERAND_BYTES];
    int64_t bytes = (int64_t)b->elements * element, tile = f[FIELD_SRAM];
    if (check_rows(run, unit, f, bytes))
        return -1;
    for (int64_t y = 0; y < f[FIELD_ROWS]; y++) {
        int64_t row = (f[FIELD_DRAM] + y * f[FIELD_STRIDE]) * bytes;
        if (accesses(run, unit, row, f[FIELD_COLUMNS] * bytes))
            return -1;
        for (int64_t x = 0; x < f[FIELD_COLUMNS]; x++, tile++) {
            if (reads(run, unit, memory, tile))
                return -1;
            write_tile(b, tile, run->memory + row + x * bytes, element);
        }
    }
    return 0;
}

/* acc[m][n] (+)= inp[m][k] * wgt[n][k], summed over k. */
static inline void product(int32_t *acc, const int16_t *inp, const int16_t *wgt, int batch, int in, int out, int reset) {
    for (int m = 0; m < batch; m++)
        for (int n = 0; n < out; n++) {
            uint32_t sum = 0;
            for (int k = 0; k < in; k++)
                sum += (uint32_t)((int32_t)inp[m * in + k] * wgt[n * in + k]);
            acc[m * out + n] = (int32_t)(sum + (reset ? 0 : (uint32_t)acc[m * out + n]));
        }
}

/* The greatest address that loops reach from a micro-operation's address. */
static int64_t reached(const int64_t *f, int64_t first, int outer, int inner) {
    return first + (f[FIELD_OUTER] - 1) * f[outer] + (f[FIELD_INNER] - 1) * f[inner];
}

/* Whether all addresses of loops are inside of their buffers; 0, or -1. */
static int check_loops(Run *run, const int64_t *f, int dst, int src, int wgt, int64_t beyond) {
    const struct {
        int memory, outer, inner;
        int64_t beyond;
    } operands[3] = {{dst, FIELD_DST_OUTER, FIELD_DST_INNER, 0},
                     {src, FIELD_SRC_OUTER, FIELD_SRC_INNER, beyond},
                     {wgt, FIELD_WGT_OUTER, FIELD_WGT_INNER, 0}};
    for (int64_t k = f[FIELD_BEGIN]; k < f[FIELD_END]; k++) {
        const Step *step = &run->steps[k];
        if (!step->is_there)
            return fail(run, UNIT_COMPUTE, CAUSE_UNINITIALISED, MEMORY_UOP, k, -1);
        const int64_t first[3] = {step->dst, step->src, step->wgt};
        for (int i = 0; i < 3; i++) {
            if (operands[i].memory < 0)
                continue;
            int64_t last = reached(f, first[i], operands[i].outer, operands[i].inner) + operands[i].beyond;
            int64_t depth = run->buffers[operands[i].memory].depth;
            if (last >= depth)
                return fail(run, UNIT_COMPUTE, CAUSE_BOUNDS, operands[i].memory, last, k);
        }
    }
    return 0;
}

static int run_gemm(Run *run, const int64_t *f) {
    const int64_t *m = run->program.machine;
    Buffer *inp = &run->buffers[MEMORY_INP], *wgt = &run->buffers[MEMORY_WGT], *acc = &run->buffers[MEMORY_ACC];
    int batch = (int)m[MACHINE_BATCH], in = (int)m[MACHINE_BLOCK_IN], out = (int)m[MACHINE_BLOCK_OUT];
    int reset = f[FIELD_RESET] != 0, is_usual = batch == 1 && in == 16 && out == 16;
    if (check_loops(run, f, MEMORY_ACC, MEMORY_INP, MEMORY_WGT, 0))
        return -1;
    for (int64_t i = 0; i < f[FIELD_OUTER]; i++)
        for (int64_t j = 0; j < f[FIELD_INNER]; j++) {
            int64_t dst = i * f[FIELD_DST_OUTER] + j * f[FIELD_DST_INNER];
            int64_t src = i * f[FIELD_SRC_OUTER] + j * f[FIELD_SRC_INNER];
            int64_t w = i * f[FIELD_WGT_OUTER] + j * f[FIELD_WGT_INNER];
            for (int64_t k = f[FIELD_BEGIN]; k < f[FIELD_END]; k++) {
                const Step *step = &run->steps[k];
                int64_t to = dst + step->dst, from = src + step->src, by = w + step->wgt;
                if (reads(run, UNIT_COMPUTE, MEMORY_INP, from) || reads(run, UNIT_COMPUTE, MEMORY_WGT, by) ||
                    (!reset && reads(run, UNIT_COMPUTE, MEMORY_ACC, to)) || writes(run, UNIT_COMPUTE, MEMORY_ACC, to))
                    return -1;
                int32_t *sums = acc->sums + to * acc->elements;
                const int16_t *a = inp->operands + from * inp->elements, *b = wgt->operands + by * wgt->elements;
                if (is_usual)
                    product(sums, a, b, 1, 16, 16, reset); /* constants, which a compiler makes vectors of */
                else
                    product(sums, a, b, batch, in, out, reset);
            }
        }
    return 0;
}

static int run_alu(Run *run, const int64_t *f) {
    Buffer *acc = &run->buffers[MEMORY_ACC], *out = &run->buffers[MEMORY_OUT];
    int n = acc->elements, op = (int)f[FIELD_OP], use_imm = f[FIELD_USE_IMM] != 0;
    int reads_dst = ALU_READS_DST >> op & 1, reads_pair = ALU_READS_PAIR >> op & 1;
    int target = f[FIELD_TO_OUT] ? MEMORY_OUT : MEMORY_ACC;
    int32_t high = run->program.machine[MACHINE_OPERAND_BYTES] == 1 ? INT8_MAX : INT16_MAX;
    int source = use_imm ? -1 : MEMORY_ACC;
    if (check_loops(run, f, target, source, -1, reads_pair) ||
        (reads_dst && check_loops(run, f, MEMORY_ACC, -1, -1, 0)))
        return -1;
    for (int i = 0; i < n; i++)
        run->imm[i] = (int32_t)f[FIELD_IMM];
    for (int64_t i = 0; i < f[FIELD_OUTER]; i++)
        for (int64_t j = 0; j < f[FIELD_INNER]; j++)
            for (int64_t k = f[FIELD_BEGIN]; k < f[FIELD_END]; k++) {
                const Step *step = &run->steps[k];
                int64_t to = i * f[FIELD_DST_OUTER] + j * f[FIELD_DST_INNER] + step->dst;
                int64_t from = i * f[FIELD_SRC_OUTER] + j * f[FIELD_SRC_INNER] + step->src;
                if ((reads_dst && reads(run, UNIT_COMPUTE, MEMORY_ACC, to)) ||
                    (!use_imm && reads(run, UNIT_COMPUTE, MEMORY_ACC, from)) ||
                    (reads_pair && reads(run, UNIT_COMPUTE, MEMORY_ACC, from + 1)) ||
                    writes(run, UNIT_COMPUTE, target, to))
                    return -1;
                const int32_t *a = reads_dst ? acc->sums + to * n : run->imm;
                const int32_t *b = use_imm ? run->imm : acc->sums + from * n;
                const int32_t *c = reads_pair ? b + n : run->imm;
                if (target == MEMORY_ACC) {
                    alu_step(op, n, a, b, c, (int32_t)f[FIELD_IMM], acc->sums + to * n);
                    continue;
                }
                int32_t *result = run->imm + n;
                alu_step(op, n, a, b, c, (int32_t)f[FIELD_IMM], result);
                for (int e = 0; e < n; e++)
                    out->operands[to * n + e] =
                        (int16_t)(result[e] > high ? high : result[e] < -high - 1 ? -high - 1 : result[e]);
            }
    return 0;
}

static int run_instruction(Run *run, int unit) {
    const AccelInstruction *x = &run->current[unit];
    switch (x->opcode) {
    case OPCODE_LOAD:
        return run_load(run, unit, x->field);
    case OPCODE_STORE:
        return run_store(run, unit, x->field);
    case OPCODE_GEMM:
        return run_gemm(run, x->field);
    case OPCODE_ALU:
        return run_alu(run, x->field);
    default:
        return 0;
    }
}

/* Take the tokens that the current instruction needs; -1, or what it waits for. */
static int take(Run *run, int unit) {
    const int64_t *f = run->current[unit].field;
    const int fields[2] = {FIELD_POP_PREV, FIELD_POP_NEXT};
    for (int side = 0; side < 2; side++)
        if (f[fields[side]] && run->queues[accel_taken(unit, 2 * side - 1)].count == 0)
            return side ? WAITS_NEXT : WAITS_PREV;
    for (int side = 0; side < 2; side++) {
        if (!f[fields[side]])
            continue;
        Queue *q = &run->queues[accel_taken(unit, 2 * side - 1)];
        const Token *token = &q->tokens[q->first];
        for (int u = 0; u < UNIT_COUNT; u++)
            if (token->clock[u] > run->clock[unit][u])
                run->clock[unit][u] = token->clock[u];
        q->first = (q->first + 1) % run->room;
        q->count--;
    }
    return -1;
}

/* Give the tokens that are left in `phase`, as far as there is room; -1, or what it waits for. */
static int give(Run *run, int unit) {
    for (int side = 0; side < 2; side++) {
        if (!((run->phase[unit] - 1) & 1 << side))
            continue;
        Queue *q = &run->queues[accel_given(unit, 2 * side - 1)];
        if (q->count == run->room)
            continue;
        Token *token = &q->tokens[(q->first + q->count++) % run->room];
        memcpy(token->clock, run->clock[unit], sizeof token->clock);
        token->giver = run->program.order[unit][run->done[unit]];
        run->phase[unit] -= 1 << side;
    }
    int left = run->phase[unit] - 1;
    return left == 0 ? -1 : left & 1 ? WAITS_ROOM_PREV : WAITS_ROOM_NEXT;
}

/* Run a unit until it waits: 1 if it did something, 0 if not, -1 if it failed.  `waits`: what for, -1 for instructions. */
static int advance(Run *run, int unit, int *waits) {
    int moved = 0;
    for (*waits = -1; run->waiting[unit] > 0;) {
        if (run->phase[unit] == 0) {
            tilesmith_accel_decode(&run->program, run->program.order[unit][run->done[unit]], &run->current[unit]);
            if ((*waits = take(run, unit)) >= 0)
                return moved;
            if (run_instruction(run, unit))
                return -1;
            const int64_t *f = run->current[unit].field;
            run->clock[unit][unit] = stamp(run, unit);
            run->phase[unit] = 1 + (f[FIELD_PUSH_PREV] != 0) + 2 * (f[FIELD_PUSH_NEXT] != 0);
            moved = 1;
        }
        int before = run->phase[unit];
        *waits = give(run, unit);
        moved |= run->phase[unit] != before;
        if (*waits >= 0)
            return moved;
        run->phase[unit] = 0;
        run->done[unit]++;
        run->waiting[unit]--;
        moved = 1;
    }
    return moved;
}

/* Hand instructions to the units while their queues have room. */
static int fetch(Run *run) {
    int64_t before = run->fetched, depth = run->program.machine[MACHINE_COMMAND_DEPTH];
    while (run->fetched < run->program.count && run->waiting[run->program.unit_of[run->fetched]] < depth)
        run->waiting[run->program.unit_of[run->fetched++]]++;
    return run->fetched > before;
}

static void run_all(Run *run) {
    for (int moved = 1; moved;) {
        int waits[UNIT_COUNT];
        moved = fetch(run);
        for (int u = 0; u < UNIT_COUNT; u++) {
            int did = advance(run, u, &waits[u]);
            if (did < 0)
                return;
            moved |= did;
        }
        if (moved)
            continue;
        int64_t first = INT64_MAX;
        for (int u = 0; u < UNIT_COUNT; u++)
            if (waits[u] >= 0 && run->program.order[u][run->done[u]] < first) {
                first = run->program.order[u][run->done[u]];
                fail(run, u, CAUSE_DEADLOCK, waits[u], u, -1);
            }
    }
    if (run->failure.cause >= 0)
        return;
    for (int q = 0; q < ACCEL_QUEUES; q++)
        if (run->queues[q].count) {
            const Token *token = &run->queues[q].tokens[run->queues[q].first];
            run->failure = (AccelFailure){CAUSE_TOKEN, token->giver, {run->queues[q].count, q, -1}};
            return;
        }
}

static int64_t common_divisor(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int open_run(Run *run) {
    const int64_t *m = run->program.machine;
    static const int units[MEMORY_COUNT][2] = {[MEMORY_INP] = {UNIT_LOAD, UNIT_COMPUTE},
                                               [MEMORY_WGT] = {UNIT_LOAD, UNIT_COMPUTE},
                                               [MEMORY_ACC] = {UNIT_COMPUTE, UNIT_STORE},
                                               [MEMORY_OUT] = {UNIT_COMPUTE, UNIT_STORE}};
    int is_there = (run->steps = calloc((size_t)m[MACHINE_DEPTH_UOP], sizeof(Step))) != NULL;
    run->granule = m[MACHINE_TILE_ACC];
    for (int i = MEMORY_INP; i < MEMORY_COUNT; i++) {
        int element = i == MEMORY_ACC ? 4 : (int)m[MACHINE_OPERAND_BYTES];
        Buffer *b = &run->buffers[i];
        *b = (Buffer){.writer = units[i][0], .reader = units[i][1], .depth = m[MACHINE_DEPTH_UOP + i],
                      .elements = (int)(m[MACHINE_TILE_UOP + i] / element)};
        size_t n = (size_t)b->depth * (size_t)b->elements;
        is_there &= (b->written = calloc((size_t)b->depth, 4)) != NULL && (b->read = calloc((size_t)b->depth, 4)) != NULL;
        if (i == MEMORY_ACC)
            is_there &= (b->sums = calloc(n, 4)) != NULL;
        else
            is_there &= (b->operands = calloc(n, 2)) != NULL;
        run->granule = common_divisor(run->granule, m[MACHINE_TILE_UOP + i]);
    }
    size_t granules = (size_t)(run->memory_bytes / run->granule) + 1;
    uint32_t **stamps[3] = {&run->stored, &run->loaded[0], &run->loaded[1]};
    for (int i = 0; i < 3; i++)
        is_there &= (*stamps[i] = calloc(granules, 4)) != NULL;
    run->room = m[MACHINE_TOKEN_DEPTH] < run->program.count ? m[MACHINE_TOKEN_DEPTH] : run->program.count + 1;
    for (int q = 0; q < ACCEL_QUEUES; q++)
        is_there &= (run->queues[q].tokens = malloc((size_t)run->room * sizeof(Token))) != NULL;
    is_there &= (run->imm = calloc(2 * (size_t)run->buffers[MEMORY_ACC].elements, 4)) != NULL;
    return is_there ? 0 : -1;
}

static void close_run(Run *run) {
    tilesmith_accel_close(&run->program);
    for (int i = 0; i < MEMORY_COUNT; i++) {
        free(run->buffers[i].written);
        free(run->buffers[i].read);
        free(run->buffers[i].operands);
        free(run->buffers[i].sums);
    }
    for (int q = 0; q < ACCEL_QUEUES; q++)
        free(run->queues[q].tokens);
    free(run->steps);
    free(run->stored);
    free(run->loaded[0]);
    free(run->loaded[1]);
    free(run->imm);
}

PyObject *tilesmith_accel_run(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer machine, encoding, words, steps, memory;
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*", &machine, &encoding, &words, &steps, &memory))
        return NULL;
    Run run = {.all_steps = steps.buf, .memory = memory.buf, .memory_bytes = memory.len, .failure = {.cause = -1}};
    PyObject *result = NULL;
    if (tilesmith_accel_open(&run.program, &machine, &encoding, &words) == 0) {
        if (open_run(&run)) {
            PyErr_NoMemory();
        } else {
            Py_BEGIN_ALLOW_THREADS
            run_all(&run);
            Py_END_ALLOW_THREADS
            result = run.failure.cause < 0 ? Py_NewRef(Py_None) : accel_failure(&run.failure);
        }
        close_run(&run);
    }
    Py_buffer *all[] = {&machine, &encoding, &words, &steps, &memory};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        PyBuffer_Release(all[i]);
    return result;
}
