/**
 * Tickets: how a browser reads one generation without a key, and without setting a header.
 *
 * A server of yours, which has the key, asks for the ticket; the page opens `EventSource(eventsUrl(…))`, or `attach`es.
 * Before: `addresses`. After: the application.
 */
import type { Fetch } from "./types.js";
/** @import { Fetch } from "./types.js" */
/**
 * A short-lived ticket for one generation; the answer's fields as the edge gives them, `ticket` among them. Raises StreamError.
 * @param {{ edge: string, generationId: string, apiKey: string, fetch?: Fetch, signal?: AbortSignal }} options
 * @returns {Promise<{ ticket: string, [field: string]: unknown }>}
 */
export declare function ticketFor({ edge, generationId, apiKey, fetch, signal }: {
    edge: string;
    generationId: string;
    apiKey: string;
    fetch?: Fetch;
    signal?: AbortSignal;
}): Promise<{
    ticket: string;
    [field: string]: unknown;
}>;
/**
 * The address of a generation's events for an EventSource, which resumes by itself.
 * @param {{ edge: string, generationId: string, ticket: string, after?: string, dialect?: string }} options
 */
export declare function eventsUrl({ edge, generationId, ticket, after, dialect }: {
    edge: string;
    generationId: string;
    ticket: string;
    after?: string;
    dialect?: string;
}): string;
