/**
 * A store that lasts as long as its process: enough to survive cuts, not a crash.
 *
 * Before: `types`. After: `transport`, `stream`.
 */
import type { Position, Store } from "../types.js";
/** @import { Frame, Position, Store } from "../types.js" */
/** So many sessions are kept by every store; the oldest leave. */
export declare const SESSIONS_KEPT = 20;
/**
 * @param {{ keep?: number }} [options]
 * @returns {Store}
 */
export declare function memoryStore({ keep }?: {
    keep?: number;
}): Store;
/**
 * What a wrong clock dated into the future counts as the oldest: it would push out everything that begins after the clock
 * was set right, the session that is being read among it.
 * @param {Iterable<{ position: Position }>} saved
 * @param {number} [wallMs]
 * @returns {Position[]}
 */
export declare function newestFirst(saved: Iterable<{
    position: Position;
}>, wallMs?: number): Position[];
