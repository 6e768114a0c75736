/**
 * How far a session has come: which frames are new, which of them are kept, and the position behind them. No I/O.
 *
 * An event is new if its seq lies behind the position; the native dialect shows every seq, so one that is left out there
 * was lost on the way and is asked for again. Kept are the events from the first on without a gap, up to the bound: what
 * a resumed session does not find kept, it reads from the server.
 * Before: `cursor`, `dialects`. After: `reading`.
 */

import { crc32, seqOf, tokenOf } from "./cursor.js";
import { NATIVE, isTerminal, noticeIn } from "./dialects.js";

/** @import { Frame, Position, Saved } from "./types.js" */

/**
 * `notice`: an error without a number stood behind the frames. `gap`: an event is missing behind them.
 * @typedef {{ frames: Frame[], ended: boolean, notice: { code: string, message: string } | null, gap: boolean }} Batch
 */

export class Progress {
  #journalSeq = -1;
  #journalChars = 0;

  /**
   * @param {Saved} from where the session stands
   * @param {number} journalCharsMax 0: nothing is kept
   */
  constructor({ position, frames }, journalCharsMax) {
    this.position = { ...position };
    this.journalCharsMax = journalCharsMax;
    this.kept(frames);
  }

  /**
   * What is new among frames, up to the end, a notice or a gap.
   * @param {Frame[]} frames
   * @returns {Batch}
   */
  take(frames) {
    /** @type {Batch} */
    const batch = { frames: [], ended: false, notice: null, gap: false };
    for (const frame of frames) {
      batch.notice = noticeIn(this.position.dialect, frame);
      if (batch.notice !== null) break;
      const seq = seqOf(frame.id);
      if (seq !== null && seq <= this.position.seq) continue;
      batch.ended = seq !== null && isTerminal(this.position.dialect, frame);
      batch.gap = seq !== null && this.#skips(seq) && !(batch.ended && frame.event === "generation_error");
      if (batch.gap) return { ...batch, ended: false };
      batch.frames.push(frame);
      if (seq !== null && frame.id !== undefined) this.#advance(seq, frame.id, frame.data);
      if (batch.ended) break;
    }
    return batch;
  }

  /**
   * The part of new frames that a store keeps.
   * @param {Frame[]} frames
   */
  kept(frames) {
    const kept = [];
    for (const frame of frames) {
      const seq = seqOf(frame.id);
      if (seq !== this.#journalSeq + 1) continue;
      this.#journalChars += frame.data.length;
      if (this.#journalChars > this.journalCharsMax) break;
      this.#journalSeq = seq;
      kept.push(frame);
    }
    return kept;
  }

  /** @param {number} seq */
  #skips(seq) {
    return this.position.dialect === NATIVE && seq > this.position.seq + 1;
  }

  /**
   * @param {number} seq
   * @param {string} id
   * @param {string} data
   */
  #advance(seq, id, data) {
    const { position } = this;
    position.seq = seq;
    position.lastEventId = id;
    position.crc32 = crc32(data, position.crc32);
    position.token = tokenOf(position.generationId, id);
  }
}

/**
 * What of a stored session can be relied on, and the position behind it. Events that a store has lost, or that are not
 * those whose checksum it holds, are left out: they come again from the server. Events behind the position were being
 * stored when the process died: nobody was given them.
 * @param {Saved} saved
 * @returns {Saved}
 */
export function sound({ position, frames }) {
  const kept = [];
  let sum = 0;
  for (const frame of frames) {
    const seq = seqOf(frame.id);
    if (seq === null || seq < kept.length) continue;
    if (seq > kept.length || seq > position.seq) break;
    kept.push(frame);
    sum = crc32(frame.data, sum);
  }
  const whole = kept.length === position.seq + 1;
  if (whole && sum !== position.crc32) return { position: { ...position, ...NOTHING }, frames: [] };
  const last = kept.at(-1)?.id;
  if (whole || last === undefined) return { position: whole ? position : { ...position, ...NOTHING }, frames: kept };
  const upTo = { seq: kept.length - 1, lastEventId: last, token: tokenOf(position.generationId, last), crc32: sum };
  return { position: { ...position, ...upTo, ended: false }, frames: kept };
}

const NOTHING = { lastEventId: null, seq: -1, token: null, crc32: 0, ended: false };

/**
 * A session that has not begun.
 * @param {{ session: string, base: string, dialect?: string, generationId?: string | null, startedMs: number }} known
 * @returns {Position}
 */
export function beginning({ session, base, dialect = NATIVE, generationId = null, startedMs }) {
  return { session, base, dialect, generationId, startedMs, ...NOTHING };
}
