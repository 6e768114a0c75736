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
 * @param {Iterable<{ position: Position }>} saved
 * @returns {Position[]}
 */
export declare function newestFirst(saved: Iterable<{
    position: Position;
}>): Position[];
