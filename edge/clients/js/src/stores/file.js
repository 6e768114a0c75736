/**
 * A store for Node: one file per session in a folder of its own, of which every save is one append.
 *
 * Positions that are over are swept out now and then, by a new file in place of the old. A process that dies within an
 * append leaves half a line at the most: it is skipped, and what it held was not handed over. The files are readable by
 * their owner only; they hold what the model said, never a key. A power failure may take the last appends along; what they
 * held comes again from the server.
 * Before: `types`. After: `stream`, by way of `node`.
 */

import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { appendFile, mkdir, open, readFile, readdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";

import { SESSIONS_KEPT, newestFirst } from "./memory.js";

/** @import { Frame, Position, Saved, Store } from "../types.js" */

const ENDING = ".jsonl";
/** A position is at the end, and shorter than this. */
const TAIL_BYTES = 16 * 2 ** 10;
/** So much of a file is looked at in one turn when it is swept. */
const PIECE_BYTES = 2 ** 17;
/** How a line begins that is an event. */
const EVENT = '{"frame":';
/** So much of a file may be positions that are over. */
const OVER_CHARS_MAX = 2 ** 20;

/**
 * @param {string} folder made where there is none; only this store writes there
 * @param {{ keep?: number, overCharsMax?: number }} [options]
 * @returns {Store}
 */
export function fileStore(folder, { keep = SESSIONS_KEPT, overCharsMax = OVER_CHARS_MAX } = {}) {
  /** How much of the positions of each session are over. @type {Map<string, number>} */
  const over = new Map();
  const pathOf = (/** @type {string} */ session) =>
    join(folder, createHash("sha256").update(session).digest("hex").slice(0, 32) + ENDING);

  async function all() {
    const names = await readdir(folder).catch(nothingThere([]));
    const files = names.filter((name) => name.endsWith(ENDING));
    const found = await Promise.all(files.map((name) => readPosition(join(folder, name))));
    return newestFirst(found.flatMap((position) => (position ? [{ position }] : [])));
  }

  /** @type {Store} */
  const store = {
    async save(position, frames) {
      const { session } = position;
      const path = pathOf(session);
      const first = !over.has(session);
      if (first) await mkdir(folder, { recursive: true, mode: 0o700 });
      const said = lineOf({ position });
      const text = frames.map((frame) => lineOf({ frame })).join("") + said;
      try {
        await appendFile(path, (first ? "\n" : "") + text, { mode: 0o600 }); // half a line may stand there
      } catch (error) {
        over.delete(session); // on a full disk, too: the next save is a first one again
        throw error;
      }
      const chars = (over.get(session) ?? 0) + said.length;
      over.set(session, chars);
      if (chars > overCharsMax) {
        await sweep(path);
        over.set(session, 0);
      }
      if (first) for (const old of (await all()).slice(keep)) await store.drop(old.session);
    },
    load: (session) => readSession(pathOf(session)),
    list: all,
    async drop(session) {
      over.delete(session);
      await rm(pathOf(session), { force: true });
    },
  };
  return store;
}

/**
 * Keep the events and the last position only. Events are copied as they stand, piece by piece: a session may be long, and
 * nothing else of the process should wait for it.
 * @param {string} path
 */
async function sweep(path) {
  const to = await open(`${path}.new`, "w", 0o600);
  try {
    /** @type {Position | undefined} */
    let position;
    let rest = "";
    for await (const piece of createReadStream(path, { encoding: "utf8", highWaterMark: PIECE_BYTES })) {
      const lines = (rest + piece).split("\n");
      rest = /** @type {string} */ (lines.pop()); // what follows the last line's end is half a line, or nothing
      const events = lines.filter((line) => line.startsWith(EVENT));
      if (events.length > 0) await to.write(`${events.join("\n")}\n`);
      for (const line of lines) if (!line.startsWith(EVENT)) position = saidIn(line).position ?? position;
    }
    if (position === undefined) return;
    await to.write(lineOf({ position }));
  } finally {
    await to.close();
  }
  await rename(`${path}.new`, path);
}

/**
 * Where a session stands, without its events.
 * @param {string} path
 * @returns {Promise<Position | undefined>}
 */
async function readPosition(path) {
  const file = await open(path).catch(nothingThere(null));
  if (file === null) return undefined;
  try {
    const { size } = await file.stat();
    const from = Math.max(0, size - TAIL_BYTES);
    const { buffer, bytesRead } = await file.read(Buffer.alloc(size - from), 0, size - from, from);
    const lines = buffer.toString("utf8", 0, bytesRead).split("\n").reverse();
    const found = lines.map((line) => saidIn(line).position).find((position) => position !== undefined);
    return found ?? (await readSession(path))?.position;
  } finally {
    await file.close();
  }
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
    const said = saidIn(line);
    if (said.frame !== undefined) frames.push(said.frame);
    if (said.position !== undefined) position = said.position;
  }
  return position && { position, frames };
}

/** @param {{ frame: Frame } | { position: Position }} said */
const lineOf = (said) => `${JSON.stringify(said)}\n`;

/**
 * @param {string} line
 * @returns {{ frame?: Frame, position?: Position }} empty for half a line
 */
function saidIn(line) {
  try {
    return Object(JSON.parse(line || "{}"));
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
