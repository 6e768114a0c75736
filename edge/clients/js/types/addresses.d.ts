/**
 * Where a call of an SDK goes: which edge, which dialect, and whether it is one that can be resumed. Pure.
 *
 * Before: `types`. After: `transport`, `stream`.
 */
/**
 * `call`: begins a generation. `stream`: reads one. Null for every other request: it is none of our business.
 * @param {string} method
 * @param {string} address
 * @returns {{ base: string, dialect: string, kind: "call" | "stream" } | null}
 */
export declare function addressOf(method: string, address: string): {
    base: string;
    dialect: string;
    kind: "call" | "stream";
} | null;
/**
 * An edge's address without `/v1`, as SDKs name it with and without.
 * @param {string | URL} edge
 */
export declare function baseOf(edge: string | URL): string;
/**
 * A call's path, which people name with and without `/v1`.
 * @param {string} path
 */
export declare function pathOf(path: string): string;
/**
 * A path below a generation.
 * @param {string} base
 * @param {string} generationId
 * @param {string} what
 * @param {Record<string, string | null>} [query]
 */
export declare function generationUrl(base: string, generationId: string, what: string, query?: Record<string, string | null>): string;
/**
 * The headers of a call that every other request about its generation carries as well: the same auth, above all.
 * @param {Headers} headers
 */
export declare function carriedHeaders(headers: Headers): Headers;
