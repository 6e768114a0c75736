/**
 * A `fetch` for unmodified SDKs: the stream above it is one, whatever happens to the connections below.
 *
 *     new OpenAI({ baseURL: "https://gateway.example/v1", fetch: resumableFetch() })
 *
 * A call gets an Idempotency-Key, and is sent again where nobody answered it; a refusal goes up as it came, and whole, since
 * the SDK has its own mind about it. A stream is resumed behind its last whole event. An answer that is no stream and was cut is
 * fetched as the generation's result. Anything that is not a tokentrail generation passes through untouched.
 * Before: `reading`, `addresses`, `retried`, `whole`. After: the SDK.
 */
import type { Clock, Fetch, StateChange, Store } from "./types.js";
import type { Limits } from "./limits.js";
export type TransportOptions = {
    /**
     * what makes the connections; default: the platform's
     */
    fetch?: Fetch;
    /**
     * keeps where each session stands; default: in memory
     */
    store?: Store;
    /**
     * for a "resuming…" hint
     */
    onState?: (change: StateChange) => void;
    limits?: Partial<Limits>;
    /**
     * whether the reader's own abort ends the generation; default: yes
     */
    cancelOnAbort?: boolean;
    /**
     * other addresses of the same gateway (without `/v1`), taken in turn when resuming
     */
    edges?: string[];
    clock?: Clock;
};
/** @import { Clock, Fetch, Source, StateChange, Store } from "./types.js" */
/** @import { Limits } from "./limits.js" */
/**
 * @typedef {object} TransportOptions
 * @property {Fetch} [fetch] what makes the connections; default: the platform's
 * @property {Store} [store] keeps where each session stands; default: in memory
 * @property {(change: StateChange) => void} [onState] for a "resuming…" hint
 * @property {Partial<Limits>} [limits]
 * @property {boolean} [cancelOnAbort] whether the reader's own abort ends the generation; default: yes
 * @property {string[]} [edges] other addresses of the same gateway (without `/v1`), taken in turn when resuming
 * @property {Clock} [clock]
 */
/**
 * A fetch whose streams survive a cut.
 * @param {TransportOptions} [options]
 * @returns {Fetch}
 */
export declare function resumableFetch(options?: TransportOptions): Fetch;
export type Asked = {
    url: string;
    method: string;
    headers: Headers;
    body: BodyInit | null;
    signal: AbortSignal | null;
    more: RequestInit;
};
