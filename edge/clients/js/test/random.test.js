/** Faults at random, many in a row: whatever happens to the connections, the stream above them is the uncut one. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { generate, memoryStore, resumableFetch, resume } from "../src/index.js";
import { DIALECTS, QUICK, frame, nativeFrames, played } from "./played.js";

const SESSIONS = 12;
const FAULTS_MAX = 12;
const LIMITS = { ...QUICK, idleMs: 40 };
const CALL = { method: "POST", body: "{}" };

/** Numbers from 0 to 1 that are the same in every run. */
function drawn(seed) {
  let state = seed;
  return () => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
    return state / 2 ** 31;
  };
}

/** One fault; `cuts` only those of a stream that has begun. */
function faultOf(draw, cuts = false) {
  const one = (...of) => of[Math.floor(draw() * of.length)];
  const foreign = { "x-generation-id": "other", "content-type": "text/event-stream" };
  const kind = cuts ? 0 : draw();
  if (kind < 0.6) return { after: Math.floor(draw() * 1_500), how: one("reset", "fin", "end") };
  if (kind < 0.7) return { noAnswer: true };
  if (kind < 0.8) return { answer: { status: one(502, 503, 504), body: "<html>" } };
  if (kind < 0.9) return { answer: { status: one(429, 500, 503), headers: { "x-should-retry": "true" } } };
  if (kind < 0.97) return { answer: { status: 200, headers: foreign, body: frame(3, "foreign") } };
  return { after: Math.floor(draw() * 300), how: "hang" };
}

for (const dialect of [...Object.keys(DIALECTS), "native"]) {
  test(`${dialect}: ${SESSIONS} sessions with up to ${FAULTS_MAX} faults each lose and repeat nothing`, async (t) => {
    const draw = drawn(dialect.length);
    for (let session = 0; session < SESSIONS; session += 1) {
      const words = Array.from({ length: 12 }, (_, at) => `${["a", "Grüße", "👩‍👩‍👧", "“x”"][Math.floor(draw() * 4)]}${at}`);
      const frames = dialect === "native" ? nativeFrames(words) : DIALECTS[dialect].frames(words);
      const faults = Array.from({ length: Math.floor(draw() * FAULTS_MAX) }, () => faultOf(draw));
      const gateway = await played(t, { frames, faults: [dialect === "native" ? undefined : faultOf(draw, true), ...faults] });
      if (dialect === "native") await readTwice(gateway, words, frames);
      else {
        const response = await resumableFetch({ limits: LIMITS })(gateway.url + DIALECTS[dialect].path, CALL);
        assert.equal(await response.text(), frames.join(""), JSON.stringify(faults));
      }
      gateway.stop();
    }
  });
}

/** Read by the iterator, then again from its store. */
async function readTwice(gateway, words, frames) {
  const store = memoryStore();
  const seqs = frames.map((_, seq) => seq);
  const stream = generate({ edge: gateway.url, body: {}, limits: LIMITS, store, session: "s" });
  await readWhole(stream, seqs, words);
  await readWhole(await resume("s", { store }), seqs, words);
}

async function readWhole(stream, seqs, words) {
  const got = [];
  for await (const { seq } of stream) got.push(seq);
  assert.deepEqual(got, seqs);
  assert.equal(stream.text, words.join(""));
}
