/**
 * How the iterator connects: a call that is answered at once with its generation, then the generation's native events.
 *
 * With a ticket instead of a key nothing travels in headers, so that a browser needs no preflight: the cursor then stands
 * in the address as well. Before: `addresses`. After: `stream`.
 */

import { generationUrl } from "./addresses.js";
import { wholeBody } from "./bodies.js";
import { objectIn } from "./dialects.js";

/** @import { Fetch, Source } from "./types.js" */

/** A key goes to the addresses that were given, and nowhere else. @type {RequestRedirect} */
const MANUAL = "manual";
const BAD_REQUEST = 400;
/** What is said to a call that begins a generation, and to an acknowledgement; a stream in its place is left. */
const BEGUN_BYTES_MAX = 2 ** 16;
/** An edge that does not take an acknowledgement in time is told again with the next one. */
const ACK_MS = 5_000;
/** An edge that does not know acknowledgements, or not from us. */
const NOT_SERVED = new Set([401, 403, 404, 405, 501]);

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
export class NativeSource {
  #target;
  /** Which address is asked: each new connection takes the next, what is said about it goes to the same. */
  #turn = -1;
  /** Names the open stream to the edge that writes it. */
  #reader = "";
  /** What an edge wants to send again on the next connection, as a header says it. */
  #lacking = "";

  /** @param {Target} target */
  constructor(target) {
    this.#target = target;
    this.generationId = target.generationId;
  }

  /** @param {AbortSignal} signal */
  async open(signal) {
    const { fetch, headers, session, path, body } = this.#target;
    this.#turn += 1;
    const asked = new Headers(headers);
    asked.set("content-type", "application/json");
    asked.set("idempotency-key", session);
    asked.set("prefer", "respond-async");
    if (!asked.has("x-tokentrail-on-disconnect")) asked.set("x-tokentrail-on-disconnect", "grace");
    const init = { method: "POST", headers: asked, body: JSON.stringify(body), signal, redirect: MANUAL };
    const begun = await fetch(`${this.#base()}${path}`, init);
    if (begun.ok) this.generationId = begun.headers.get("x-generation-id");
    if (this.generationId === null) return begun; // a refusal, or somebody who is no edge
    await wholeBody(begun, { bytesMax: BEGUN_BYTES_MAX }).catch(() => {}); // the head says it all
    return this.#read(null, signal);
  }

  /**
   * @param {string | null} lastEventId
   * @param {AbortSignal} signal
   */
  reopen(lastEventId, signal) {
    this.#turn += 1;
    return this.#read(lastEventId, signal);
  }

  /**
   * @param {string | null} lastEventId
   * @param {AbortSignal} signal
   * @returns {Promise<Response>}
   */
  async #read(lastEventId, signal) {
    const { fetch, headers, ticket } = this.#target;
    const carried = new Headers(headers);
    if (ticket === null && lastEventId !== null) carried.set("last-event-id", lastEventId);
    const lacking = ticket === null ? this.#lacking : "";
    if (lacking !== "") carried.set("x-resume-nack", lacking);
    const url = this.#about("events", { ticket, after: ticket === null ? null : lastEventId });
    const response = await fetch(url, { headers: carried, signal, redirect: MANUAL });
    if (response.ok || response.status === BAD_REQUEST) this.#lacking = "";
    if (response.status === BAD_REQUEST && lacking !== "") {
      await response.body?.cancel();
      return this.#read(lastEventId, signal); // the stream matters more than what an edge will not send again
    }
    this.#reader = response.headers.get("x-reader-id") ?? "";
    return response;
  }

  /**
   * Tell an edge what was received; undefined from where one has said that it does not want to know.
   * @type {((ranges: import("./acks.js").Range[]) => Promise<boolean>) | undefined}
   */
  acknowledge = async (ranges) => {
    const body = { reader_id: this.#reader, ranges };
    const response = await this.#post("ack", body, { signal: AbortSignal.timeout(ACK_MS) });
    if (NOT_SERVED.has(response.status)) this.acknowledge = undefined;
    const said = new TextDecoder().decode(await wholeBody(response, { bytesMax: BEGUN_BYTES_MAX }));
    const { nack } = objectIn(response.ok ? said : "");
    if (Array.isArray(nack) && nack.length > 0) this.#lacking = nack.map(([first, last]) => `${first}-${last}`).join(",");
    return response.ok;
  };

  async cancel() {
    const response = await this.#post("cancel", { mode: "soft", reason: "user_abort" }, { keepalive: true });
    await response.body?.cancel();
  }

  /**
   * @param {string} what
   * @param {unknown} body
   * @param {RequestInit} more
   */
  #post(what, body, more) {
    const { fetch, headers, ticket } = this.#target;
    const asked = new Headers(headers);
    if (ticket === null) asked.set("content-type", "application/json");
    return fetch(this.#about(what, { ticket }), { method: "POST", headers: asked, body: JSON.stringify(body), redirect: MANUAL, ...more });
  }

  #base() {
    return this.#target.bases[Math.max(0, this.#turn) % this.#target.bases.length];
  }

  /**
   * @param {string} what
   * @param {Record<string, string | null>} query
   */
  #about(what, query) {
    return generationUrl(this.#base(), this.generationId ?? "", what, query);
  }
}
