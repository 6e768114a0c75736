/**
 * Who answers, if it is no edge, or not with this generation: a proxy's page, a portal's redirect, a cache's stream. Pure.
 *
 * Before: `types`. After: `connections`.
 */
/**
 * Whether an answer is not this generation's: another one's, from a cache that should not be there, or a proxy's page. Every
 * edge names the generation; where a browser hides the name from its page, a stream must do. Before there is a generation,
 * what `others` may answer a call is handed on: any stream, any JSON.
 * @param {Response} response
 * @param {import("./types.js").Source} source
 * @param {boolean} others whether those who are no edge may answer, too
 */
export declare function isForeign({ headers }: Response, { generationId, streamed }: import("./types.js").Source, others: boolean): boolean;
/**
 * Whether an answer sends us elsewhere: an edge never does, and a key goes only to the addresses that were given.
 * @param {Response} response
 */
export declare function isRedirect({ status }: Response): boolean;
/**
 * Who answers in place of an edge, for people: without the queries of addresses, in which a ticket may stand.
 * @param {Response} response
 */
export declare function strangerSays(response: Response): string;
