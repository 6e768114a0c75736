/** What is published: it works under its own name, in a browser too, without a dependency or a build. */

import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const manifest = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8"));
const IMPORT = /^(?:import|export)\b[^;]*?from "([^"]+)";/gm;

/** Every file that a file leads to, and what else is imported on the way. */
async function reachable(file, seen = new Map()) {
  if (seen.has(file)) return seen;
  const names = Array.from((await readFile(file, "utf8")).matchAll(IMPORT), ([, name]) => name);
  seen.set(file, names.filter((name) => !name.startsWith(".")));
  for (const name of names) if (name.startsWith(".")) await reachable(join(dirname(file), name), seen);
  return seen;
}

test("it is imported by its own name, and gives what it says", async () => {
  const main = await import("tokentrail-client");
  for (const name of ["fetch", "generate", "resume", "attach", "ticketFor", "eventsUrl", "indexedDBStore", "memoryStore"]) {
    assert.equal(typeof main[name], "function", name);
  }
  assert.equal(typeof (await import("tokentrail-client/node")).fileStore, "function");
});

test("what it delivers is there, and it depends on nothing", async () => {
  assert.equal(manifest.dependencies, undefined);
  assert.equal(manifest.type, "module");
  for (const { types, default: source } of Object.values(manifest.exports)) {
    assert.ok(manifest.files.some((folder) => source.startsWith(`./${folder}/`)));
    for (const path of [types, source]) assert.ok((await readFile(join(ROOT, path), "utf8")).length > 0, path);
  }
});

test("what a browser loads imports nothing but the library's own files; every file is part of one way in", async () => {
  const main = await reachable(join(ROOT, "src/index.js"));
  assert.deepEqual([...main.values()].flat(), []);
  const node = await reachable(join(ROOT, "src/node.js"));
  assert.deepEqual([...new Set([...node.values()].flat())].filter((name) => !name.startsWith("node:")), []);
  const files = (await readdir(join(ROOT, "src"), { recursive: true })).filter((name) => name.endsWith(".js"));
  const shapes = join(ROOT, "src/types.js");
  assert.deepEqual(files.map((name) => join(ROOT, "src", name)).filter((file) => !main.has(file) && !node.has(file)), [shapes]);
});

test("every file says what it is and where it stands, and is short", async () => {
  for (const name of (await readdir(join(ROOT, "src"), { recursive: true })).filter((one) => one.endsWith(".js"))) {
    const text = await readFile(join(ROOT, "src", name), "utf8");
    assert.match(text, /^\/\*\*\n \* [A-Zt]/, name);
    assert.ok(text.split("\n").length <= 300, name);
  }
});
