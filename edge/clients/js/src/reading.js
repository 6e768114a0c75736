/**
 * One session: frames of one generation across any number of connections, each once and in order.
 *
 * The order of things is written here and nowhere else: whole frames, then what is new among them, then stored, then
 * acknowledged and handed over. What is lost with a connection was never handed over, so it comes again behind the stored
 * id. The session ends at the terminal, at the reader's own abort (the generation is then cancelled, once), or where the
 * matrix stops. Before: `connections`, `sse`, `progress`, `acks`. After: `transport` and `stream`, which say what a connection is.
 */

import { Acks } from "./acks.js";
import { TooLate, within } from "./clock.js";
import { Connections } from "./connections.js";
import { Progress } from "./progress.js";
import { FrameParser } from "./sse.js";

/** @import { Frame, ReadingOptions } from "./types.js" */

export class Reading extends Connections {
  #progress;
  #acks;

  /** @param {ReadingOptions} options */
  constructor(options) {
    const progress = new Progress(options.from, options.keepFrames ? options.limits.journalCharsMax : 0);
    super(options, progress.position);
    this.#progress = progress;
    this.#acks = new Acks(options.limits);
  }

  /**
   * The head of the next connection; null where nothing follows, which is then stored. See `Connections.next`.
   * @returns {Promise<Response | null>}
   */
  async connect() {
    const response = await this.next();
    if (response === null) await this.complete();
    return response;
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
      this.throwIfAborted();
    } catch (error) {
      if (!this.machine.over) this.machine.move("refused", { reason: "failed" }); // its store, say: it may be resumed
      throw error;
    } finally {
      this.leave();
    }
  }

  /** @param {Response} response */
  async *#read(response) {
    const parser = new FrameParser(this.options.limits.frameCharsMax);
    const connection = this.connection;
    const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
    let ended = false;
    try {
      while (!ended && this.machine.state === "STREAMING") {
        const chunk = await this.#chunk(reader);
        if (chunk === null) return;
        const batch = this.#progress.take(parser.feed(chunk));
        ended = batch.ended;
        if (batch.frames.length > 0) {
          if (batch.frames.some(({ id }) => id !== undefined)) {
            this.progressed();
            await this.#save(batch.frames, ended);
            this.#acknowledge(batch.frames, ended);
          }
          if (ended) this.settle();
          yield batch.frames;
          if (batch.frames.some(({ id }) => id !== undefined)) this.progressed();
        }
        if (ended) return;
        if (parser.tooLarge) throw this.refuse("one event is above limits.frameCharsMax", { code: "frame_too_large" });
        if (batch.notice !== null) this.#noticed(batch.notice);
        else if (batch.gap) this.lost({ kind: "gap" });
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
    const { clock, limits } = this.options;
    within(reader.read(), limits.leaveMs, clock).then(() => connection.abort(), () => connection.abort());
  }

  /**
   * The next bytes; null where the connection is lost.
   * @param {ReadableStreamDefaultReader<Uint8Array>} reader
   */
  async #chunk(reader) {
    const { limits, clock } = this.options;
    const leftMs = this.leftMs();
    if (leftMs <= 0) throw this.#tooLong(); // also where bytes come without end, and nothing new among them
    try {
      const { done, value } = await within(reader.read(), Math.min(limits.idleMs, leftMs), clock);
      this.throwIfAborted();
      if (!done) return value;
    } catch (error) {
      this.throwIfAborted();
      const late = error instanceof TooLate;
      if (late && leftMs <= limits.idleMs) throw this.#tooLong();
      this.lost({ kind: late ? "idle" : "cut" });
      return null;
    }
    this.lost({ kind: "early_end" });
    return null;
  }

  #tooLong() {
    return this.refuse("the session took too long", { code: this.boundCode() });
  }

  /**
   * @param {Frame[]} frames
   * @param {boolean} ended
   */
  async #save(frames, ended) {
    this.position.ended ||= ended;
    await this.options.store.save({ ...this.position }, this.#progress.kept(frames));
    this.throwIfAborted();
  }

  /**
   * Tell the edge, if it is time; nobody waits for its answer.
   * @param {Frame[]} frames that are stored
   * @param {boolean} ended
   */
  #acknowledge(frames, ended) {
    const { source, clock } = this.options;
    if (source.acknowledge === undefined) return;
    this.#acks.took(frames, clock.nowMs());
    const said = this.#acks.due(clock.nowMs(), ended);
    if (said === null) return;
    const refused = () => this.#acks.refused(said);
    source.acknowledge(said).then((taken) => taken || refused(), refused);
  }

  /** Nothing follows. */
  async complete() {
    await this.#save([], true);
    this.settle();
  }

  /**
   * An error without a number is the connection's: the log is away for a while, or what follows is held nowhere.
   * @param {{ code: string, message: string }} notice
   */
  #noticed({ code, message }) {
    if (code !== "log_unavailable") throw this.refuse(message, { code });
    this.lost({ kind: "answer", status: 503, advice: "true", retryAfterMs: null });
  }
}
