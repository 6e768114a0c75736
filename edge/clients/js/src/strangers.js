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
export function isForeign({ headers }, { generationId, streamed = true }, others) {
  const name = headers.get("x-generation-id");
  const type = headers.get("content-type") ?? "";
  if (generationId === null) return !others || !/^(?:text\/event-stream|application\/(?:.*\+)?json|$)/i.test(type);
  if (name !== null) return name !== generationId;
  return !streamed || !type.startsWith("text/event-stream");
}

/**
 * Whether an answer sends us elsewhere: an edge never does, and a key goes only to the addresses that were given.
 * @param {Response} response
 */
export function isRedirect({ status }) {
  return status < 200 || (status >= 300 && status < 400); // 0: a browser does not say which
}

/**
 * Who answers in place of an edge, for people: without the queries of addresses, in which a ticket may stand.
 * @param {Response} response
 */
export function strangerSays(response) {
  const { status, url, headers } = response;
  const [where] = url.split("?");
  const [there] = (headers.get("location") ?? "another address").split("?");
  const what = `what answers at ${where} is no edge`;
  if (isRedirect(response)) return `${what}: a redirect to ${there}, which is not followed`;
  const said = `${status} ${headers.get("content-type") ?? "without a type"}`;
  return `${what}: ${said}, without what an edge says (X-Generation-Id is missing, another's, or hidden from this page)`;
}
