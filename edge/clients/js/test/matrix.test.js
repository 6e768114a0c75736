/** The retry matrix: each row, as a decision and as what really happens to a call and to a resume. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { generate, resumableFetch } from "../src/index.js";
import { LIMITS, limitsOf } from "../src/limits.js";
import { answered, decide } from "../src/retry.js";
import { DIALECTS, LATE_MS, QUICK, bytesTo, frame, lateClock, nativeFrames, played, until } from "./played.js";

const SITUATION = { fruitless: 1, begun: true, leftMs: 60_000, random: 0.5, limits: { ...LIMITS } };
const answer = (status, advice = null, retryAfterMs = null) => ({ kind: "answer", status, advice, retryAfterMs });

const ROWS = [
  ["a reset", { kind: "cut" }, { waitMs: 50 }],
  ["an early end", { kind: "early_end" }, { waitMs: 50 }],
  ["silence", { kind: "idle" }, { waitMs: 50 }],
  ["an event that is missing", { kind: "gap" }, { waitMs: 50 }],
  ["429 that says so", answer(429, "true", 2_000), { waitMs: 2_000 }],
  ["500 that says so", answer(500, "true"), { waitMs: 50 }],
  ["503 that says so, by its Retry-After", answer(503, "true", 20_000), { waitMs: 20_000 }],
  ["429 that says no", answer(429, "false", 1_000), { stop: "refused" }],
  ["429 that says nothing", answer(429), { stop: "refused" }],
  ["429 that only names a Retry-After", answer(429, null, 1_000), { waitMs: 1_000 }],
  ["a word that is neither true nor false", answer(503, "maybe", 1_000), { stop: "refused" }],
  ["500 that says nothing", answer(500), { stop: "refused" }],
  ["503 that says no", answer(503, "false", 1_000), { stop: "refused" }],
  ["a proxy's 502", answer(502), { waitMs: 50 }],
  ["a proxy's 503 with a Retry-After", answer(503, null, 3_000), { waitMs: 3_000 }],
  ["a proxy's 504", answer(504), { waitMs: 50 }],
  ...[400, 401, 403, 404, 408, 409, 410, 413, 422].map((status) => [
    `${status}, whatever it says`,
    answer(status, "true", 1),
    { stop: "refused" },
  ]),
  ["a Retry-After beyond the session", answer(503, "true", 60_000), { stop: "session_timeout" }],
];

for (const [what, failure, expected] of ROWS) {
  test(`decided: ${what}`, () => {
    assert.deepEqual(decide(failure, SITUATION), expected);
  });
}

test("the wait doubles up to its bound, and no two clients wait the same", () => {
  const waits = (random) =>
    [1, 2, 3, 4, 20].map((fruitless) => decide({ kind: "cut" }, { ...SITUATION, random, fruitless }).waitMs);
  assert.deepEqual(waits(0), [0, 125, 250, 500, 7_500]);
  assert.deepEqual(waits(1), [100, 250, 500, 1_000, 15_000]);
});

test("a call that nobody answers is given up after a few tries, a generation that runs is not", () => {
  const after = (fruitless, begun) => decide({ kind: "cut" }, { ...SITUATION, fruitless, begun });
  assert.ok("waitMs" in after(LIMITS.openAttempts - 1, false));
  assert.deepEqual(after(LIMITS.openAttempts, false), { stop: "unreachable" });
  assert.ok("waitMs" in after(1_000, true));
});

test("Retry-After is seconds or a date; anything else is none", () => {
  const of = (text) => answered(new Response(null, { status: 503, headers: { "retry-after": text } }), 1_000_000).retryAfterMs;
  assert.equal(of("7"), 7_000);
  assert.equal(of(new Date(1_005_000).toUTCString()), 5_000);
  assert.equal(of(new Date(0).toUTCString()), 0);
  assert.equal(of("soon"), null);
  const exact = new Response(null, { status: 429, headers: { "retry-after": "7", "retry-after-ms": "150" } });
  assert.equal(answered(exact, 0).retryAfterMs, 150);
});

test("a limit that is misspelt or not above 0 is an error", () => {
  assert.throws(() => limitsOf({ idleMS: 1 }), /idleMS is not a limit/);
  assert.throws(() => limitsOf({ idleMs: 0 }), /above 0/);
});

const WORDS = ["one", " two", " three"];
const { path, frames } = DIALECTS["openai.chat"];
const TEXT = WORDS.join("");

/** A way to read the words: what is asked first, how a played stream is cut, what comes in the end. */
const READERS = {
  transport: {
    frames: frames(WORDS),
    begun: 1,
    async read(gateway, options) {
      const asked = { method: "POST", body: "{}" };
      const response = await resumableFetch(options)(gateway.url + path, asked);
      const said = (await response.text()).matchAll(/"content":"([^"]*)"/g);
      return Array.from(said, ([, word]) => word).join("");
    },
  },
  iterator: {
    frames: nativeFrames(WORDS),
    begun: 2,
    async read(gateway, options) {
      return (await generate({ edge: gateway.url, body: {}, ...options }).result()).text;
    },
  },
};

