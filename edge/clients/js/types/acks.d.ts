/**
 * What the edge is told that was received: every 32 events, or two seconds after the first of them, and at the end.
 *
 * A range is `[first, last, crc32]`, the checksum in eight hex digits over the joined UTF-8 `data`; what differs at the edge
 * is sent again. Ranges that no edge took are said again with the next ones. Pure. Before: `cursor`. After: `reading`.
 */
import type { Frame } from "./types.js";
import type { Limits } from "./limits.js";
export type Range = [first: number, last: number, crc32: string];
export declare class Acks {
    #private;
    limits: Limits;
    /** @param {Limits} limits */
    constructor(limits: Limits);
    /**
     * Frames were stored.
     * @param {Frame[]} frames
     * @param {number} nowMs
     */
    took(frames: Frame[], nowMs: number): void;
    /**
     * What is to be said now; null before its time.
     * @param {number} nowMs
     * @param {boolean} last nothing follows
     * @returns {Range[] | null}
     */
    due(nowMs: number, last: boolean): Range[] | null;
    /**
     * No edge took these.
     * @param {Range[]} said
     */
    refused(said: Range[]): void;
}
