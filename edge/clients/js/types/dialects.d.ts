/**
 * What a client must understand of a frame, whatever the dialect: is it the end, and is it a notice without a number.
 *
 * The terminal is a numbered event. A cut behind one that is not known here is no harm: the edge answers 204 to its id.
 * Before: `sse`. After: `reading`.
 */
import type { Frame } from "./types.js";
/** @import { Frame } from "./types.js" */
export declare const NATIVE = "native";
/**
 * Whether a numbered frame ends its generation.
 * @param {string} dialect
 * @param {Frame} frame
 */
export declare function isTerminal(dialect: string, frame: Frame): boolean;
/**
 * The code and message of an error that has no number: the connection's, not the generation's. Null for anything else.
 * @param {string} dialect
 * @param {Frame} frame
 * @returns {{ code: string, message: string } | null}
 */
export declare function noticeIn(dialect: string, frame: Frame): {
    code: string;
    message: string;
} | null;
/**
 * Code and message of an error's body, in whatever dialect.
 * @param {string} text
 * @returns {{ code?: string, message?: string }}
 */
export declare function errorIn(text: string): {
    code?: string;
    message?: string;
};
/**
 * @param {string} text
 * @returns {Record<string, any>}
 */
export declare function objectIn(text: string): Record<string, any>;
