/**
 * A generation as an async iterator: begun here, gone on with after a crash or a reload, or attached to.
 *
 *     for await (const item of generate({ edge, apiKey, body })) if (item.type === "delta") write(item.text);
 *
 * An event is stored, with its id, before it is handed over. So `resume` gives the same items again from the first one on
 * (or behind `after`, the seq that the application itself remembers): what was stored from the store, the rest from the
 * server. Wherever the process died, nothing is left out of that sequence and nothing stands in it twice.
 * Before: `reading`, `source`, `answer`. After: the application.
 */

import { baseOf, pathOf } from "./addresses.js";
import { Answer, TooLong, jsonOf } from "./answer.js";
import { newName, systemClock } from "./clock.js";
import { seqOf } from "./cursor.js";
import { NATIVE, objectIn } from "./dialects.js";
import { GenerationError, StreamError, TokentrailError } from "./errors.js";
import { limitsOf } from "./limits.js";
import { beginning, sound } from "./progress.js";
import { Reading } from "./reading.js";
import { NativeSource } from "./source.js";
import { memoryStore } from "./stores/memory.js";

/** @import { Clock, Fetch, Frame, Saved, StateChange, Store } from "./types.js" */
/** @import { End, Item } from "./answer.js" */
/** @import { Limits } from "./limits.js" */

/**
 * @typedef {object} StreamOptions
 * @property {string} [edge] the gateway's address, with or without `/v1`
 * @property {string} [apiKey]
 * @property {HeadersInit} [headers] more of them, on every request
 * @property {Store} [store]
 * @property {number} [after] the application has the items up to this seq: they are not given again
 * @property {AbortSignal} [signal]
 * @property {(change: StateChange) => void} [onState]
 * @property {(beat: { stage: string, elapsed_ms: number }) => void} [onHeartbeat]
 * @property {(event: { seq: number, event: string, data: string }) => void} [onResent] the edge says again what it has
 *   otherwise than it was acknowledged
 * @property {boolean} [cancelOnAbort] whether an abort of `signal` ends the generation; default: yes
 * @property {Partial<Limits>} [limits]
 * @property {Fetch} [fetch]
 * @property {string[]} [edges] other addresses of the same gateway, taken in turn
 * @property {Clock} [clock]
 */

/** What is kept where nobody names a store: it outlives cuts, not the process. */
const inMemory = memoryStore();

/**
 * Begin a generation.
 * @param {StreamOptions & { edge: string, body: unknown, path?: string, session?: string }} options `path`: of the dialect, with or without `/v1`;
 *   `session`: a name of the caller's, also its Idempotency-Key
 */
export function generate(options) {
  const { body, path = "/v1/chat/completions", session = newName() } = options;
  const startedMs = (options.clock ?? systemClock).wallMs();
  const position = beginning({ session, base: baseOf(options.edge), startedMs });
  return new Stream({ position, frames: [] }, { path: pathOf(path), body }, options);
}

/**
 * Go on with a stored session; undefined where the store has none of that name, or none that had begun.
 * @param {string} session
 * @param {StreamOptions & { store: Store }} options `edge`: only where it is not the session's own
 * @returns {Promise<Stream | undefined>}
 */
export async function resume(session, options) {
  const saved = await options.store.load(session);
  if (saved === undefined || saved.position.generationId === null) return undefined;
  const { base, generationId, startedMs } = saved.position;
  const known = { session, base: options.edge ? baseOf(options.edge) : base, generationId, startedMs };
  if (saved.position.dialect !== NATIVE) return new Stream({ position: beginning(known), frames: [] }, {}, options);
  const from = sound(saved);
  return new Stream({ position: { ...from.position, base: known.base }, frames: from.frames }, {}, options);
}

/**
 * Read a generation that somebody else has begun, from its first event on.
 * @param {StreamOptions & { edge: string, generationId: string, ticket?: string, session?: string }} options `ticket`:
 *   instead of a key, where there must be none
 */
export function attach(options) {
  const { generationId, session = newName() } = options;
  const startedMs = (options.clock ?? systemClock).wallMs();
  const position = beginning({ session, base: baseOf(options.edge), generationId, startedMs });
  return new Stream({ position, frames: [] }, { ticket: options.ticket }, options);
}

export class Stream {
  #answer;
  #saved;
  #options;
  #source;
  #reading;
  /** @type {AsyncGenerator<Item, void, void> | null} */
  #items = null;
  /** @type {PromiseWithResolvers<End>} */
  #finished = withResolvers();

