/**
 * A generation as an async iterator: begun here, gone on with after a crash or a reload, or attached to.
 *
 *     for await (const item of generate({ edge, apiKey, body })) if (item.type === "delta") write(item.text);
 *
 * An event is stored, with its id, before it is handed over. So `resume` gives the same items again from the first one on
 * (or behind `after`, the seq that the application itself remembers): what was stored from the store, the rest from the
 * server. Wherever the process died, nothing is left out of that sequence and nothing stands in it twice.
 * Before: `reading`, `source`, `answer`. After: the application.
 */
import type { Clock, Fetch, Saved, StateChange, Store } from "./types.js";
import type { End, Item } from "./answer.js";
import type { Limits } from "./limits.js";
export type StreamOptions = {
    /**
     * the gateway's address, with or without `/v1`
     */
    edge?: string;
    apiKey?: string;
    /**
     * more of them, on every request
     */
    headers?: HeadersInit;
    store?: Store;
    /**
     * the application has the items up to this seq: they are not given again
     */
    after?: number;
    signal?: AbortSignal;
    onState?: (change: StateChange) => void;
    onHeartbeat?: (beat: {
        stage: string;
        elapsed_ms: number;
    }) => void;
    /**
     * the edge says again what it has
     * otherwise than it was acknowledged
     */
    onResent?: (event: {
        seq: number;
        event: string;
        data: string;
    }) => void;
    /**
     * whether an abort of `signal` ends the generation; default: yes
     */
    cancelOnAbort?: boolean;
    limits?: Partial<Limits>;
    fetch?: Fetch;
    /**
     * other addresses of the same gateway, taken in turn
     */
    edges?: string[];
    clock?: Clock;
};
/**
 * Begin a generation.
 * @param {StreamOptions & { edge: string, body: unknown, path?: string, session?: string }} options `path`: of the dialect, with or without `/v1`;
 *   `session`: a name of the caller's, also its Idempotency-Key
 */
export declare function generate(options: StreamOptions & {
    edge: string;
    body: unknown;
    path?: string;
    session?: string;
}): Stream;
/**
 * Go on with a stored session; undefined where the store has none of that name, or none that had begun.
 * @param {string} session
 * @param {StreamOptions & { store: Store }} options `edge`: only where it is not the session's own
 * @returns {Promise<Stream | undefined>}
 */
export declare function resume(session: string, options: StreamOptions & {
    store: Store;
}): Promise<Stream | undefined>;
/**
 * Read a generation that somebody else has begun, from its first event on.
 * @param {StreamOptions & { edge: string, generationId: string, ticket?: string, session?: string }} options `ticket`:
 *   instead of a key, where there must be none
 */
export declare function attach(options: StreamOptions & {
    edge: string;
    generationId: string;
    ticket?: string;
    session?: string;
}): Stream;
export declare class Stream {
    #private;
    /**
     * @param {Saved} saved
     * @param {{ path?: string, body?: unknown, ticket?: string }} call
     * @param {StreamOptions} options
     */
    constructor(saved: Saved, call: {
        path?: string;
        body?: unknown;
        ticket?: string;
    }, options: StreamOptions);
    /** The name under which the store has it. */
    get session(): string;
    /** Null until the edge has answered. */
    get generationId(): string | null;
    get state(): import("./types.js").State;
    /** The text of the first choice, as far as it came. */
    get text(): string;
    /** End it, and the generation with it. */
    cancel(): void;
    [Symbol.asyncIterator](): AsyncGenerator<Item, void, void>;
    /**
     * The end, with all that it came to; reads to it where nobody else does. Raises GenerationError or StreamError.
     * @returns {Promise<End>}
     */
    result(): Promise<End>;
    /** What the whole answer says in JSON. Raises where it is cut short, or no JSON. */
    json(): Promise<any>;
}
