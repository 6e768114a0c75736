/**
 * The connections of one session, one after the other: opened, lost, opened again as the matrix says, ended, aborted.
 *
 * The only place that moves the state machine. The reader's own abort ends the connection and the waiting at once, tells
 * whoever wants to know, and cancels the generation, once; nothing is tried behind it, nor behind the end.
 * Before: `states`, `retry`, `clock`. After: `reading`.
 */

import { TooLarge, beheaded, likeness, wholeBody } from "./bodies.js";
import { TooLate, within } from "./clock.js";
import { errorIn } from "./dialects.js";
import { StreamError, refusalOf } from "./errors.js";
import { answered, decide, mayBeRetried } from "./retry.js";
import { Machine } from "./states.js";
import { isForeign, isRedirect, strangerSays } from "./strangers.js";

/** @import { Position, ReadingOptions } from "./types.js" */
/** @import { Answered, Lost } from "./retry.js" */

const NO_CONTENT = 204;

export class Connections {
  #deadlineMs;
  #progressMs;
  #fruitless = 0;
  #waitMs = 0;
  /** @type {StreamError | null} */
  #aborted = null;
  /** @type {((error: StreamError) => void)[]} */
  #onAbort = [];
  /** The present connection's. */
  connection = new AbortController();

  /**
   * @param {ReadingOptions} options
   * @param {Position} position as it moves on
   */
  constructor(options, position) {
    const { clock, limits, signal, source } = options;
    this.options = options;
    this.position = position;
    this.#deadlineMs = clock.nowMs() + limits.sessionMs;
    this.#progressMs = clock.nowMs();
    this.machine = new Machine(options.state ?? "CONNECTING", (change) => {
      if (this.machine.over) signal?.removeEventListener("abort", this.#signalled);
      options.onState?.({ ...change, session: position.session, generationId: source.generationId });
    });
    if (signal?.aborted) this.#end(signal.reason);
    else signal?.addEventListener("abort", this.#signalled);
  }

  #signalled = () => this.abort(this.options.signal?.reason);

  /**
   * End it from the reader's side. Nothing is read any more; the generation is cancelled where it is known to run.
   * @param {unknown} [cause]
   */
  abort(cause) {
    if (this.machine.over) return;
    this.#end(cause);
    if (this.options.cancelOnAbort === false || this.options.source.generationId === null) return;
    this.options.source.cancel().catch(() => {}); // the grace time of the edge ends it, too
  }

  /** The reader reads no further: the connection ends, and the session may be opened again. */
  leave() {
    if (!this.machine.over) this.#end(undefined, "left");
  }

  /**
   * @param {unknown} cause
   * @param {string} [reason]
   */
  #end(cause, reason = "aborted") {
    this.#aborted = this.#error("the reader has ended the stream", { code: "aborted", cause });
    this.machine.move("aborted", { reason });
    this.connection.abort(this.#aborted);
    for (const told of this.#onAbort) told(this.#aborted);
  }

  /**
   * Told about an abort at once, also while nothing is being read.
   * @param {(error: StreamError) => void} told
   */
  onAbort(told) {
    this.#onAbort.push(told);
  }

  /**
   * The head of the next connection: a stream, null where nothing follows the position, or (where `refusalsUp`) a refusal
   * of the call as it came. Raises StreamError.
   * @returns {Promise<Response | null>}
   */
  async next() {
    const { clock, refusalsUp, source } = this.options;
    for (;;) {
      await this.#again();
      const response = await this.#answer();
      if (response === null) continue;
      if (response.status === NO_CONTENT) return null;
      const begun = source.generationId !== null;
      if (isRedirect(response) || (response.ok && isForeign(response, source, refusalsUp))) {
        this.connection.abort();
        this.lost({ kind: "foreign" }, { said: { message: strangerSays(response) } });
      } else if (response.ok || (begun && source.final?.(response))) {
        this.machine.move("opened");
        return response;
      } else {
        const head = answered(response, clock.wallMs());
        const up = !begun && refusalsUp;
        const refusal = await this.#refusal(response, head, up || !mayBeRetried(head));
        if (refusal === null) continue;
        if (up) {
          this.machine.move("refused");
          return refusal;
        }
        this.lost(head, { said: errorIn(await refusal.text()) });
      }
    }
  }

  /**
   * A refusal with all that it says: it is small, and half of it says nothing. One that `matters` and does not come whole
   * is asked for again, a few times: null. Of any other the head alone is told.
   * @param {Response} response
   * @param {Answered} head
   * @param {boolean} matters
   */
  async #refusal(response, { retryAfterMs }, matters) {
    const { limits, clock } = this.options;
    const notBeforeMs = retryAfterMs ?? 0;
    try {
      const ms = Math.min(matters ? limits.idleMs : limits.leaveMs, this.leftMs());
      return likeness(response, await wholeBody(response, { bytesMax: limits.refusalBytesMax, ms, clock }));
    } catch (error) {
      this.throwIfAborted();
      this.connection.abort();
      const waits = notBeforeMs <= limits.idleMs; // longer: whoever is told the head decides
      const again = matters && waits && !(error instanceof TooLarge) && this.#fruitless + 1 < limits.openAttempts;
      if (!again) return beheaded(response, String(error));
      this.lost({ kind: "cut", notBeforeMs }, { cause: error });
      return null;
    }
  }

  /** Something new came, or was taken by a slow reader: the next loss is the first again, and no edge was silent. */
  progressed() {
    this.#fruitless = 0;
    this.#progressMs = this.options.clock.nowMs();
  }

  /** The end is here, and stored. */
  settle() {
    this.throwIfAborted();
    this.machine.move("ended");
  }

  /**
   * There is nothing yet: the next try is due in a while.
   * @param {number} waitMs
   */
  later(waitMs) {
    this.throwIfAborted();
    this.#waitMs = waitMs;
    this.machine.move("lost", { reason: "running", waitMs });
  }

  /** Wait before a try that is not the first. */
  async #again() {
    this.throwIfAborted();
    if (this.machine.state !== "PAUSED") return;
    const { clock, source } = this.options;
    this.connection = new AbortController();
    if (this.#waitMs > 0) await clock.sleep(this.#waitMs, this.connection.signal);
    this.throwIfAborted();
    this.machine.move(source.generationId === null ? "again" : "resume");
  }

  /** The answer of one try; null where none came. */
  async #answer() {
    const { source, limits, clock } = this.options;
    const signal = this.connection.signal;
    const resumed = this.machine.state === "RESUMING";
    try {
      const asked = resumed ? source.reopen(this.position.lastEventId, signal) : source.open(signal);
      const headMs = resumed ? limits.idleMs : limits.readMs; // a resume is answered at once, or by nobody
      const response = await within(asked, Math.min(headMs, this.leftMs()), clock);
      this.throwIfAborted();
      return response;
    } catch (error) {
      this.throwIfAborted();
      this.connection.abort();
      this.lost({ kind: error instanceof TooLate ? "idle" : "cut" }, { cause: error });
      return null;
    } finally {
      if (this.position.generationId !== source.generationId) this.#progressMs = clock.nowMs();
      this.position.generationId = source.generationId;
    }
  }

  /**
   * A connection is lost, or a try failed: the next one waits as long as the matrix says. Raises where it says stop.
   * @param {Lost | Answered} failure
   * @param {{ said?: { code?: string, message?: string }, cause?: unknown }} [known] `said`: what a refusal says
   */
  lost(failure, { said = {}, cause } = {}) {
    this.throwIfAborted();
    const { limits, clock, source } = this.options;
    this.#fruitless += 1;
    const begun = source.generationId !== null;
    const situation = { fruitless: this.#fruitless, begun, leftMs: this.leftMs(), random: clock.random(), limits };
    const decided = decide(failure, situation);
    if ("stop" in decided) {
      const why = decided.stop === "session_timeout" ? this.boundCode() : decided.stop;
      const { message, details } = refusalOf(why, failure.kind === "answer" ? failure : null, said, cause);
      throw this.refuse(message, { ...details, cause });
    }
    this.#waitMs = decided.waitMs;
    const reason = failure.kind === "answer" ? String(failure.status) : failure.kind;
    this.machine.move("lost", { reason, waitMs: decided.waitMs });
  }

  /**
   * End it, and give the error that says why.
   * @param {string} message
   * @param {import("./errors.js").ErrorDetails} details
   */
  refuse(message, details) {
    this.throwIfAborted();
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

  /** What is left of the session's time, and of that without a new event. */
  leftMs() {
    return Math.min(this.#deadlineMs, this.#silentUntilMs()) - this.options.clock.nowMs();
  }

  /** Which of the two bounds comes first. */
  boundCode() {
    return this.#silentUntilMs() < this.#deadlineMs ? "read_timeout" : "session_timeout";
  }

  #silentUntilMs() {
    const { limits, source } = this.options;
    return source.generationId === null ? Infinity : this.#progressMs + limits.readMs; // before it begins, tries are counted
  }

  /** Raises StreamError where the reader has ended it. */
  throwIfAborted() {
    if (this.#aborted !== null) throw this.#aborted;
  }
}
