/* Counts the cycles of a program of the accelerator, event by event; numbers are not computed.
 *
 * The units run in parallel.  An instruction takes its tokens, then `instruction_cycles`, then its work, then it gives
 * its tokens.  The work of a copy is bursts: each occupies the read or the write channel for as many cycles as it has
 * bytes over `dma_bytes`, or tiles if these are smaller, and units that want the same channel take turns.  Bytes that are
 * read come `dma_latency` later; tiles and padding go into the buffer in order, one in a cycle. */
#include "accel.h"

#include <stdlib.h>

/* What a unit waits for; WAITS_* + 1 for tokens and for room. */
enum { STALL_COMMAND, STALL_PREV, STALL_NEXT, STALL_ROOM_PREV, STALL_ROOM_NEXT, STALL_CHANNEL, STALL_COUNT };

typedef enum { NEEDS_COMMAND, TAKES, MOVES, WORKS, GIVES } State;

typedef struct {
    State state;
    int reason;             /* of the stall since `since` */
    int64_t since, started; /* when the state, or the stall, and the instruction began */
    int64_t until;          /* WORKS: when it is done; MOVES: when its next burst may begin */
    int64_t least;          /* MOVES: a bound below which the copy isn't done */
    int64_t after;          /* MOVES: tiles of padding after the last tile from DRAM */
    int64_t row_beats, rows, beat; /* MOVES: cycles for a row, rows that are left, and how far the first of these is */
    int64_t channel_wait;   /* of the current instruction */
    int gives;              /* tokens that are left, 1: prev, 2: next */
    int64_t done, waiting;
    int64_t busy, stalls[STALL_COUNT];
    AccelInstruction current;
} Unit;

typedef struct {
    int64_t free; /* when the last burst ends */
    int last;     /* the unit that had it */
    int64_t bytes, cycles;
} Channel;

typedef struct {
    AccelProgram program;
    Unit units[UNIT_COUNT];
    Channel channels[2]; /* to read, to write */
    int64_t tokens[ACCEL_QUEUES];
    int64_t fetched, fetch_ready, fetch_cycles;
    int64_t gemm, alu; /* cycles of the matrix unit and of the ALU */
    int64_t *times;    /* of each instruction when it began and was done, or NULL */
    AccelFailure failure;
} Clock;

