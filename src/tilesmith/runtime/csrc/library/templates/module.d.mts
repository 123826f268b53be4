// NAME: a model compiled by Tilesmith VERSION.

/** Element types and their arrays; f16 and bf16 are given as their bits. */
export type Data =
    | Float32Array | Float64Array | Int8Array | Int16Array | Int32Array | BigInt64Array
    | Uint8Array | Uint16Array | Uint32Array | BigUint64Array;

export interface Tensor<D extends Data = Data> {
    data: D;
    shape: number[];
}

export interface Result<D extends Data = Data> extends Tensor<D> {
    dtype: string;
}

/** The inputs.  One with open extents is a Tensor, whose shape says them. */
export interface Inputs {
INPUT_TYPES
}

export interface Outputs {
OUTPUT_TYPES
}

export interface Model {
    /** Run the model once.  Throws TilesmithError for inputs that do not fit. */
    run(inputs: Inputs): Outputs;
    /** Give what the model keeps from run to run its first values again. */
    reset(): void;
}

/**
 * A model with memory of its own.
 * module: NAME.wasm, compiled or not, or where it is; default: beside this file.
 * weights: NAME.weights, or where it is; default: beside this file.
 */
export function load(options?: {
    module?: WebAssembly.Module | ArrayBuffer | ArrayBufferView | URL | string;
    weights?: ArrayBuffer | ArrayBufferView | URL | string;
}): Promise<Model>;

/** What was expected and what was found; `code` is that of tilesmith_model.h, 0 for a wrong argument. */
export class TilesmithError extends Error {
    code: number;
}

export interface Description {
    name: string;
    dtype: string;
    /** Numbers, and names of symbols. */
    shape: (number | string)[];
}

export const inputs: readonly Description[];
export const outputs: readonly Description[];
export const symbols: readonly { name: string; least: number; most: number }[];
