/**
 * Tickets: how a browser reads one generation without a key, and without setting a header.
 *
 * A server of yours, which has the key, asks for the ticket; the page opens `EventSource(eventsUrl(…))`, or `attach`es.
 * Before: `addresses`. After: the application.
 */

import { baseOf, generationUrl } from "./addresses.js";
import { wholeBody } from "./bodies.js";
import { errorIn, objectIn } from "./dialects.js";
import { StreamError, reasonOf } from "./errors.js";
import { LIMITS } from "./limits.js";
import { isRedirect, strangerSays } from "./strangers.js";

/** @import { Fetch } from "./types.js" */

/**
 * A short-lived ticket for one generation; the answer's fields as the edge gives them, `ticket` among them. Raises StreamError.
 * @param {{ edge: string, generationId: string, apiKey: string, fetch?: Fetch, signal?: AbortSignal }} options
 * @returns {Promise<{ ticket: string, [field: string]: unknown }>}
 */
export async function ticketFor({ edge, generationId, apiKey, fetch = globalThis.fetch, signal }) {
  /** @type {RequestInit} */
  const init = { method: "POST", headers: { authorization: `Bearer ${apiKey}` }, signal, redirect: "manual" };
  const { response, body } = await answerOf(fetch(generationUrl(baseOf(edge), generationId, "tickets"), init)).catch((cause) => {
    if (signal?.aborted) throw signal.reason;
    throw new StreamError(`no answer that is whole: ${reasonOf(cause)}`, { code: "unreachable", generationId, cause });
  });
  const known = { status: response.status, generationId };
  const said = objectIn(body);
  if (response.ok && typeof said.ticket === "string") return /** @type {any} */ (said);
  if (response.ok || isRedirect(response)) throw new StreamError(strangerSays(response), { code: "not_an_edge", ...known });
  const { code = "refused", message = `the answer is HTTP ${response.status}` } = errorIn(body);
  throw new StreamError(message, { code, ...known });
}

/** @param {Promise<Response>} asked */
async function answerOf(asked) {
  const response = await asked;
  const bytes = await wholeBody(response, { bytesMax: LIMITS.refusalBytesMax });
  return { response, body: new TextDecoder().decode(bytes) };
}

/**
 * The address of a generation's events for an EventSource, which resumes by itself.
 * @param {{ edge: string, generationId: string, ticket: string, after?: string, dialect?: string }} options
 */
export function eventsUrl({ edge, generationId, ticket, after, dialect }) {
  return generationUrl(baseOf(edge), generationId, "events", { dialect: dialect ?? null, after: after ?? null, ticket });
}
