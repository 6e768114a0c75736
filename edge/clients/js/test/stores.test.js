/** One contract for all stores: memory, a folder of files, IndexedDB. */

import assert from "node:assert/strict";
import { appendFile, mkdtemp, readFile, readdir, rename, rm, stat, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { indexedDBStore, memoryStore } from "../src/index.js";
import { fileStore } from "../src/node.js";
import { beginning } from "../src/progress.js";
import { idOf } from "./played.js";

const { IDBFactory, IDBKeyRange } = await import(process.env.FAKE_INDEXEDDB || "fake-indexeddb");
globalThis.IDBKeyRange = IDBKeyRange;

async function folderFor(t) {
  const folder = await mkdtemp(join(tmpdir(), "tokentrail-client-"));
  t.after(() => rm(folder, { recursive: true }));
  return folder;
}

/** Each gives a way to open the same store again, as another process or page would. */
const STORES = {
  memory: () => {
    const stores = new Map();
    return (keep = 20) => stores.get(keep) ?? stores.set(keep, memoryStore({ keep })).get(keep);
  },
  file: async (t) => {
    const folder = await folderFor(t);
    return (keep) => fileStore(join(folder, "sessions"), { keep });
  },
  indexeddb: () => {
    const indexedDB = new IDBFactory();
    return (keep) => indexedDBStore({ indexedDB, keep });
  },
};

const frame = (seq) => ({ id: idOf(seq), event: "delta", data: `Grüße ${seq}\nsecond line` });
const position = (session, seq = -1, startedMs = 1) => ({
  ...beginning({ session, base: "http://edge.test", startedMs }),
  seq,
  lastEventId: seq < 0 ? null : idOf(seq),
});

for (const [name, opener] of Object.entries(STORES)) {
  test(`${name}: what was saved is there for whoever opens it again, in order`, async (t) => {
    const open = await opener(t);
    await open().save(position("a"), []);
    await open().save(position("a", 1), [frame(0), frame(1)]);
    await open().save(position("b/../ü", 0), [frame(0)]);
    const store = open();
    await store.save(position("a", 2), [frame(2)]);
    assert.deepEqual(await open().load("a"), { position: position("a", 2), frames: [frame(0), frame(1), frame(2)] });
    assert.deepEqual(await open().load("b/../ü"), { position: position("b/../ü", 0), frames: [frame(0)] });
  });

  test(`${name}: a session that is not there is undefined, and may be dropped`, async (t) => {
    const open = await opener(t);
    assert.equal(await open().load("nobody"), undefined);
    assert.deepEqual(await open().list(), []);
    await open().drop("nobody");
    await open().save(position("a", 0), [frame(0)]);
    await open().drop("a");
    assert.equal(await open().load("a"), undefined);
    await open().save(position("a"), []);
    assert.deepEqual((await open().load("a"))?.frames, []);
  });

  test(`${name}: the last sessions are kept, the newest first; the oldest leave with their events`, async (t) => {
    const open = await opener(t);
    for (const at of [3, 1, 2, 5, 4]) await open(3).save(position(`s${at}`, 0, at), [frame(0)]);
    assert.deepEqual((await open(3).list()).map(({ session }) => session), ["s5", "s4", "s3"]);
    assert.equal(await open(3).load("s1"), undefined);
  });

  test(`${name}: what is given back is a copy`, async (t) => {
    const open = await opener(t);
    const own = position("a", 0);
    await open().save(own, [frame(0)]);
    own.seq = 7;
    const loaded = await open().load("a");
    loaded.position.seq = 8;
    loaded.frames.pop();
    assert.deepEqual(await open().load("a"), { position: position("a", 0), frames: [frame(0)] });
  });

  test(`${name}: saves that were not waited for are all there`, async (t) => {
    const open = await opener(t);
    const store = open();
    await Promise.all(Array.from({ length: 8 }, (_, at) => store.save(position(`s${at}`, 0, at), [frame(0)])));
    assert.equal((await open().list()).length, 8);
  });
}

test("file: half a line, as a process leaves it that died while writing, is as if it were not there", async (t) => {
  const folder = await folderFor(t);
  await fileStore(folder).save(position("a", 0), [frame(0)]);
  const [file] = await readdir(folder);
  const whole = await readFile(join(folder, file), "utf8");
  await appendFile(join(folder, file), whole.trim().split("\n")[0].slice(0, 30));
  await fileStore(folder).save(position("a", 1), [frame(1)]);
  assert.deepEqual(await fileStore(folder).load("a"), { position: position("a", 1), frames: [frame(0), frame(1)] });
});

test("file: a full disk is an error, and what it left of a line costs nothing that is stored later", { skip: process.platform !== "linux" && "no /dev/full" }, async (t) => {
  const folder = await folderFor(t);
  const store = fileStore(folder);
  await store.save(position("a", 0), [frame(0)]);
  const path = join(folder, (await readdir(folder))[0]);
  await rename(path, `${path}.kept`);
  await symlink("/dev/full", path);
  await assert.rejects(store.save(position("a", 1), [frame(1)]), { code: "ENOSPC" });
  await rename(`${path}.kept`, path);
  await appendFile(path, '{"frame":{"id":"1-');
  await store.save(position("a", 1), [frame(1)]);
  assert.deepEqual(await store.load("a"), { position: position("a", 1), frames: [frame(0), frame(1)] });
});

test("file: positions that are over do not pile up, and events stay", async (t) => {
  const folder = await folderFor(t);
  const store = fileStore(folder, { overCharsMax: 2_000 });
  for (let seq = 0; seq < 60; seq += 1) await store.save(position("a", seq), seq < 5 ? [frame(seq)] : []);
  const [file, ...others] = await readdir(folder);
  assert.deepEqual(others, []);
  assert.ok((await stat(join(folder, file))).size < 5_000);
  assert.equal((await stat(join(folder, file))).mode & 0o077, 0);
  assert.deepEqual(await fileStore(folder).load("a"), { position: position("a", 59), frames: [0, 1, 2, 3, 4].map(frame) });
});

test("file: a long session is swept piece by piece, whatever stands across two pieces; half a line is left out", async (t) => {
  const folder = await folderFor(t);
  const store = fileStore(folder, { overCharsMax: 1_000 });
  const long = (seq) => ({ ...frame(seq), data: `${"👋".repeat(40_000 + seq)}\n${seq}` });
  await store.save(position("a", 0), [long(0)]);
  const path = join(folder, (await readdir(folder))[0]);
  await appendFile(path, `${JSON.stringify({ position: position("a", 0) }).slice(0, 50)}\n`);
  for (let seq = 1; seq < 6; seq += 1) await store.save(position("a", seq), [long(seq)]);
  const said = await readFile(path, "utf8");
  assert.ok(said.match(/"position"/g).length < 5);
  assert.deepEqual(await fileStore(folder).load("a"), { position: position("a", 5), frames: [0, 1, 2, 3, 4, 5].map(long) });
  assert.deepEqual((await readdir(folder)).length, 1);
});

test("file: a list reads the ends of its files only, and finds a position behind a long torn line", async (t) => {
  const folder = await folderFor(t);
  await fileStore(folder).save(position("a", 0), [{ ...frame(0), data: "x".repeat(40_000) }]);
  const [file] = await readdir(folder);
  assert.equal((await fileStore(folder).list())[0].seq, 0);
  await appendFile(join(folder, file), `{"frame":{"data":"${"y".repeat(40_000)}`);
  assert.equal((await fileStore(folder).list())[0].seq, 0);
});

test("file: only its owner may read what the model said", async (t) => {
  const folder = join(await folderFor(t), "sessions");
  await fileStore(folder).save(position("a"), []);
  const [file] = await readdir(folder);
  assert.equal((await stat(folder)).mode & 0o077, 0);
  assert.equal((await stat(join(folder, file))).mode & 0o077, 0);
});

test("file: a folder that cannot be read is an error, not an empty store", async (t) => {
  const folder = await folderFor(t);
  await appendFile(join(folder, "plain"), "");
  await assert.rejects(fileStore(join(folder, "plain")).list(), { code: "ENOTDIR" });
  await assert.rejects(fileStore(join(folder, "plain")).save(position("a"), []), { code: "EEXIST" });
});
