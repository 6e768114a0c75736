/**
 * A body read to its end, within bounds of size and time, and answers made of bodies that were read.
 *
 * Before: `clock`. After: `connections`, `whole`.
 */
import type { Clock } from "./types.js";
/** @import { Clock } from "./types.js" */
/** There is more of a body than anybody wants to keep: reading it again would not help. */
export declare class TooLarge extends Error {
}
/**
 * The whole of a body, decoded. Raises TooLarge, TooLate, or what its connection died of; the body is then let go.
 * @param {Response} response
 * @param {{ bytesMax: number, ms?: number, clock?: Clock }} bounds
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
export declare function wholeBody(response: Response, { bytesMax, ms, clock }: {
    bytesMax: number;
    ms?: number;
    clock?: Clock;
}): Promise<Uint8Array<ArrayBuffer>>;
/**
 * A response like another one, with a body that is decoded already.
 * @param {Response} response
 * @param {BodyInit} body
 * @param {Record<string, string>} [own] headers in place of the other's
 */
export declare function likeness(response: Response, body: BodyInit, own?: Record<string, string>): Response;
/**
 * A refusal of which only the head is known, as every dialect says one.
 * @param {Response} response
 * @param {string} why
 */
export declare function beheaded(response: Response, why: string): Response;
