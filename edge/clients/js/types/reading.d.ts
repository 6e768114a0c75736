/**
 * One session: frames of one generation across any number of connections, each once and in order.
 *
 * The order of things is written here and nowhere else: whole frames, then what is new among them, then stored, then
 * acknowledged and handed over. What is lost with a connection was never handed over, so it comes again behind the stored
 * id. The session ends at the terminal, at the reader's own abort (the generation is then cancelled, once), or where the
 * matrix stops. Before: `connections`, `sse`, `progress`, `acks`. After: `transport` and `stream`, which say what a connection is.
 */
import { Connections } from "./connections.js";
import type { Frame, ReadingOptions } from "./types.js";
/** @import { Frame, ReadingOptions } from "./types.js" */
export declare class Reading extends Connections {
    #private;
    /** @param {ReadingOptions} options */
    constructor(options: ReadingOptions);
    /**
     * The head of the next connection; null where nothing follows, which is then stored. See `Connections.next`.
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
}