for (const [name, reader] of Object.entries(READERS)) {
  const before = Array.from({ length: reader.begun - 1 });
  const cut = { after: bytesTo(reader.frames, 2), how: "reset" };

  /** Read through a stream that is cut, then through these faults. */
  async function resuming(t, faults, limits = {}) {
    const gateway = await played(t, { frames: reader.frames, faults: [...before, cut, ...faults] });
    const clock = lateClock(gateway.silent);
    const states = [];
    const onState = ({ state, reason }) => states.push(reason === undefined ? state : `${state} ${reason}`);
    const text = reader.read(gateway, { onState, clock, fetch: gateway.fetch, limits: { ...QUICK, ...limits } });
    return { gateway, states, text };
  }
  const resumes = (gateway) => gateway.requests.length - reader.begun;

  for (const how of ["reset", "fin", "end", "hang"]) {
    test(`${name}: a stream that is cut by ${how} is resumed`, async (t) => {
      const faults = [{ after: 70, how }];
      const { gateway, states, text } = await resuming(t, faults, { idleMs: LATE_MS });
      assert.equal(await text, TEXT);
      assert.equal(resumes(gateway), 2);
      assert.equal(states.at(-1), "COMPLETED");
      assert.deepEqual(states.slice(0, 4), ["STREAMING", "PAUSED cut", "RESUMING", "STREAMING"]);
    });
  }

  for (const status of [429, 500, 503]) {
    test(`${name}: a resume that is answered ${status} is tried again if it says so, not before its Retry-After`, async (t) => {
      const refused = { answer: { status, headers: { "x-should-retry": "true", "retry-after": "0.1" } } };
      const { gateway, text } = await resuming(t, [refused]);
      assert.equal(await text, TEXT);
      const [first, second] = gateway.requests.slice(reader.begun);
      assert.ok(second.atMs - first.atMs > 98, "a timer may be a millisecond early");
    });

    test(`${name}: a resume that is answered ${status} and no is not tried again`, async (t) => {
      const refused = { answer: { status, headers: { "x-should-retry": "false" }, body: { error: { code: "spent", message: "no" } } } };
      const { gateway, states, text } = await resuming(t, [refused]);
      await assert.rejects(text, { name: "StreamError", code: "spent", status, retryable: false });
      assert.equal(resumes(gateway), 1);
      assert.equal(states.at(-1), "CANCELLED spent");
    });
  }

  test(`${name}: a proxy's 502 is as if nobody had answered`, async (t) => {
    const { gateway, text } = await resuming(t, [{ answer: { status: 502, body: "<html>" } }]);
    assert.equal(await text, TEXT);
    assert.equal(resumes(gateway), 2);
  });

  for (const [status, code] of [[400, "cursor_invalid"], [401, "cursor_invalid"], [404, "not_found"], [409, "cursor_ahead"], [410, "resume_expired"]]) {
    test(`${name}: a resume that is answered ${status} is over, with the reason`, async (t) => {
      const refused = { answer: { status, headers: { "x-should-retry": "true" }, body: { error: { code, message: "why" } } } };
      const { gateway, states, text } = await resuming(t, [refused]);
      await assert.rejects(text, { code, status, message: "why" });
      assert.equal(resumes(gateway), 1);
      assert.equal(states.at(-1), `CANCELLED ${code}`);
    });
  }

  test(`${name}: a resume that is answered 204 is the end: the terminal was the last event`, async (t) => {
    const { gateway, states, text } = await resuming(t, [{ answer: { status: 204 } }]);
    await text.catch(() => {});
    assert.equal(resumes(gateway), 1);
    assert.equal(states.at(-1), "COMPLETED");
  });

  test(`${name}: a session ends when its time is over, whatever is still coming`, async (t) => {
    const silent = Array.from({ length: 40 }, () => ({ after: 20, how: "hang" }));
    const { states, text } = await resuming(t, silent, { sessionMs: 250, idleMs: 40 });
    await assert.rejects(text, { code: "session_timeout" });
    assert.equal(states.at(-1), "CANCELLED session_timeout");
  });

  test(`${name}: heartbeats alone, and a Retry-After without end, are no events: it ends within the read time`, async (t) => {
    const later = { answer: { status: 503, headers: { "x-should-retry": "true", "retry-after": "3600" } } };
    const empty = Array.from({ length: 400 }, () => ({ after: 20, how: "end" }));
    for (const faults of [[later], empty]) {
      const { states, text, gateway } = await resuming(t, faults, { readMs: 300 });
      await assert.rejects(text, { code: "read_timeout" });
      assert.equal(states.at(-1), "CANCELLED read_timeout");
      assert.ok(gateway.faults.length > 0 || faults.length === 1);
    }
  });

  test(`${name}: an answer whose head does not come is a lost connection`, async (t) => {
    const gateway = await played(t, { frames: reader.frames });
    let asked = 0;
    const slow = (...request) => {
      if (String(request[0]).endsWith("/ack")) return fetch(...request);
      return asked++ === 0 ? new Promise(() => {}) : fetch(...request);
    };
    const options = { fetch: slow, clock: lateClock(() => asked === 1), limits: { ...QUICK, readMs: LATE_MS } };
    assert.equal(await reader.read(gateway, options), TEXT);
    assert.equal(asked, 1 + reader.begun);
  });

  test(`${name}: an event above the bound ends it; reading it again would not help`, async (t) => {
    const large = frame(1, { choices: [{ delta: { content: "x".repeat(3_000) } }], parts: [] }, "delta");
    const gateway = await played(t, { frames: [...(reader.begun === 2 ? nativeFrames([]).slice(0, 1) : []), large] });
    const text = reader.read(gateway, { limits: { ...QUICK, frameCharsMax: 2_000 } });
    await assert.rejects(text, { code: "frame_too_large" });
    assert.equal(gateway.requests.length, reader.begun);
  });

  test(`${name}: a store that cannot store ends the reading, not the generation`, async (t) => {
    const gateway = await played(t, { frames: reader.frames });
    const store = { save: async () => { throw new Error("disk full"); }, load: async () => undefined, list: async () => [], drop: async () => {} };
    await assert.rejects(reader.read(gateway, { store, limits: QUICK }), /disk full/);
    assert.equal(gateway.requests.length, reader.begun);
  });
}

