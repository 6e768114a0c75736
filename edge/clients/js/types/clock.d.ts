/**
 * The real clock, and waiting with a bound. Everything else takes time as an argument.
 *
 * Before: `types`. After: `reading`.
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
