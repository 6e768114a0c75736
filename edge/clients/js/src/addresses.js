/**
 * Where a call of an SDK goes: which edge, which dialect, and whether it is one that can be resumed. Pure.
 *
 * Before: `types`. After: `transport`, `stream`.
 */

const CALL = /^(.*)\/v1\/(chat\/completions|messages|responses)\/?$/;
const STREAM = /^(.*)\/v1\/(generations|responses)\/[^/]+(\/events)?$/;
const DIALECTS = new Map([
  ["chat/completions", "openai.chat"],
  ["messages", "anthropic.messages"],
  ["responses", "openai.responses"],
]);

/**
 * `call`: begins a generation. `stream`: reads one. Null for every other request: it is none of our business.
 * @param {string} method
 * @param {string} address
 * @returns {{ base: string, dialect: string, kind: "call" | "stream" } | null}
 */
export function addressOf(method, address) {
  const url = new URL(address, globalThis.location?.href);
  const found = (method === "POST" ? CALL : STREAM).exec(url.pathname);
  if (found === null || !["POST", "GET"].includes(method)) return null;
  const base = url.origin + found[1];
  if (method === "POST") return { base, dialect: DIALECTS.get(found[2]) ?? "", kind: "call" };
  if (found[2] === "generations" && !found[3]) return null;
  const asked = url.searchParams.get("dialect") ?? "native";
  return { base, dialect: found[2] === "responses" ? "openai.responses" : asked, kind: "stream" };
}

/**
 * An edge's address without `/v1`, as SDKs name it with and without.
 * @param {string | URL} edge
 */
export function baseOf(edge) {
  const url = new URL(edge);
  return url.origin + url.pathname.replace(/\/+$/, "").replace(/\/v1$/, "");
}

/**
 * A call's path, which people name with and without `/v1`.
 * @param {string} path
 */
export function pathOf(path) {
  return path.startsWith("/v1/") ? path : `/v1/${path.replace(/^\//, "")}`;
}

/**
 * A path below a generation.
 * @param {string} base
 * @param {string} generationId
 * @param {string} what
 * @param {Record<string, string | null>} [query]
 */
export function generationUrl(base, generationId, what, query = {}) {
  const url = new URL(`${base}/v1/generations/${encodeURIComponent(generationId)}/${what}`);
  for (const [name, value] of Object.entries(query)) if (value !== null) url.searchParams.set(name, value);
  return url.href;
}

/** Headers that describe a call's body, or are the call's own: they make no sense on what reads its answer. */
const OF_THE_CALL = /^(content-.*|accept|expect|prefer|idempotency-key|last-event-id|x-stainless-.*|traceparent)$/;

/**
 * The headers of a call that every other request about its generation carries as well: the same auth, above all.
 * @param {Headers} headers
 */
export function carriedHeaders(headers) {
  return new Headers([...headers].filter(([name]) => !OF_THE_CALL.test(name)));
}
