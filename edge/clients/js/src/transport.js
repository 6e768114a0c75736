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

import { addressOf, carriedHeaders, generationUrl } from "./addresses.js";
import { likeness } from "./bodies.js";
import { newName, systemClock } from "./clock.js";
import { limitsOf } from "./limits.js";
import { beginning } from "./progress.js";
import { Reading } from "./reading.js";
import { RetriedCalls } from "./retried.js";
import { encodeFrames } from "./sse.js";
import { memoryStore } from "./stores/memory.js";
import { wholeAnswer } from "./whole.js";

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
export function resumableFetch(options = {}) {
  const known = {
    store: options.store ?? memoryStore(),
    limits: limitsOf(options.limits),
    clock: options.clock ?? systemClock,
    retried: new RetriedCalls(),
  };
  /** @type {Fetch} A browser's fetch must not be called as a method. */
  const connect = options.fetch ?? ((...asked) => globalThis.fetch(...asked));
  return async (input, init) => {
    const request = await requestOf(input, init);
    const address = addressOf(request.method, request.url);
    if (address === null) return connect(input, init);
    const call = new Call(connect, request, address, options.edges ?? []);
    if (address.kind === "call") call.key(await known.retried.keyOf(request));
    const reading = new Reading({
      source: call,
      from: { position: beginning({ session: call.session, startedMs: known.clock.wallMs(), ...address }), frames: [] },
      keepFrames: false,
      refusalsUp: true,
      signal: request.signal,
      onState: options.onState,
      cancelOnAbort: options.cancelOnAbort,
      ...known,
    });
    try {
      const response = await reading.connect();
      if (response === null) return new Response(null, { status: 204 });
      if (!response.ok) await known.retried.failed(request, call.session);
      return await raised(call, reading, response, known);
    } catch (error) {
      if (request.signal?.aborted) throw request.signal.reason;
      await known.retried.failed(request, call.session);
      throw error;
    }
  };
}

/**
 * What the SDK is given: the answer as it came where it is not ours, else one that a cut does not reach.
 * @param {Call} call
 * @param {Reading} reading
 * @param {Response} response
 * @param {{ limits: Limits, clock: Clock }} known
 */
async function raised(call, reading, response, known) {
  if (call.generationId === null) return response;
  if (!call.streamed) {
    const { response: answer, body } = await wholeAnswer(reading, response, known);
    return likeness(answer, body);
  }
  return likeness(response, bodyOf(reading, response, call.request.signal, known.limits.aheadBytesMax));
}

/**
 * The frames of a session as a response's body. It reads ahead of its reader: 1 KiB at first, then twice as much with
 * each piece that was taken, up to the bound; beyond that it waits for the reader.
 * @param {Reading} reading
 * @param {Response} first
 * @param {AbortSignal | null} signal
 * @param {number} aheadBytesMax
 */
function bodyOf(reading, first, signal, aheadBytesMax) {
  const batches = reading.batches(first);
  let scale = 64;
  const size = (/** @type {Uint8Array} */ piece) => {
    const counted = piece.byteLength * scale;
    scale = Math.max(1, scale / 2);
    return counted;
  };
  return new ReadableStream(
    {
      start: (controller) => reading.onAbort((error) => controller.error(signal?.aborted ? signal.reason : error)),
      pull: async (controller) => {
        const { done, value } = await batches.next();
        if (done) controller.close();
        else controller.enqueue(encodeFrames(value));
      },
      cancel: (reason) => reading.abort(reason),
    },
    { highWaterMark: aheadBytesMax, size },
  );
}

/** @typedef {{ url: string, method: string, headers: Headers, body: BodyInit | null, signal: AbortSignal | null, more: RequestInit }} Asked */

/**
 * What was asked for, in a form that can be sent more than once.
 * @param {RequestInfo | URL} input
 * @param {RequestInit} [init]
 * @returns {Promise<Asked>}
 */
async function requestOf(input, init = {}) {
  const given = input instanceof Request ? input : null;
  const { method = given?.method ?? "GET", headers = given?.headers, signal = given?.signal ?? null, ...more } = init;
  let body = more.body ?? null;
  if (given?.body && body === null) body = await given.clone().arrayBuffer();
  const passed = given ? { credentials: given.credentials, mode: given.mode, cache: given.cache, ...more } : more;
  return {
    url: given?.url ?? String(input),
    method: method.toUpperCase(),
    headers: new Headers(headers),
    body,
    signal,
    more: passed,
  };
}

/**
 * One call, as what its session connects to.
 * @implements {Source}
 */
class Call {
  /** @type {string | null} */
  generationId = null;
  session = newName();
  streamed = true;
  #turn = 0;

  /**
   * @param {Fetch} fetch
   * @param {Asked} request
   * @param {{ base: string, dialect: string }} address
   * @param {string[]} edges
   */
  constructor(fetch, request, address, edges) {
    this.connect = fetch;
    this.request = request;
    this.dialect = address.dialect;
    this.bases = [address.base, ...edges.map((edge) => edge.replace(/\/+$/, ""))];
  }

  /**
   * The call's own key, or this one.
   * @param {string | null} retried
   */
  key(retried) {
    const given = this.request.headers.get("idempotency-key");
    this.session = given ?? retried ?? this.session;
    this.request.headers.set("idempotency-key", this.session);
  }

  /** @param {AbortSignal} signal */
  async open(signal) {
    const { url, method, headers, body, more } = this.request;
    const { connect } = this;
    const response = await connect(url, { ...more, method, headers, body, signal, redirect: "manual" });
    if (response.ok) this.generationId = response.headers.get("x-generation-id");
    this.streamed = response.headers.get("content-type")?.startsWith("text/event-stream") ?? false;
    return response;
  }

  /**
   * @param {string | null} lastEventId
   * @param {AbortSignal} signal
   */
  reopen(lastEventId, signal) {
    this.#turn += 1;
    if (!this.streamed) return this.#whole(signal);
    if (lastEventId === null && this.request.method === "GET") return this.open(signal); // it says itself where it begins
    /** @type {Record<string, string>} */
    const headers = { accept: "text/event-stream" };
    if (lastEventId !== null) headers["last-event-id"] = lastEventId;
    return this.#about("events", { method: "GET", signal }, headers, { dialect: this.dialect });
  }

  /**
   * Whether an answer is final although it is no success: the result of a generation that failed.
   * @param {Response} response
   */
  final(response) {
    return !this.streamed && response.headers.has("x-generation-id");
  }

  /**
   * An answer that is no stream, again: a call's as its generation's result, a look at something as it is now.
   * @param {AbortSignal} signal
   */
  #whole(signal) {
    if (this.request.method === "GET") return this.open(signal);
    return this.#about("result", { method: "GET", signal }, { accept: "application/json" });
  }

  async cancel() {
    const body = JSON.stringify({ mode: "soft", reason: "user_abort" });
    const asked = { method: "POST", body, keepalive: true };
    const response = await this.#about("cancel", asked, { "content-type": "application/json" });
    await response.body?.cancel();
  }

  /**
   * @param {string} what
   * @param {RequestInit} init
   * @param {Record<string, string>} own
   * @param {Record<string, string>} [query]
   */
  #about(what, init, own, query) {
    const { body, ...more } = this.request.more;
    const headers = carriedHeaders(this.request.headers);
    for (const [name, value] of Object.entries(own)) headers.set(name, value);
    const base = this.bases[this.#turn % this.bases.length];
    const { connect } = this;
    const url = generationUrl(base, this.generationId ?? "", what, query);
    return connect(url, { ...more, ...init, headers, redirect: "manual" });
  }
}
