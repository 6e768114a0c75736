/**
 * A process that is killed anywhere between receiving an event and being done with it: what the application writes down,
 * before and after, is the uncut stream, each event once. The application goes on behind what it has written itself.
 */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { resume } from "../src/index.js";
import { fileStore } from "../src/node.js";
import { nativeFrames, played } from "./played.js";

const WORDS = ["one", " two", " three", " four"];
const FRAMES = nativeFrames(WORDS);
const DYING = fileURLToPath(new URL("dying.js", import.meta.url));
const MOMENTS = {
  "before it is stored": [0, 3],
  "while it is stored": [3],
  "after it is stored": [2, 5],
  "after it was handed over": [2],
  "after it was dealt with": [5],
};

/** Run the reader; how it ended, and what it said. */
const run = (...args) =>
  new Promise((resolve) => {
    execFile(process.execPath, [DYING, ...args.map(String)], (error, said, complaint) => resolve({ signal: error?.signal, said, complaint }));
  });

for (const [moment, events] of Object.entries(MOMENTS)) {
  test(`killed ${moment}: nothing is lost, nothing comes twice`, async (t) => {
    await Promise.all(events.map(async (event) => {
      const folder = await mkdtemp(join(tmpdir(), "tokentrail-client-"));
      t.after(() => rm(folder, { recursive: true }));
      const gateway = await played(t, { frames: FRAMES });
      const died = await run(gateway.url, folder, "s-1", moment, event);
      assert.equal(died.signal, "SIGKILL", died.complaint);
      const second = await run(gateway.url, folder, "s-1", "", -1);
      assert.equal(second.signal, undefined, second.complaint);
      const ledger = await readFile(join(folder, "ledger"), "utf8");
      assert.equal(ledger, FRAMES.map((_, seq) => `${seq}\n`).join(""), `at ${event}`);
      assert.match(second.said, new RegExp(`${WORDS.join("")}$`));
      const begun = gateway.requests.filter(({ method }) => method === "POST");
      assert.equal(new Set(begun.map(({ headers }) => headers["idempotency-key"])).size, 1);

      const store = fileStore(join(folder, "sessions"));
      const whole = await resume("s-1", { store });
      const seqs = [];
      for await (const { seq } of whole) seqs.push(seq);
      assert.deepEqual(seqs, FRAMES.map((_, seq) => seq));
    }));
  });
}