test("iterator: a call is tried again as the matrix says, under one key, and refused as it says", async (t) => {
  const later = { answer: { status: 429, headers: { "x-should-retry": "true", "retry-after": "0.05" } } };
  const gateway = await played(t, { frames: nativeFrames(WORDS), faults: [{ noAnswer: true }, later] });
  const stream = generate({ edge: `${gateway.url}/v1/`, body: { model: "m" }, limits: QUICK, session: "s-1" });
  assert.equal((await stream.result()).text, TEXT);
  assert.deepEqual(gateway.requests.map(({ headers }) => headers["idempotency-key"]), ["s-1", "s-1", "s-1", undefined]);
  gateway.faults.push({ answer: { status: 422, body: { error: { code: "idempotency_conflict", message: "another body" } } } });
  await assert.rejects(generate({ edge: gateway.url, body: {}, limits: QUICK }).result(), { code: "idempotency_conflict", status: 422 });
  gateway.faults.push(...Array.from({ length: 9 }, () => ({ noAnswer: true })));
  await assert.rejects(generate({ edge: gateway.url, body: {}, limits: QUICK }).result(), { code: "unreachable" });
});

for (const [how, end] of Object.entries({ signal: (stream, abort) => abort.abort(), cancel: (stream) => stream.cancel() })) {
  test(`iterator: the reader's own abort, by ${how}, is never resumed, and cancels the generation once`, async (t) => {
    const fault = { after: bytesTo(nativeFrames(WORDS), 2), how: "hang" };
    const gateway = await played(t, { frames: nativeFrames(WORDS), faults: [undefined, fault] });
    const abort = new AbortController();
    const stream = generate({ edge: gateway.url, body: {}, limits: QUICK, signal: abort.signal });
    const reading = (async () => { for await (const item of stream) if (item.type === "delta") end(stream, abort); })();
    await assert.rejects(reading, { code: "aborted", name: "AbortError", text: "one" });
    assert.equal(stream.state, "CANCELLED");
    await until(() => gateway.requests.length === 3);
    assert.ok(gateway.requests[2].url.endsWith("/cancel"));
  });
}

test("iterator: leaving the loop is never resumed, and leaves the generation to whoever opens the session again", async (t) => {
  const fault = { after: bytesTo(nativeFrames(WORDS), 2), how: "hang" };
  const gateway = await played(t, { frames: nativeFrames(WORDS), faults: [undefined, fault] });
  const stream = generate({ edge: gateway.url, body: {}, limits: QUICK });
  for await (const item of stream) if (item.type === "delta") break;
  assert.equal(stream.state, "CANCELLED");
  await assert.rejects(stream.result(), { code: "aborted", text: "one" });
  await until(() => gateway.requests[1].closed);
  assert.equal(gateway.requests.length, 2);
});
