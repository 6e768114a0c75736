/**
 * One session: frames of one generation across any number of connections, each once and in order.
 *
 * The order of things is written here and nowhere else: whole frames, then what is new among them, then stored, then
 * handed over. What is lost with a connection was never handed over, so it comes again behind the stored id. The session
 * ends at the terminal, at the reader's own abort (the generation is then cancelled, once), or where the matrix stops.
 * Before: `states`, `retry`, `sse`, `progress`. After: `transport` and `stream`, which say what a connection is.
 */
import { StreamError } from "./errors.js";
import { Machine } from "./states.js";
import type { Frame, ReadingOptions } from "./types.js";
import type { Answered, Lost } from "./retry.js";
export declare class Reading {
    #private;
    machine: Machine;
    /** @param {ReadingOptions} options */
    constructor(options: ReadingOptions);
    /** Where it stands. */
    get position(): {
        session: string;
        base: string;
        dialect: string;
        generationId: string | null;
        lastEventId: string | null;
        seq: number;
        token: string | null;
        crc32: number;
        startedMs: number;
        ended: boolean;
    };
    /**
     * End it from the reader's side. Nothing is read any more; the generation is cancelled where it is known to run.
     * @param {unknown} [cause]
     */
    abort(cause?: unknown): void;
    /**
     * Told about an abort at once, also while nothing is being read.
     * @param {(error: StreamError) => void} told
     */
    onAbort(told: (error: StreamError) => void): void;
    /**
     * The head of the next connection: a stream, null where nothing follows what was read, or (where `refusalsUp`) a
     * refusal of the call as it came. Raises StreamError.
     * @returns {Promise<Response | null>}
     */
    connect(): Promise<Response | null>;
    /**
     * The frames, from the first connection's stream (else from one that is opened now) to the terminal.
     * @param {Response | null} [first]
     * @returns {AsyncGenerator<Frame[], void, void>}
     */
    batches(first?: Response | null): AsyncGenerator<Frame[], void, void>;
    /** Nothing follows. */
    complete(): Promise<void>;
    /**
     * There is nothing yet: the next try is due in a while.
     * @param {number} waitMs
     */
    later(waitMs: number): void;
    /**
     * A connection is lost, or a try failed: the next one waits as long as the matrix says. Raises where it says stop.
     * @param {Lost | Answered} failure
     * @param {{ response?: Response, cause?: unknown }} [known]
     */
    lost(failure: Lost | Answered, { response, cause }?: {
        response?: Response;
        cause?: unknown;
    }): Promise<void>;
}
