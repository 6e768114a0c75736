/**
 * Tickets: how a browser reads one generation without a key, and without setting a header.
 *
 * A server of yours, which has the key, asks for the ticket; the page opens `EventSource(eventsUrl(…))`, or `attach`es.
 * Before: `addresses`. After: the application.
 */

import { baseOf, generationUrl } from "./addresses.js";
import { errorIn } from "./dialects.js";
import { StreamError } from "./errors.js";

/** @import { Fetch } from "./types.js" */

/**
 * A short-lived ticket for one generation; the answer's fields as the edge gives them, `ticket` among them.
 * @param {{ edge: string, generationId: string, apiKey: string, fetch?: Fetch, signal?: AbortSignal }} options
 * @returns {Promise<{ ticket: string, [field: string]: unknown }>}
 */
export async function ticketFor({ edge, generationId, apiKey, fetch = globalThis.fetch, signal }) {
  /** @type {RequestInit} */
  const init = { method: "POST", headers: { authorization: `Bearer ${apiKey}` }, signal, redirect: "manual" };
  const response = await fetch(generationUrl(baseOf(edge), generationId, "tickets"), init);
  const body = await response.text();
  if (response.ok) return JSON.parse(body);
  const { code = "refused", message = `the answer is HTTP ${response.status}` } = errorIn(body);
  throw new StreamError(message, { code, status: response.status, generationId });
}

/**
 * The address of a generation's events for an EventSource, which resumes by itself.
 * @param {{ edge: string, generationId: string, ticket: string, after?: string, dialect?: string }} options
 */
export function eventsUrl({ edge, generationId, ticket, after, dialect }) {
  return generationUrl(baseOf(edge), generationId, "events", { dialect: dialect ?? null, after: after ?? null, ticket });
}
