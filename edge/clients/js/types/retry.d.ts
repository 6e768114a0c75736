/**
 * The retry matrix: what happened to a connection, and what is done about it. Pure.
 *
 * | what happened | what is done |
 * |---|---|
 * | reset, early end, silence, no answer | try again; a call by its Idempotency-Key, a stream behind its last id |
 * | 429 or 5xx that says `x-should-retry: true` | try again, not before its Retry-After |
 * | 429 or 5xx that says `false` | stop |
 * | 429 or 5xx that says neither | try again where it names a Retry-After, or is a 502, 503, 504: a proxy lost the edge |
 * | any of these answers, cut within its body | try again, `openAttempts` times at most; then its head counts |
 * | in place of an answer a page, another generation's stream (a cache), or a redirect, which nobody follows | try again |
 * | any other 4xx | stop |
 *
 * What never comes here: the reader's own abort, and anything behind the terminal.
 * Before: `limits`. After: `connections`.
 */
import type { Limits } from "./limits.js";
export type Lost = {
    kind: "cut" | "early_end" | "idle" | "gap" | "foreign";
    notBeforeMs?: number;
};
export type Answered = {
    kind: "answer";
    status: number;
    advice: string | null;
    retryAfterMs: number | null;
};
export type Situation = {
    fruitless: number;
    begun: boolean;
    leftMs: number;
    random: number;
    limits: Limits;
};
/**
 * How long to wait before the next try, or why there is none.
 * @param {Lost | Answered} failure
 * @param {Situation} situation
 * @returns {{ waitMs: number } | { stop: string }}
 */
export declare function decide(failure: Lost | Answered, situation: Situation): {
    waitMs: number;
} | {
    stop: string;
};
/**
 * What the head of a refusal says.
 * @param {Answered} answer
 */
export declare function mayBeRetried({ status, advice, retryAfterMs }: Answered): boolean;
/**
 * What an answer's head says about trying again: `retry-after-ms`, else Retry-After, in seconds or as an HTTP date.
 * @param {Response} response
 * @param {number} wallMs
 * @returns {Answered}
 */
export declare function answered(response: Response, wallMs: number): Answered;
