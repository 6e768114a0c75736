/**
 * Server-sent events: bytes in, whole frames out, and frames as bytes again. Pure; the grammar is WHATWG HTML's.
 *
 * Any split of the same bytes gives the same frames. A frame that no blank line has closed is none: after a cut it comes
 * again. Comments and `retry:` are dropped. Before: `types`. After: `reading`.
 */
import type { Frame } from "./types.js";
export declare class FrameParser {
    #private;
    frameCharsMax: number;
    /** Whether one event was above the bound: nothing behind it is read, and reading it again would not help. */
    tooLarge: boolean;
    /** @param {number} frameCharsMax */
    constructor(frameCharsMax: number);
    /**
     * The frames that end within these bytes.
     * @param {Uint8Array} bytes
     * @returns {Frame[]}
     */
    feed(bytes: Uint8Array): Frame[];
}
/**
 * Frames as an SDK reads them.
 * @param {Frame[]} frames
 * @returns {Uint8Array}
 */
export declare function encodeFrames(frames: Frame[]): Uint8Array;
