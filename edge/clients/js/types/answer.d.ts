/**
 * What the native events of a generation add up to: one item for each event that says something, and the whole. Pure.
 *
 * Tool calls are given once, with the end, and only those that are complete; JSON is parsed only behind a proper end: half
 * of either is not to be acted on. Before: `dialects`. After: `stream`.
 */
import type { Frame } from "./types.js";
export type Part = {
    type: string;
    text?: string;
    choice_index?: number;
    tool_index?: number;
    tool_call_id?: string;
    name?: string;
    [field: string]: unknown;
};
export type ToolCall = {
    id: string;
    name: string;
    arguments: string;
    input: unknown;
    choice: number;
    index: number;
};
export type Start = {
    type: "start";
    seq: number;
    id: string;
    fields: Record<string, any>;
};
export type Delta = {
    type: "delta";
    seq: number;
    id: string;
    text: string;
    parts: Part[];
};
export type End = {
    type: "end";
    seq: number;
    id: string;
    finishReason: string;
    text: string;
    reasoning: string;
    choices: string[];
    toolCalls: ToolCall[];
    usage: Record<string, any> | null;
    fields: Record<string, any>;
};
export type Item = Start | Delta | End;
/** A generation says more than anybody wants to hold. */
export declare class TooLong extends Error {
}
export declare class Answer {
    #private;
    charsMax: number;
    reasoning: string;
    /** @type {End | null} */
    end: End | null;
    /** The error that ended it. @type {Record<string, any> | null} */
    failure: Record<string, any> | null;
    /** @param {number} charsMax of all that is said */
    constructor(charsMax: number);
    /** The text of the first choice. */
    get text(): string;
    /**
     * Take one frame; null where it says nothing of its own. Raises where it is no event of an edge's.
     * @param {Frame} frame
     * @returns {Item | null}
     */
    take(frame: Frame): Item | null;
}
/**
 * What a whole answer in JSON says. Raises where it is no whole answer, or no JSON.
 * @param {End} end
 */
export declare function jsonOf(end: End): any;
