/**
 * The six states of a session, as a table. A move that the table does not name raises, and changes nothing.
 *
 * PAUSED: the connection is lost, the next try waits. COMPLETED: the terminal was read, also an `error`. CANCELLED:
 * ended before it, by the reader's own abort or because it cannot go on; the reason says why.
 * Before: `limits`. After: `connections`, which makes the moves.
 */

/** @import { Move, State } from "./types.js" */

/** @type {Readonly<Record<State, Partial<Record<Move, State>>>>} */
export const TABLE = Object.freeze({
  CONNECTING: { opened: "STREAMING", lost: "PAUSED", ended: "COMPLETED", refused: "CANCELLED", aborted: "CANCELLED" },
  STREAMING: { lost: "PAUSED", ended: "COMPLETED", refused: "CANCELLED", aborted: "CANCELLED" },
  PAUSED: { again: "CONNECTING", resume: "RESUMING", ended: "COMPLETED", refused: "CANCELLED", aborted: "CANCELLED" },
  RESUMING: { opened: "STREAMING", lost: "PAUSED", ended: "COMPLETED", refused: "CANCELLED", aborted: "CANCELLED" },
  COMPLETED: {},
  CANCELLED: {},
});

export class Machine {
  /**
   * @param {State} state where it begins
   * @param {(change: { state: State, before: State, reason?: string, waitMs?: number }) => void} told
   */
  constructor(state, told) {
    this.state = state;
    this.told = told;
  }

  /** Whether nothing can happen any more. */
  get over() {
    return Object.keys(TABLE[this.state]).length === 0;
  }

  /**
   * @param {Move} move
   * @param {{ reason?: string, waitMs?: number }} [why]
   */
  move(move, why = {}) {
    const before = this.state;
    const state = TABLE[before][move];
    if (state === undefined) throw new Error(`a session that is ${before} cannot be ${move}`);
    this.state = state;
    this.told({ state, before, ...why });
  }
}
