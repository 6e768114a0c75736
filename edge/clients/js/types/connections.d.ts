/**
 * The connections of one session, one after the other: opened, lost, opened again as the matrix says, ended, aborted.
 *
 * The only place that moves the state machine. The reader's own abort ends the connection and the waiting at once, tells
 * whoever wants to know, and cancels the generation, once; nothing is tried behind it, nor behind the end.
 * Before: `states`, `retry`, `clock`. After: `reading`.
 */
import { StreamError } from "./errors.js";
import { Machine } from "./states.js";
import type { Position, ReadingOptions } from "./types.js";
import type { Answered, Lost } from "./retry.js";
export declare class Connections {
    #private;
    options: ReadingOptions;
    position: Position;
    machine: Machine;
    /** The present connection's. */
    connection: AbortController;
    /**
     * @param {ReadingOptions} options
     * @param {Position} position as it moves on
     */
    constructor(options: ReadingOptions, position: Position);
    /**
     * End it from the reader's side. Nothing is read any more; the generation is cancelled where it is known to run.
     * @param {unknown} [cause]
     */
    abort(cause?: unknown): void;
    /** The reader reads no further: the connection ends, and the session may be opened again. */
    leave(): void;
    /**
     * Told about an abort at once, also while nothing is being read.
     * @param {(error: StreamError) => void} told
     */
    onAbort(told: (error: StreamError) => void): void;
    /**
     * The head of the next connection: a stream, null where nothing follows the position, or (where `refusalsUp`) a refusal
     * of the call as it came. Raises StreamError.
     * @returns {Promise<Response | null>}
     */
    next(): Promise<Response | null>;
    /** Something new came, or was taken by a slow reader: the next loss is the first again, and no edge was silent. */
    progressed(): void;
    /** The end is here, and stored. */
    settle(): void;
    /**
     * There is nothing yet: the next try is due in a while.
     * @param {number} waitMs
     */
    later(waitMs: number): void;
    /**
     * A connection is lost, or a try failed: the next one waits as long as the matrix says. Raises where it says stop.
     * @param {Lost | Answered} failure
     * @param {{ said?: { code?: string, message?: string }, cause?: unknown }} [known] `said`: what a refusal says
     */
    lost(failure: Lost | Answered, { said, cause }?: {
        said?: {
            code?: string;
            message?: string;
        };
        cause?: unknown;
    }): void;
    /**
     * End it, and give the error that says why.
     * @param {string} message
     * @param {import("./errors.js").ErrorDetails} details
     */
    refuse(message: string, details: import("./errors.js").ErrorDetails): StreamError;
    /** What is left of the session's time, and of that without a new event. */
    leftMs(): number;
    /** Which of the two bounds comes first. */
    boundCode(): "read_timeout" | "session_timeout";
    /** Raises StreamError where the reader has ended it. */
    throwIfAborted(): void;
}
