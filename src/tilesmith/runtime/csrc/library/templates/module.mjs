// NAME: a model compiled by Tilesmith VERSION.  See NAME.d.mts for the types.
//
//     import { load } from "./NAME.mjs";
//     const model = await load();
//     const { FIRST_OUTPUT } = model.run({ FIRST_INPUT });

const DESCRIPTION = TENSORS;

const ARRAYS = {
    f32: Float32Array, f64: Float64Array, i8: Int8Array, i16: Int16Array, i32: Int32Array, i64: BigInt64Array,
    u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, u64: BigUint64Array, bool: Uint8Array,
    f16: Uint16Array, bf16: Uint16Array, // their bits
};

const INPUTS = DESCRIPTION.inputs, OUTPUTS = DESCRIPTION.outputs;
const isKept = t => t.home >= 0 && INPUTS[t.home].state;
export const inputs = INPUTS.filter(t => !t.state);
export const outputs = OUTPUTS.filter(t => !isKept(t));
export const symbols = DESCRIPTION.symbols;

export class TilesmithError extends Error {
    constructor(message, code = 0) {
        super(message);
        this.name = "TilesmithError";
        this.code = code;
    }
}

async function contents(given, name) {
    if (given instanceof ArrayBuffer || ArrayBuffer.isView(given)) return given;
    const url = given ?? new URL(name, import.meta.url);
    if (String(url).startsWith("file:")) {
        const { readFile } = await import("node:fs/promises");
        return readFile(new URL(url));
    }
    const response = await fetch(url);
    if (!response.ok) throw new TilesmithError(`${url}: expected a file, found HTTP status ${response.status}`);
    return response.arrayBuffer();
}

/** A model of its own, with memory of its own.  See NAME.d.mts. */
export async function load(options = {}) {
    const module = options.module instanceof WebAssembly.Module
        ? options.module
        : await WebAssembly.compile(await contents(options.module, "NAME.wasm"));
    const weights = DESCRIPTION.weightsBytes ? await contents(options.weights, "NAME.weights") : new Uint8Array();
    return new Model(await WebAssembly.instantiate(module), weights);
}

class Model {
    #wasm; #model; #weights = 0; #arena = 0; #arenaBytes = 0; #blocks = new Map();

