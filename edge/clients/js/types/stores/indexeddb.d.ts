/**
 * A store for browsers: two object stores of one IndexedDB database; every save is one transaction.
 *
 * A page that is closed or reloaded finds its sessions again, in every tab of its origin.
 * Before: `types`. After: `stream`, `transport`.
 */
import type { Store } from "../types.js";
/**
 * @param {{ name?: string, keep?: number, indexedDB?: IDBFactory }} [options] `indexedDB`: the platform's by default
 * @returns {Store}
 */
export declare function indexedDBStore({ name, keep, indexedDB }?: {
    name?: string;
    keep?: number;
    indexedDB?: IDBFactory;
}): Store;
