/**
 * How the iterator connects: a call that is answered at once with its generation, then the generation's native events.
 *
 * With a ticket instead of a key nothing travels in headers, so that a browser needs no preflight: the cursor then stands
 * in the address as well. Before: `addresses`. After: `stream`.
 */
import type { Fetch, Source } from "./types.js";
export type Target = {
    /**
     * the gateway's address first, without `/v1`
     */
    bases: string[];
    session: string;
    generationId: string | null;
    fetch: Fetch;
    /**
     * with the key, if there is one
     */
    headers: Headers;
    ticket: string | null;
    path?: string;
    body?: unknown;
};
/**
 * `path` and `body`: of the call; left out where the generation runs already.
 * @typedef {object} Target
 * @property {string[]} bases the gateway's address first, without `/v1`
 * @property {string} session
 * @property {string | null} generationId
 * @property {Fetch} fetch
 * @property {Headers} headers with the key, if there is one
 * @property {string | null} ticket
 * @property {string} [path]
 * @property {unknown} [body]
 */
/** @implements {Source} */
export declare class NativeSource implements Source {
    #private;
    generationId: string | null;
    /** @param {Target} target */
    constructor(target: Target);
    /** @param {AbortSignal} signal */
    open(signal: AbortSignal): Promise<Response>;
    /**
     * @param {string | null} lastEventId
     * @param {AbortSignal} signal
     */
    reopen(lastEventId: string | null, signal: AbortSignal): Promise<Response>;
    /**
     * Tell an edge what was received; undefined from where one has said that it does not want to know.
     * @type {((ranges: import("./acks.js").Range[]) => Promise<boolean>) | undefined}
     */
    acknowledge: ((ranges: import("./acks.js").Range[]) => Promise<boolean>) | undefined;
    cancel(): Promise<void>;
}
