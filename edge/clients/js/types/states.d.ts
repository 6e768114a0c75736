/**
 * The six states of a session, as a table. A move that the table does not name raises, and changes nothing.
 *
 * PAUSED: the connection is lost, the next try waits. COMPLETED: the terminal was read, also an `error`. CANCELLED:
 * ended before it, by the reader's own abort or because it cannot go on; the reason says why.
 * Before: `limits`. After: `connections`, which makes the moves.
 */
import type { Move, State } from "./types.js";
/** @import { Move, State } from "./types.js" */
/** @type {Readonly<Record<State, Partial<Record<Move, State>>>>} */
export declare const TABLE: Readonly<Record<State, Partial<Record<Move, State>>>>;
export declare class Machine {
    state: State;
    told: (change: {
        state: State;
        before: State;
        reason?: string;
        waitMs?: number;
    }) => void;
    /**
     * @param {State} state where it begins
     * @param {(change: { state: State, before: State, reason?: string, waitMs?: number }) => void} told
     */
    constructor(state: State, told: (change: {
        state: State;
        before: State;
        reason?: string;
        waitMs?: number;
    }) => void);
    /** Whether nothing can happen any more. */
    get over(): boolean;
    /**
     * @param {Move} move
     * @param {{ reason?: string, waitMs?: number }} [why]
     */
    move(move: Move, why?: {
        reason?: string;
        waitMs?: number;
    }): void;
}
