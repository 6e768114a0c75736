/**
 * The real clock, waiting with a bound, and names by chance. Everything else takes time as an argument.
 *
 * Before: `types`. After: `connections`.
 */
import type { Clock } from "./types.js";
/** @type {Clock} */
export declare const systemClock: Clock;
/** Something did not come in time. */
export declare class TooLate extends Error {
}
/**
 * A promise's value, or TooLate.
 * @template T
 * @param {Promise<T>} promise
 * @param {number} ms
 * @param {Clock} clock
 * @returns {Promise<T>}
 */
export declare function within<T>(promise: Promise<T>, ms: number, clock: Clock): Promise<T>;
/** A name that nobody else has, also where `crypto.randomUUID` is missing: in pages that came by plain HTTP. */
export declare function newName(): string;
