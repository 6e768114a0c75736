/**
 * A store for Node: one file per session in a folder of its own, of which every save is one append.
 *
 * Positions that are over are swept out now and then, by a new file in place of the old. A process that dies within an
 * append leaves half a line at the most: it is skipped, and what it held was not handed over. The files are readable by
 * their owner only; they hold what the model said, never a key. A power failure may take the last appends along; what they
 * held comes again from the server.
 * Before: `types`. After: `stream`, by way of `node`.
 */
import type { Store } from "../types.js";
/**
 * @param {string} folder made where there is none; only this store writes there
 * @param {{ keep?: number, overCharsMax?: number }} [options]
 * @returns {Store}
 */
export declare function fileStore(folder: string, { keep, overCharsMax }?: {
    keep?: number;
    overCharsMax?: number;
}): Store;
