/**
 * A store for browsers: two object stores of one IndexedDB database; every save is one transaction.
 *
 * A page that is closed or reloaded finds its sessions again, in every tab of its origin.
 * Before: `types`. After: `stream`, `transport`.
 */

import { seqOf } from "../cursor.js";
import { SESSIONS_KEPT, newestFirst } from "./memory.js";

/** @import { Frame, Position, Store } from "../types.js" */

const VERSION = 1;

/**
 * @param {{ name?: string, keep?: number, indexedDB?: IDBFactory }} [options] `indexedDB`: the platform's by default
 * @returns {Store}
 */
export function indexedDBStore({ name = "tokentrail-client", keep = SESSIONS_KEPT, indexedDB } = {}) {
  /** @type {Promise<IDBDatabase> | undefined} */
  let opening;

  function database() {
    opening ??= open(indexedDB ?? globalThis.indexedDB, name, () => {
      opening = undefined;
    });
    opening.catch(() => {
      opening = undefined;
    });
    return opening;
  }

  /** @type {Store} */
  const store = {
    async save(position, frames) {
      const transaction = (await database()).transaction(["sessions", "frames"], "readwrite");
      const sessions = transaction.objectStore("sessions");
      const { session } = position;
      sessions.put({ ...position });
      for (const frame of frames) transaction.objectStore("frames").put({ ...frame, session, seq: seqOf(frame.id) });
      /** @type {Position[]} */
      const all = await answer(sessions.getAll());
      for (const old of newestFirst(all.map((one) => ({ position: one }))).slice(keep)) forget(transaction, old.session);
      await done(transaction);
    },
    async load(session) {
      const transaction = (await database()).transaction(["sessions", "frames"]);
      const position = await answer(transaction.objectStore("sessions").get(session));
      const kept = await answer(transaction.objectStore("frames").getAll(framesOf(session)));
      return position && { position, frames: kept.map(bare) };
    },
    async list() {
      const sessions = (await database()).transaction("sessions").objectStore("sessions");
      /** @type {Position[]} */
      const all = await answer(sessions.getAll());
      return newestFirst(all.map((position) => ({ position })));
    },
    async drop(session) {
      const transaction = (await database()).transaction(["sessions", "frames"], "readwrite");
      forget(transaction, session);
      await done(transaction);
    },
  };
  return store;
}

/**
 * @param {IDBFactory} factory
 * @param {string} name
 * @param {() => void} closed told when the database must be opened anew
 * @returns {Promise<IDBDatabase>}
 */
async function open(factory, name, closed) {
  const opening = factory.open(name, VERSION);
  opening.onupgradeneeded = () => {
    opening.result.createObjectStore("sessions", { keyPath: "session" });
    opening.result.createObjectStore("frames", { keyPath: ["session", "seq"] });
  };
  const database = await answer(opening);
  database.onclose = closed;
  database.onversionchange = () => {
    database.close();
    closed();
  };
  return database;
}

/**
 * @param {IDBTransaction} transaction
 * @param {string} session
 */
function forget(transaction, session) {
  transaction.objectStore("sessions").delete(session);
  transaction.objectStore("frames").delete(framesOf(session));
}

/**
 * The keys of a session's frames.
 * @param {string} session
 */
function framesOf(session) {
  return (/** @type {any} */ (globalThis).IDBKeyRange).bound([session, 0], [session, Infinity]);
}

/**
 * @param {Frame & { session: string, seq: number }} kept
 * @returns {Frame}
 */
function bare({ session, seq, ...frame }) {
  return frame;
}

/**
 * @template T
 * @param {IDBRequest<T>} request
 * @returns {Promise<T>}
 */
function answer(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/**
 * @param {IDBTransaction} transaction
 * @returns {Promise<void>}
 */
function done(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = transaction.onerror = () => reject(transaction.error);
  });
}