  /**
   * @param {Saved} saved
   * @param {{ path?: string, body?: unknown, ticket?: string }} call
   * @param {StreamOptions} options
   */
  constructor(saved, call, options) {
    this.#saved = saved;
    this.#options = options;
    const limits = limitsOf(options.limits);
    this.#answer = new Answer(limits.answerBytesMax);
    this.#source = new NativeSource({
      ...call,
      bases: [saved.position.base, ...(options.edges ?? []).map(baseOf)],
      session: saved.position.session,
      generationId: saved.position.generationId,
      fetch: options.fetch ?? ((...asked) => globalThis.fetch(...asked)),
      headers: headersOf(options),
      ticket: call.ticket ?? null,
    });
    this.#reading = new Reading({
      source: this.#source,
      from: saved,
      state: saved.position.generationId === null ? "CONNECTING" : "PAUSED",
      store: options.store ?? inMemory,
      limits,
      clock: options.clock ?? systemClock,
      keepFrames: true,
      refusalsUp: false,
      signal: options.signal,
      onState: options.onState,
      cancelOnAbort: options.cancelOnAbort,
    });
    this.#finished.promise.catch(() => {}); // who iterates is told there
  }

  /** The name under which the store has it. */
  get session() {
    return this.#saved.position.session;
  }

  /** Null until the edge has answered. */
  get generationId() {
    return this.#source.generationId;
  }

  get state() {
    return this.#reading.machine.state;
  }

  /** The text of the first choice, as far as it came. */
  get text() {
    return this.#answer.text;
  }

  /** End it, and the generation with it. */
  cancel() {
    this.#reading.abort();
  }

  [Symbol.asyncIterator]() {
    this.#items ??= this.#read();
    return this.#items;
  }

  /**
   * The end, with all that it came to; reads to it where nobody else does. Raises GenerationError or StreamError.
   * @returns {Promise<End>}
   */
  async result() {
    if (this.#items === null) for await (const item of this) void item;
    return this.#finished.promise;
  }

  /** What the whole answer says in JSON. Raises where it is cut short, or no JSON. */
  async json() {
    return jsonOf(await this.result());
  }

  /** @returns {AsyncGenerator<Item, void, void>} */
  async *#read() {
    const { after = -1 } = this.#options;
    try {
      for await (const frame of this.#frames()) {
        if (frame.id === undefined) this.#beside(frame);
        const item = this.#taken(frame);
        const over = this.#answer.end !== null || this.#answer.failure !== null;
        if (over && (seqOf(frame.id) ?? after) < after) throw this.#foreign(after);
        if (this.#answer.end !== null) this.#finished.resolve(this.#answer.end);
        if (this.#answer.failure !== null) throw this.#failed(this.#answer.failure);
        if (item !== null && item.seq > after) yield item;
      }
    } catch (error) {
      if (error instanceof TokentrailError) error.text = this.text;
      this.#finished.reject(error);
      throw error;
    } finally {
      this.#reading.leave();
      this.#finished.reject(new StreamError("the reader has left before the end", { code: "aborted", text: this.text }));
    }
  }

  /** @param {Frame} frame */
  #taken(frame) {
    try {
      return this.#answer.take(frame);
    } catch (cause) {
      const { generationId, session } = this;
      const known = { generationId, session, cause };
      if (cause instanceof TooLong) throw new StreamError(`what the generation says is ${cause.message}`, { code: "answer_too_large", ...known });
      throw new StreamError(`${frame.id} is no event of an edge's`, { code: "unreadable_event", ...known });
    }
  }

  /** What is stored, then what follows. */
  async *#frames() {
    const { position, frames } = this.#saved;
    const whole = position.ended && seqOf(frames.at(-1)?.id) === position.seq;
    if (whole) this.#reading.settle();
    for (const frame of frames) {
      this.#reading.throwIfAborted();
      yield frame;
    }
    if (!whole) for await (const batch of this.#reading.batches()) yield* batch;
  }

  /**
   * What is no part of the sequence.
   * @param {Frame} frame
   */
  #beside({ event, data }) {
    const { onHeartbeat, onResent } = this.#options;
    if (event === "heartbeat") onHeartbeat?.(/** @type {any} */ (objectIn(data)));
    if (event === "resent") onResent?.(/** @type {any} */ (objectIn(data)));
  }

  /**
   * A place behind the end is another stream's: it would leave out what nobody has taken.
   * @param {number} after
   */
  #foreign(after) {
    const { generationId, session } = this;
    return new StreamError(`${after} is no seq of this stream`, { code: "foreign_cursor", generationId, session });
  }

  /** @param {Record<string, any>} fields */
  #failed(fields) {
    return new GenerationError(String(fields.message ?? fields.code), {
      code: String(fields.code),
      retryable: fields.retryable === true,
      retryAfterMs: fields.retry_after_ms ?? undefined,
      generationId: this.generationId,
      session: this.session,
    });
  }
}

/** @param {StreamOptions} options */
function headersOf({ headers, apiKey }) {
  const all = new Headers(headers);
  if (apiKey !== undefined) all.set("authorization", `Bearer ${apiKey}`);
  return all;
}

/**
 * @template T
 * @returns {PromiseWithResolvers<T>}
 */
function withResolvers() {
  /** @type {any} */
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
}