    constructor(instance, weights) {
        this.#wasm = instance.exports;
        this.#wasm._initialize();
        const bytes = weights.byteLength;
        if (bytes !== DESCRIPTION.weightsBytes)
            throw new TilesmithError(`weights: expected ${DESCRIPTION.weightsBytes} bytes, found ${bytes}`);
        if (bytes) {
            this.#weights = this.#allocate(bytes);
            const source = ArrayBuffer.isView(weights)
                ? new Uint8Array(weights.buffer, weights.byteOffset, bytes) : new Uint8Array(weights);
            new Uint8Array(this.#wasm.memory.buffer, this.#weights, bytes).set(source);
        }
        this.#model = this.#wasm.create(this.#weights, bytes);
        if (!this.#model) this.#fail(this.#wasm.last_code());
    }

    /** Run the model once.  See NAME.d.mts. */
    run(given) {
        const wasm = this.#wasm;
        const tensors = INPUTS.map(t => this.#checked(t, t.state ? undefined : given[t.name]));
        for (const name of Object.keys(given))
            if (!inputs.some(t => t.name === name))
                throw new TilesmithError(`expected inputs ${inputs.map(t => t.name).join(", ")}, found ${name}`);
        const extents = this.#extents(tensors);
        const pointers = this.#block("pointers", 4 * (INPUTS.length + OUTPUTS.length + 1));
        const numbers = this.#block("extents", 8 * (symbols.length + 1));
        const axes = OUTPUTS.reduce((n, t) => n + t.shape.length, 0);
        const shapes = this.#block("shapes", 8 * (axes + 1));
        new BigInt64Array(wasm.memory.buffer, numbers, symbols.length).set(extents.map(BigInt));
        this.#check(wasm.sizes(this.#model, numbers, shapes));
        const largest = this.#shapes(shapes);
        const bytes = wasm.arena_bytes(this.#model, numbers);
        if (bytes > this.#arenaBytes || !this.#arena) {
            wasm.release(this.#arena);
            this.#arenaBytes = 0;
            this.#arena = this.#allocate(bytes);
            this.#arenaBytes = bytes;
        }
        const places = tensors.map((t, i) => t.data ? this.#block(`input ${i}`, t.data.byteLength)
            : INPUTS[i].state ? this.#state(i) : wasm.default_input(this.#model, i) >>> 0);
        const homes = OUTPUTS.map((t, o) => t.home >= 0 ? places[t.home]
            : this.#block(`output ${o}`, size(largest[o]) * ARRAYS[t.dtype].BYTES_PER_ELEMENT));
        const memory = wasm.memory.buffer; // nothing is allocated from here on
        tensors.forEach((t, i) => t.data && new t.data.constructor(memory, places[i], t.data.length).set(t.data));
        new Uint32Array(memory, pointers, places.length + homes.length).set([...places, ...homes]);
        this.#check(wasm.run(this.#model, numbers, pointers, pointers + 4 * places.length, this.#arena));
        this.#check(wasm.found(this.#model, numbers, this.#arena, shapes));
        const results = this.#shapes(shapes); // as the data decide
        return Object.fromEntries(OUTPUTS.map((t, o) => [t.name, {
            dtype: t.dtype, shape: results[o], data: new ARRAYS[t.dtype](memory, homes[o], size(results[o])).slice(),
        }]).filter((_, o) => !isKept(OUTPUTS[o])));
    }

    /** Give what the model keeps from run to run its first values again. */
    reset() {
        INPUTS.forEach((t, i) => t.state && this.#state(i, true));
    }

    /** The address of a state, which begins as its default. */
    #state(i, isNew = !this.#blocks.has(`state ${i}`)) {
        const bytes = size(INPUTS[i].shape) * ARRAYS[INPUTS[i].dtype].BYTES_PER_ELEMENT;
        const address = this.#block(`state ${i}`, bytes), memory = new Uint8Array(this.#wasm.memory.buffer);
        const first = this.#wasm.default_input(this.#model, i) >>> 0;
        if (isNew) memory.copyWithin(address, first, first + bytes);
        return address;
    }

    /** The shapes of the outputs that lie, axis by axis, at an address. */
    #shapes(address) {
        let at = address;
        return OUTPUTS.map(t => {
            const axes = new BigInt64Array(this.#wasm.memory.buffer, at, t.shape.length);
            at += axes.byteLength;
            return Array.from(axes, Number);
        });
    }

    #checked(expected, given) {
        if (given === undefined && (expected.optional || expected.state)) return { shape: expected.shape };
        if (given === undefined) throw new TilesmithError(`input ${expected.name} is missing`);
        const isTensor = !ArrayBuffer.isView(given);
        const data = isTensor ? given.data : given, shape = isTensor ? given.shape : expected.shape;
        const where = `input ${expected.name}`;
        if (!(data instanceof ARRAYS[expected.dtype]))
            throw new TilesmithError(`${where}: expected ${ARRAYS[expected.dtype].name} for ${expected.dtype}, found ${
                data?.constructor?.name}`);
        if (!Array.isArray(shape) || shape.length !== expected.shape.length || !shape.every(Number.isInteger))
            throw new TilesmithError(`${where}: expected {data, shape} with shape [${expected.shape}], found [${shape}]`);
        expected.shape.forEach((n, axis) => {
            if (typeof n === "number" && n !== shape[axis])
                throw new TilesmithError(`${where}: expected shape [${expected.shape}], found [${shape}]`);
        });
        if (data.length !== size(shape))
            throw new TilesmithError(`${where}: expected ${size(shape)} elements for shape [${shape}], found ${data.length}`);
        return { data, shape };
    }

    #extents(tensors) {
        return symbols.map(symbol => {
            const found = new Set();
            tensors.forEach((t, i) => t.shape.forEach((n, axis) => {
                if (INPUTS[i].shape[axis] === symbol.name) found.add(n);
            }));
            const [extent] = found;
            if (found.size !== 1 || extent < symbol.least || extent > symbol.most)
                throw new TilesmithError(`extent ${symbol.name}: expected one number from ${symbol.least} to ${
                    symbol.most}, found ${[...found].join(" and ")}`);
            return extent;
        });
    }

    /** Memory that this model keeps for a purpose. */
    #block(purpose, bytes) {
        const kept = this.#blocks.get(purpose);
        if (kept && kept.bytes >= bytes) return kept.address;
        if (kept) this.#wasm.release(kept.address);
        this.#blocks.delete(purpose);
        const address = this.#allocate(bytes);
        this.#blocks.set(purpose, { address, bytes });
        return address;
    }

    #allocate(bytes) {
        const address = bytes >= 0 && bytes < 2 ** 32 ? this.#wasm.allocate(bytes) >>> 0 : 0;
        if (!address) throw new TilesmithError(`there is no memory for ${bytes} bytes`);
        return address;
    }

    #check(code) {
        if (code) this.#fail(code);
    }

    #fail(code) {
        const room = 512, text = this.#block("text", room);
        const arena = code === 1 ? this.#arena : 0;
        const length = this.#wasm.error(this.#model ?? 0, code, arena, text, room);
        const bytes = new Uint8Array(this.#wasm.memory.buffer, text, Math.min(length, room - 1));
        throw new TilesmithError(new TextDecoder().decode(bytes), code);
    }
}

function size(shape) {
    return shape.reduce((a, n) => a * n, 1);
}
