/**
 * A store for Node: one file per session in a folder of its own, of which every save is one append.
 *
 * A process that dies within an append leaves half a line at the most: it is skipped, and what it held was not handed
 * over. The files are readable by their owner only; they hold what the model said, never a key. A power failure may take
 * the last appends along; what they held comes again from the server.
 * Before: `types`. After: `stream`, by way of `node`.
 */

import { createHash } from "node:crypto";
import { appendFile, mkdir, readFile, readdir, rm } from "node:fs/promises";
import { join } from "node:path";

import { SESSIONS_KEPT, newestFirst } from "./memory.js";

/** @import { Frame, Position, Saved, Store } from "../types.js" */

const ENDING = ".jsonl";

/**
 * @param {string} folder made where there is none; only this store writes there
 * @param {{ keep?: number }} [options]
 * @returns {Store}
 */
export function fileStore(folder, { keep = SESSIONS_KEPT } = {}) {
  /** @type {Set<string>} */
  const begun = new Set();
  const pathOf = (/** @type {string} */ session) =>
    join(folder, createHash("sha256").update(session).digest("hex").slice(0, 32) + ENDING);

  async function all() {
    const names = await readdir(folder).catch(nothingThere([]));
    const found = await Promise.all(
      names.filter((name) => name.endsWith(ENDING)).map((name) => readSession(join(folder, name))),
    );
    return newestFirst(found.filter((saved) => saved !== undefined));
  }

  /** @type {Store} */
  const store = {
    async save(position, frames) {
      const { session } = position;
      const first = !begun.has(session);
      if (first) await mkdir(folder, { recursive: true, mode: 0o700 });
      const lines = [...frames.map((frame) => ({ frame })), { position }].map((line) => `${JSON.stringify(line)}\n`);
      await appendFile(pathOf(session), (first ? "\n" : "") + lines.join(""), { mode: 0o600 }); // half a line may stand there
      begun.add(session);
      if (first) for (const old of (await all()).slice(keep)) await store.drop(old.session);
    },
    load: (session) => readSession(pathOf(session)),
    list: all,
    async drop(session) {
      begun.delete(session);
      await rm(pathOf(session), { force: true });
    },
  };
  return store;
}

/**
 * @param {string} path
 * @returns {Promise<Saved | undefined>}
 */
async function readSession(path) {
  const text = await readFile(path, "utf8").catch(nothingThere(""));
  /** @type {Frame[]} */
  const frames = [];
  /** @type {Position | undefined} */
  let position;
  for (const line of text.split("\n")) {
    const said = lineOf(line);
    if (said.frame !== undefined) frames.push(said.frame);
    if (said.position !== undefined) position = said.position;
  }
  return position && { position, frames };
}

/**
 * @param {string} line
 * @returns {{ frame?: Frame, position?: Position }} empty for half a line
 */
function lineOf(line) {
  try {
    return JSON.parse(line || "{}");
  } catch {
    return {};
  }
}

/**
 * What to take instead of something that does not exist (any more).
 * @template T
 * @param {T} instead
 * @returns {(error: NodeJS.ErrnoException) => T}
 */
function nothingThere(instead) {
  return (error) => {
    if (error.code === "ENOENT") return instead;
    throw error;
  };
}