static int64_t quotient(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int64_t number(const Clock *c, int unit) { return c->program.order[unit][c->units[unit].done]; }

/* The unit stalls for `reason` from now on. */
static void stall(Unit *unit, int reason, int64_t now) {
    if (unit->reason >= 0)
        unit->stalls[unit->reason] += now - unit->since;
    unit->reason = reason;
    unit->since = now;
}

static int64_t tile_bytes(const Clock *c, const AccelInstruction *x) {
    const int64_t *m = c->program.machine;
    int64_t memory = x->field[FIELD_MEMORY], bytes = m[MACHINE_TILE_UOP + memory];
    return x->field[FIELD_WIDEN] ? bytes / 4 * m[MACHINE_OPERAND_BYTES] : bytes;
}

/* Begin the work of the current instruction. */
static void begin(Clock *c, int unit, int64_t now) {
    Unit *u = &c->units[unit];
    const int64_t *m = c->program.machine, *f = u->current.field;
    int64_t steps = f[FIELD_OUTER] * f[FIELD_INNER] * (f[FIELD_END] - f[FIELD_BEGIN]);
    int64_t width = f[FIELD_LEFT] + f[FIELD_COLUMNS] + f[FIELD_RIGHT];
    int64_t tiles = (f[FIELD_TOP] + f[FIELD_ROWS] + f[FIELD_BOTTOM]) * width;
    u->started = now;
    u->channel_wait = 0;
    u->until = now + m[MACHINE_INSTRUCTION_CYCLES];
    u->state = WORKS;
    switch (u->current.opcode) {
    case OPCODE_GEMM:
        u->until += steps * m[MACHINE_GEMM_CYCLES];
        c->gemm += steps * m[MACHINE_GEMM_CYCLES];
        break;
    case OPCODE_ALU:
        u->until += steps * m[MACHINE_ALU_CYCLES];
        c->alu += steps * m[MACHINE_ALU_CYCLES];
        break;
    case OPCODE_LOAD:
    case OPCODE_STORE:
        u->state = MOVES;
        u->least = u->until + tiles;
        u->after = f[FIELD_BOTTOM] * width + f[FIELD_RIGHT];
        u->row_beats = f[FIELD_COLUMNS] * quotient(tile_bytes(c, &u->current), m[MACHINE_DMA_BYTES]);
        u->rows = f[FIELD_ROWS];
        u->beat = 0;
        c->channels[unit == UNIT_STORE].bytes += f[FIELD_ROWS] * f[FIELD_COLUMNS] * tile_bytes(c, &u->current);
    }
}

/* Move a unit on if it doesn't have to wait: whether it did something. */
static int advance(Clock *c, int unit, int64_t now) {
    Unit *u = &c->units[unit];
    const int64_t *f = u->current.field;
    switch (u->state) {
    case NEEDS_COMMAND:
        if (u->waiting == 0)
            return 0;
        tilesmith_accel_decode(&c->program, number(c, unit), &u->current);
        stall(u, -1, now);
        u->state = TAKES;
        return 1;
    case TAKES:
        for (int side = 0; side < 2; side++)
            if (f[side ? FIELD_POP_NEXT : FIELD_POP_PREV] && c->tokens[accel_taken(unit, 2 * side - 1)] == 0) {
                stall(u, side ? STALL_NEXT : STALL_PREV, now);
                return 0;
            }
        for (int side = 0; side < 2; side++)
            if (f[side ? FIELD_POP_NEXT : FIELD_POP_PREV])
                c->tokens[accel_taken(unit, 2 * side - 1)]--;
        stall(u, -1, now);
        begin(c, unit, now);
        return 1;
    case MOVES:
        return 0; /* the channel moves it */
    case WORKS:
        if (now < u->until)
            return 0;
        if (c->times) {
            c->times[2 * number(c, unit)] = u->started;
            c->times[2 * number(c, unit) + 1] = now;
        }
        u->busy += now - u->started - u->channel_wait;
        u->stalls[STALL_CHANNEL] += u->channel_wait;
        u->gives = (f[FIELD_PUSH_PREV] != 0) + 2 * (f[FIELD_PUSH_NEXT] != 0);
        u->state = GIVES;
        return 1;
    case GIVES:
        break;
    }
    int before = u->gives;
    for (int side = 0; side < 2; side++) {
        int64_t *tokens = &c->tokens[u->gives & 1 << side ? accel_given(unit, 2 * side - 1) : 0];
        if (!(u->gives & 1 << side) || *tokens == c->program.machine[MACHINE_TOKEN_DEPTH])
            continue;
        ++*tokens;
        u->gives -= 1 << side;
    }
    if (u->gives) {
        stall(u, u->gives & 1 ? STALL_ROOM_PREV : STALL_ROOM_NEXT, now);
        return u->gives != before;
    }
    stall(u, STALL_COMMAND, now);
    u->state = NEEDS_COMMAND;
    u->done++;
    u->waiting--;
    return 1;
}

/* Give a channel that is free to a unit that waits for it, in turns: whether it did. */
static int grant(Clock *c, int which, int64_t now) {
    const int64_t *m = c->program.machine;
    Channel *channel = &c->channels[which];
    if (now < channel->free)
        return 0;
    for (int i = 1; i <= UNIT_COUNT; i++) {
        int unit = (channel->last + i) % UNIT_COUNT;
        Unit *u = &c->units[unit];
        if ((unit == UNIT_STORE) != which || u->state != MOVES || now < u->until)
            continue;
        int64_t cycles = u->row_beats - u->beat, burst = m[MACHINE_BURST_BYTES] / m[MACHINE_DMA_BYTES];
        cycles = cycles < burst ? cycles : burst;
        const int64_t *f = u->current.field;
        if (u->rows == f[FIELD_ROWS] && u->beat == 0 && which == 0) {
            int64_t width = f[FIELD_LEFT] + f[FIELD_COLUMNS] + f[FIELD_RIGHT];
            int64_t rest = (f[FIELD_ROWS] + f[FIELD_BOTTOM]) * width - f[FIELD_LEFT];
            int64_t first = now + u->row_beats / f[FIELD_COLUMNS] + m[MACHINE_DMA_LATENCY];
            u->least = u->least > first + rest - 1 ? u->least : first + rest - 1;
        }
        u->channel_wait += now - u->until;
        channel->free = u->until = now + cycles;
        channel->last = unit;
        channel->cycles += cycles;
        u->beat += cycles;
        if (u->beat == u->row_beats) {
            u->beat = 0;
            u->rows--;
        }
        if (u->rows == 0) {
            u->until += m[MACHINE_DMA_LATENCY] + u->after;
            u->until = u->until > u->least ? u->until : u->least;
            u->state = WORKS;
        }
        return 1;
    }
    return 0;
}

/* Hand an instruction to its unit once it is there and the unit's queue has room: whether it did. */
static int fetch(Clock *c, int64_t now) {
    if (c->fetched == c->program.count || now < c->fetch_ready)
        return 0;
    Unit *u = &c->units[c->program.unit_of[c->fetched]];
    if (u->waiting >= c->program.machine[MACHINE_COMMAND_DEPTH])
        return 0;
    u->waiting++;
    c->fetched++;
    c->fetch_ready = now + c->fetch_cycles;
    return 1;
}

/* The next time after `now` at which something may happen; INT64_MAX: never. */
static int64_t next_event(const Clock *c, int64_t now) {
    int64_t next = INT64_MAX;
#define CONSIDER(time) next = (time) > now && (time) < next ? (time) : next
    if (c->fetched < c->program.count)
        CONSIDER(c->fetch_ready);
    for (int u = 0; u < UNIT_COUNT; u++)
        if (c->units[u].state == WORKS || c->units[u].state == MOVES) {
            CONSIDER(c->units[u].until);
            if (c->units[u].state == MOVES)
                CONSIDER(c->channels[u == UNIT_STORE].free);
        }
#undef CONSIDER
    return next;
}

/* Run to the end; the cycles of the run, or -1 with a deadlock. */
static int64_t run_all(Clock *c) {
    int64_t now = 0;
    for (int64_t next = 0; next != INT64_MAX; next = next_event(c, now)) {
        now = next;
        for (int moved = 1; moved;) {
            moved = fetch(c, now);
            for (int u = 0; u < UNIT_COUNT; u++)
                moved |= advance(c, u, now);
            for (int which = 0; which < 2; which++)
                moved |= grant(c, which, now);
        }
    }
    int64_t first = INT64_MAX;
    for (int u = 0; u < UNIT_COUNT; u++) {
        Unit *unit = &c->units[u];
        if (unit->state == NEEDS_COMMAND) {
            unit->reason = -1; /* its last instruction was done: it has no work, which is no stall */
            continue;
        }
        if (number(c, u) < first) {
            first = number(c, u);
            c->failure = (AccelFailure){CAUSE_DEADLOCK, first, {unit->reason - STALL_PREV, u, -1}};
        }
    }
    return first == INT64_MAX ? now : -1;
}

/* (cycles, gemm, alu, bytes read, bytes written, cycles of the channels), then for each unit instructions, busy and stalls. */
static PyObject *counts(const Clock *c, int64_t cycles) {
    const Channel *channels = c->channels;
    const int64_t head[] = {cycles, c->gemm, c->alu, channels[0].bytes, channels[1].bytes, channels[0].cycles, channels[1].cycles};
    Py_ssize_t heads = sizeof head / sizeof *head, size = heads + UNIT_COUNT * (2 + STALL_COUNT);
    PyObject *result = PyList_New(size);
    for (Py_ssize_t i = 0; result && i < size; i++) {
        int64_t value;
        if (i < heads) {
            value = head[i];
        } else {
            Py_ssize_t place = (i - heads) % (2 + STALL_COUNT);
            const Unit *unit = &c->units[(i - heads) / (2 + STALL_COUNT)];
            value = place == 0 ? unit->done : place == 1 ? unit->busy : unit->stalls[place - 2];
        }
        PyObject *item = PyLong_FromLongLong(value);
        if (item == NULL || PyList_SetItem(result, i, item) < 0) {
            Py_DECREF(result);
            return NULL;
        }
    }
    return result;
}

PyObject *tilesmith_accel_clock(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer machine, encoding, words, times;
    if (!PyArg_ParseTuple(args, "y*y*y*w*", &machine, &encoding, &words, &times))
        return NULL;
    Clock c = {.fetched = 0};
    PyObject *result = NULL;
    if (tilesmith_accel_open(&c.program, &machine, &encoding, &words) == 0) {
        c.times = times.len == 16 * c.program.count ? times.buf : NULL;
        c.fetch_cycles = quotient(ACCEL_WORD, c.program.machine[MACHINE_DMA_BYTES]);
        c.fetch_ready = c.fetch_cycles;
        int64_t cycles;
        Py_BEGIN_ALLOW_THREADS
        cycles = run_all(&c);
        Py_END_ALLOW_THREADS
        result = cycles < 0 ? accel_failure(&c.failure) : counts(&c, cycles);
        tilesmith_accel_close(&c.program);
    }
    Py_buffer *all[] = {&machine, &encoding, &words, &times};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        PyBuffer_Release(all[i]);
    return result;
}
