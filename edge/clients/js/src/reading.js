/**
 * One session: frames of one generation across any number of connections, each once and in order.
 *
 * The order of things is written here and nowhere else: whole frames, then what is new among them, then stored, then
 * handed over. What is lost with a connection was never handed over, so it comes again behind the stored id. The session
 * ends at the terminal, at the reader's own abort (the generation is then cancelled, once), or where the matrix stops.
 * Before: `states`, `retry`, `sse`, `progress`. After: `transport` and `stream`, which say what a connection is.
 */

import { TooLate, within } from "./clock.js";
import { errorIn } from "./dialects.js";
import { StreamError, refusalOf } from "./errors.js";
import { Progress } from "./progress.js";
import { answered, decide } from "./retry.js";
import { FrameParser } from "./sse.js";
import { Machine } from "./states.js";

/** @import { Frame, ReadingOptions } from "./types.js" */
/** @import { Answered, Lost } from "./retry.js" */

const NO_CONTENT = 204;

export class Reading {
  #options;
  #progress;
  #deadlineMs;
  #connection = new AbortController();
  #fruitless = 0;
  #waitMs = 0;
  /** @type {StreamError | null} */
  #aborted = null;
  /** @type {((error: StreamError) => void)[]} */
  #onAbort = [];

  /** @param {ReadingOptions} options */
  constructor(options) {
    const { from, clock, limits, signal, keepFrames } = options;
    this.#options = options;
    this.#progress = new Progress(from, keepFrames ? limits.journalCharsMax : 0);
    this.#deadlineMs = clock.nowMs() + limits.sessionMs;
    this.machine = new Machine(options.state ?? "CONNECTING", (change) => {
      if (this.machine.over) signal?.removeEventListener("abort", this.#signalled);
      options.onState?.({ ...change, session: from.position.session, generationId: options.source.generationId });
    });
    if (signal?.aborted) this.#signalled();
    else signal?.addEventListener("abort", this.#signalled);
  }

  #signalled = () => this.abort(this.#options.signal?.reason);

  /** Where it stands. */
  get position() {
    return this.#progress.position;
  }

  /**
   * End it from the reader's side. Nothing is read any more; the generation is cancelled where it is known to run.
   * @param {unknown} [cause]
   */
  abort(cause) {
    if (this.machine.over) return;
    this.#aborted = this.#error("the reader has ended the stream", { code: "aborted", cause });
    this.machine.move("aborted", { reason: "aborted" });
    this.#connection.abort(this.#aborted);
    for (const told of this.#onAbort) told(this.#aborted);
    if (this.#options.cancelOnAbort === false || this.#options.source.generationId === null) return;
    this.#options.source.cancel().catch(() => {}); // the grace time of the edge ends it, too
  }

  /**
   * Told about an abort at once, also while nothing is being read.
   * @param {(error: StreamError) => void} told
   */
  onAbort(told) {
    this.#onAbort.push(told);
  }

  /**
   * The head of the next connection: a stream, null where nothing follows what was read, or (where `refusalsUp`) a
   * refusal of the call as it came. Raises StreamError.
   * @returns {Promise<Response | null>}
   */
  async connect() {
    const { clock, refusalsUp, source } = this.#options;
    for (;;) {
      await this.#again();
      const response = await this.#answer();
      if (response === null) continue;
      if (response.status === NO_CONTENT) {
        await this.complete();
        return null;
      }
      const begun = source.generationId !== null;
      if (response.ok || (begun ? source.final?.(response) : refusalsUp)) {
        this.machine.move(response.ok || begun ? "opened" : "refused");
        return response;
      }
      await this.lost(answered(response, clock.wallMs()), { response });
    }
  }

  /**
   * The frames, from the first connection's stream (else from one that is opened now) to the terminal.
   * @param {Response | null} [first]
   * @returns {AsyncGenerator<Frame[], void, void>}
   */
  async *batches(first = null) {
    let response = first;
    try {
      while (!this.machine.over) {
        response ??= await this.connect();
        if (response !== null) yield* this.#read(response);
        response = null;
      }
      this.#throwIfAborted();
    } catch (error) {
      if (!this.machine.over) this.machine.move("refused", { reason: "failed" }); // its store, say: it may be resumed
      throw error;
    } finally {
      this.abort(); // the reader has left before the end
    }
  }

  /** @param {Response} response */
  async *#read(response) {
    const parser = new FrameParser(this.#options.limits.frameCharsMax);
    const connection = this.#connection;
    const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
    let ended = false;
    try {
      while (!ended && this.machine.state === "STREAMING") {
        const chunk = await this.#chunk(reader);
        if (chunk === null) return;
        const batch = this.#progress.take(parser.feed(chunk));
        ended = batch.ended;
        if (batch.frames.length > 0) {
          if (batch.frames.some((frame) => frame.id !== undefined)) this.#fruitless = 0;
          await this.#save(batch.frames, ended);
          if (ended) this.machine.move("ended");
          yield batch.frames;
        }
        if (ended) return;
        if (parser.tooLarge) throw this.#refuse("one event is above limits.frameCharsMax", { code: "frame_too_large" });
        if (batch.notice !== null) await this.#noticed(batch.notice);
        else if (batch.gap) await this.lost({ kind: "gap" });
      }
    } finally {
      if (ended) this.#leave(reader, connection);
      else connection.abort();
    }
  }

  /**
   * Let a finished answer end by itself for a moment, so that its socket can serve the next call.
   * @param {ReadableStreamDefaultReader<Uint8Array>} reader
   * @param {AbortController} connection
   */
  #leave(reader, connection) {
    const { clock, limits } = this.#options;
    within(reader.read(), limits.leaveMs, clock).then(() => connection.abort(), () => connection.abort());
  }

  /**
   * The next bytes; null where the connection is lost.
   * @param {ReadableStreamDefaultReader<Uint8Array>} reader
   */
  async #chunk(reader) {
    const { limits, clock } = this.#options;
    const leftMs = this.#leftMs();
    try {
      const { done, value } = await within(reader.read(), Math.min(limits.idleMs, leftMs), clock);
      this.#throwIfAborted();
      if (!done) return value;
    } catch (error) {
      this.#throwIfAborted();
      const late = error instanceof TooLate;
      if (late && leftMs <= limits.idleMs) throw this.#refuse("the session took too long", { code: "session_timeout" });
      await this.lost({ kind: late ? "idle" : "cut" });
      return null;
    }
    await this.lost({ kind: "early_end" });
    return null;
  }

  /**
   * @param {Frame[]} frames
   * @param {boolean} ended
   */
  async #save(frames, ended) {
    this.position.ended ||= ended;
    await this.#options.store.save({ ...this.position }, this.#progress.kept(frames));
    this.#throwIfAborted();
  }

  /** Nothing follows. */
  async complete() {
    await this.#save([], true);
    this.machine.move("ended");
  }

  /**
   * There is nothing yet: the next try is due in a while.
   * @param {number} waitMs
   */
  later(waitMs) {
    this.#throwIfAborted();
    this.#waitMs = waitMs;
    this.machine.move("lost", { reason: "running", waitMs });
  }

  /** Wait before a try that is not the first. */
  async #again() {
    this.#throwIfAborted();
    if (this.machine.state !== "PAUSED") return;
    const { clock, source } = this.#options;
    this.#connection = new AbortController();
    if (this.#waitMs > 0) await clock.sleep(this.#waitMs, this.#connection.signal);
    this.#throwIfAborted();
    this.machine.move(source.generationId === null ? "again" : "resume");
  }

  /** The answer of one try; null where none came. */
  async #answer() {
    const { source, limits, clock } = this.#options;
    const signal = this.#connection.signal;
    const resumed = this.machine.state === "RESUMING";
    try {
      const asked = resumed ? source.reopen(this.position.lastEventId, signal) : source.open(signal);
      const response = await within(asked, Math.min(limits.readMs, this.#leftMs()), clock);
      this.#throwIfAborted();
      return response;
    } catch (error) {
      this.#throwIfAborted();
      this.#connection.abort();
      await this.lost({ kind: error instanceof TooLate ? "idle" : "cut" }, { cause: error });
      return null;
    } finally {
      this.position.generationId = source.generationId;
    }
  }

  /**
   * A connection is lost, or a try failed: the next one waits as long as the matrix says. Raises where it says stop.
   * @param {Lost | Answered} failure
   * @param {{ response?: Response, cause?: unknown }} [known]
   */
  async lost(failure, { response, cause } = {}) {
    this.#throwIfAborted();
    const { limits, clock, source } = this.#options;
    this.#fruitless += 1;
    const begun = source.generationId !== null;
    const situation = { fruitless: this.#fruitless, begun, leftMs: this.#leftMs(), random: clock.random(), limits };
    const decided = decide(failure, situation);
    if ("stop" in decided) {
      const body = response && (await within(response.text(), limits.leaveMs, clock).catch(() => ""));
      const answer = failure.kind === "answer" ? failure : null;
      const { message, details } = refusalOf(decided.stop, answer, errorIn(body ?? ""));
      throw this.#refuse(message, { ...details, cause });
    }
    response?.body?.cancel().catch(() => {});
    this.#waitMs = decided.waitMs;
    const reason = failure.kind === "answer" ? String(failure.status) : failure.kind;
    this.machine.move("lost", { reason, waitMs: decided.waitMs });
  }

  /**
   * An error without a number is the connection's: the log is away for a while, or what follows is held nowhere.
   * @param {{ code: string, message: string }} notice
   */
  async #noticed({ code, message }) {
    if (code !== "log_unavailable") throw this.#refuse(message, { code });
    await this.lost({ kind: "answer", status: 503, advice: "true", retryAfterMs: null });
  }

  /**
   * End it, and give the error that says why.
   * @param {string} message
   * @param {import("./errors.js").ErrorDetails} details
   */
  #refuse(message, details) {
    this.#throwIfAborted();
    this.machine.move("refused", { reason: details.code });
    return this.#error(message, details);
  }

  /**
   * @param {string} message
   * @param {import("./errors.js").ErrorDetails} details
   */
  #error(message, details) {
    const { session, generationId } = this.position;
    return new StreamError(message, { ...details, session, generationId });
  }

  #leftMs() {
    return this.#deadlineMs - this.#options.clock.nowMs();
  }

  #throwIfAborted() {
    if (this.#aborted !== null) throw this.#aborted;
  }
}
