/**
 * What the edge is told that was received: every 32 events, or two seconds after the first of them, and at the end.
 *
 * A range is `[first, last, crc32]`, the checksum in eight hex digits over the joined UTF-8 `data`; what differs at the edge
 * is sent again. Ranges that no edge took are said again with the next ones. Pure. Before: `cursor`. After: `reading`.
 */

import { crc32, seqOf } from "./cursor.js";

/** @import { Frame } from "./types.js" */
/** @import { Limits } from "./limits.js" */

/** @typedef {[first: number, last: number, crc32: string]} Range */

/** So many ranges wait to be said again; of older ones the edge is not told any more. */
const RANGES_MAX = 32;

export class Acks {
  /** @type {{ first: number, last: number, sum: number }[]} */
  #open = [];
  #events = 0;
  #sinceMs = 0;

  /** @param {Limits} limits */
  constructor(limits) {
    this.limits = limits;
  }

  /**
   * Frames were stored.
   * @param {Frame[]} frames
   * @param {number} nowMs
   */
  took(frames, nowMs) {
    for (const { id, data } of frames) {
      const seq = seqOf(id);
      if (seq === null) continue;
      if (this.#events++ === 0) this.#sinceMs = nowMs;
      const newest = this.#open.at(-1);
      if (newest && seq === newest.last + 1 && seq - newest.first < this.limits.ackEvents) {
        newest.last = seq;
        newest.sum = crc32(data, newest.sum);
      } else this.#open.push({ first: seq, last: seq, sum: crc32(data) });
    }
  }

  /**
   * What is to be said now; null before its time.
   * @param {number} nowMs
   * @param {boolean} last nothing follows
   * @returns {Range[] | null}
   */
  due(nowMs, last) {
    const { ackEvents, ackMs } = this.limits;
    const time = last || this.#events >= ackEvents || nowMs - this.#sinceMs >= ackMs;
    if (this.#events === 0 || !time) return null;
    const said = this.#open.map(({ first, last: end, sum }) => /** @type {Range} */ ([first, end, hex(sum)]));
    this.#open = [];
    this.#events = 0;
    return said;
  }

  /**
   * No edge took these.
   * @param {Range[]} said
   */
  refused(said) {
    const again = said.map(([first, last, sum]) => ({ first, last, sum: Number.parseInt(sum, 16) }));
    this.#open = [...again, ...this.#open].slice(-RANGES_MAX);
  }
}

/** @param {number} sum */
const hex = (sum) => sum.toString(16).padStart(8, "0");
