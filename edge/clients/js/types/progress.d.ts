/**
 * How far a session has come: which frames are new, which of them are kept, and the position behind them. No I/O.
 *
 * An event is new if its seq lies behind the position; the native dialect shows every seq, so one that is left out there
 * was lost on the way and is asked for again. Kept are the events from the first on without a gap, up to the bound: what
 * a resumed session does not find kept, it reads from the server.
 * Before: `cursor`, `dialects`. After: `reading`.
 */
import type { Frame, Position, Saved } from "./types.js";
export type Batch = {
    frames: Frame[];
    ended: boolean;
    notice: {
        code: string;
        message: string;
    } | null;
    gap: boolean;
};
/** @import { Frame, Position, Saved } from "./types.js" */
/**
 * `notice`: an error without a number stood behind the frames. `gap`: an event is missing behind them.
 * @typedef {{ frames: Frame[], ended: boolean, notice: { code: string, message: string } | null, gap: boolean }} Batch
 */
export declare class Progress {
    #private;
    position: {
        session: string;
        base: string;
        dialect: string;
        generationId: string | null;
        lastEventId: string | null;
        seq: number;
        token: string | null;
        crc32: number;
        startedMs: number;
        ended: boolean;
    };
    journalCharsMax: number;
    /**
     * @param {Saved} from where the session stands
     * @param {number} journalCharsMax 0: nothing is kept
     */
    constructor({ position, frames }: Saved, journalCharsMax: number);
    /**
     * What is new among frames, up to the end, a notice or a gap.
     * @param {Frame[]} frames
     * @returns {Batch}
     */
    take(frames: Frame[]): Batch;
    /**
     * The part of new frames that a store keeps.
     * @param {Frame[]} frames
     */
    kept(frames: Frame[]): Frame[];
}
/**
 * What of a stored session can be relied on, and the position behind it. Events that a store has lost, or that are not
 * those whose checksum it holds, are left out: they come again from the server. Events behind the position were being
 * stored when the process died: nobody was given them.
 * @param {Saved} saved
 * @returns {Saved}
 */
export declare function sound({ position, frames }: Saved): Saved;
/**
 * A session that has not begun.
 * @param {{ session: string, base: string, dialect?: string, generationId?: string | null, startedMs: number }} known
 * @returns {Position}
 */
export declare function beginning({ session, base, dialect, generationId, startedMs }: {
    session: string;
    base: string;
    dialect?: string;
    generationId?: string | null;
    startedMs: number;
}): Position;
