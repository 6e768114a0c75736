/**
 * What a reader is told when a stream has no proper end. Each error carries what came until then.
 *
 * Before: `types`. After: `retry`, `reading`, `stream`.
 */
export type ErrorDetails = {
    /**
     * the edge's word (`resume_expired`, `stall_timeout` …), or one of the library's: `aborted`,
     * `unreachable`, `not_an_edge`, `session_timeout`, `read_timeout`, `frame_too_large`, `answer_too_large`, `foreign_cursor`,
     * `unreadable_event`, `refused`, `refusal_cut` (its body did not come whole)
     */
    code: string;
    /**
     * of the HTTP answer
     */
    status?: number;
    /**
     * whether the same call may be sent again by itself
     */
    retryable?: boolean;
    retryAfterMs?: number;
    generationId?: string | null;
    session?: string;
    /**
     * of the first choice, as far as it came
     */
    text?: string;
    cause?: unknown;
};
/**
 * @typedef {object} ErrorDetails
 * @property {string} code the edge's word (`resume_expired`, `stall_timeout` …), or one of the library's: `aborted`,
 *   `unreachable`, `not_an_edge`, `session_timeout`, `read_timeout`, `frame_too_large`, `answer_too_large`, `foreign_cursor`,
 *   `unreadable_event`, `refused`, `refusal_cut` (its body did not come whole)
 * @property {number} [status] of the HTTP answer
 * @property {boolean} [retryable] whether the same call may be sent again by itself
 * @property {number} [retryAfterMs]
 * @property {string | null} [generationId]
 * @property {string} [session]
 * @property {string} [text] of the first choice, as far as it came
 * @property {unknown} [cause]
 */
/** Anything that ends a stream without its proper end. */
export declare class TokentrailError extends Error {
    code: string;
    status: number | undefined;
    retryable: boolean;
    retryAfterMs: number | undefined;
    generationId: string | null;
    session: string | undefined;
    text: string;
    /**
     * @param {string} message
     * @param {ErrorDetails} details
     */
    constructor(message: string, details: ErrorDetails);
}
/** The stream could not be read to its end: refused, out of reach, out of time, or the reader's own abort. */
export declare class StreamError extends TokentrailError {
}
/** The stream was read to its end, and that is an error of the generation. */
export declare class GenerationError extends TokentrailError {
}
/**
 * What is known of a refusal: by the matrix, by the answer's head, and by its body.
 * @param {string} stop
 * @param {{ status: number, advice: string | null, retryAfterMs: number | null } | null} answer
 * @param {{ code?: string, message?: string }} said
 * @param {unknown} [cause] what the last try died of
 * @returns {{ message: string, details: ErrorDetails }}
 */
export declare function refusalOf(stop: string, answer: {
    status: number;
    advice: string | null;
    retryAfterMs: number | null;
} | null, said: {
    code?: string;
    message?: string;
}, cause?: unknown): {
    message: string;
    details: ErrorDetails;
};
/**
 * Why a connection failed: platforms say it in the cause, "fetch failed" before it.
 * @param {any} error
 */
export declare function reasonOf(error: any): string;
