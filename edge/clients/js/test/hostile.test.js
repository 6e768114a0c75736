/** Servers, proxies and clocks that do what they should not: nothing is lost, nothing repeated, nothing without a bound. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

import { generate, memoryStore, resumableFetch, ticketFor } from "../src/index.js";
import { beginning } from "../src/progress.js";
import { systemClock } from "../src/clock.js";
import { DIALECTS, GENERATION, LATE_MS, QUICK, bytesTo, frame, idOf, lateClock, nativeFrames, played, until } from "./played.js";

const WORDS = ["one", " two", " three"];
const { path, frames } = DIALECTS["openai.chat"];
const FRAMES = frames(WORDS);
const WHOLE = FRAMES.join("");
const NATIVE = nativeFrames(WORDS);
const CALL = { method: "POST", body: JSON.stringify({ stream: true }), headers: { authorization: "Bearer key-1", "x-api-key": "key-1" } };
const refusal = (status, headers = {}) => ({ status, headers, body: { error: { code: "real", message: "the real reason" } } });
const keys = ({ requests }) => requests.map(({ headers }) => headers["idempotency-key"]);

for (const how of ["reset", "fin", "hang"]) {
  test(`a refusal that is cut within its body by ${how} is asked for again, under the same key, and goes up whole`, async (t) => {
    for (const status of [401, 429, 503]) {
      const answer = refusal(status, { "x-should-retry": "false" });
      const gateway = await played(t, { frames: FRAMES, faults: [{ answer: { ...answer, how } }, { answer }] });
      const options = { fetch: gateway.fetch, clock: lateClock(gateway.silent), limits: { ...QUICK, idleMs: LATE_MS } };
      const response = await resumableFetch(options)(gateway.url + path, CALL);
      assert.deepEqual([response.status, await response.json()], [status, answer.body]);
      assert.equal(new Set(keys(gateway)).size, 1);
      assert.equal(gateway.requests.length, 2);
      gateway.stop();
    }
  });
}

test("a refusal that never comes whole goes up by its head, after a few tries, in a form that every SDK reads", async (t) => {
  const answer = { ...refusal(503, { "x-should-retry": "true", "x-request-id": "r-7" }), how: "reset" };
  const gateway = await played(t, { frames: FRAMES, faults: Array.from({ length: 9 }, () => ({ answer })) });
  const response = await resumableFetch({ limits: QUICK })(gateway.url + path, CALL);
  const { type, error } = await response.json();
  assert.deepEqual([response.status, type, error.code], [503, "error", "refusal_cut"]);
  assert.match(error.message, /HTTP 503/);
  assert.equal(response.headers.get("x-should-retry"), "true");
  assert.equal(response.headers.get("x-request-id"), "r-7");
  assert.equal(gateway.requests.length, 4);
});

test("a refusal that was cut is not asked for before its Retry-After; a long one is the SDK's to wait for", async (t) => {
  const soon = refusal(429, { "retry-after": "0.1" });
  const gateway = await played(t, { frames: FRAMES, faults: [{ answer: { ...soon, how: "reset" } }, { answer: soon }] });
  assert.equal((await (await resumableFetch({ limits: QUICK })(gateway.url + path, CALL)).json()).error.code, "real");
  const [first, second] = gateway.requests;
  assert.ok(second.atMs - first.atMs > 98, "a timer may be a millisecond early");
  gateway.faults.push({ answer: { ...refusal(429, { "retry-after": "3600" }), how: "reset" } });
  const response = await resumableFetch({ limits: QUICK })(gateway.url + path, CALL);
  assert.deepEqual([response.status, response.headers.get("retry-after")], [429, "3600"]);
  assert.equal((await response.json()).error.code, "refusal_cut");
  assert.equal(gateway.requests.length, 3);
});

test("a refusal without end is read to its bound, once", async (t) => {
  let pulled = 0;
  const endless = async () => {
    const pull = (to) => void to.enqueue(new Uint8Array((pulled += 1) && 1_000));
    return new Response(new ReadableStream({ pull }), { status: 500, headers: { "content-type": "text/html" } });
  };
  const response = await resumableFetch({ fetch: endless, limits: { ...QUICK, refusalBytesMax: 10_000 } })("http://edge.test" + path, CALL);
  assert.deepEqual([response.status, response.headers.get("content-type")], [500, "application/json"]);
  assert.match((await response.json()).error.message, /above 10000 bytes/);
  assert.ok(pulled < 20, `${pulled} pieces`);
});

test("iterator: a 401 in the middle of a resume ends it, with what it says, also where it comes whole at the second try only", async (t) => {
  const answer = refusal(401);
  const faults = [undefined, { after: bytesTo(NATIVE, 2), how: "reset" }, { answer: { ...answer, how: "fin" } }, { answer }];
  const gateway = await played(t, { frames: NATIVE, faults });
  const read = generate({ edge: gateway.url, body: {}, limits: QUICK }).result();
  await assert.rejects(read, { name: "StreamError", code: "real", status: 401, message: "the real reason", text: "one" });
  assert.equal(gateway.requests.length, 4);
});

const page = { answer: { status: 200, headers: { "content-type": "text/html; charset=utf-8" }, body: "<html>sign in</html>" } };
const READERS = {
  transport: async (url, options) => (await resumableFetch(options)(url + path, CALL)).text(),
  iterator: async (url, options) => (await generate({ edge: url, apiKey: "key-1", body: {}, ...options }).result()).text,
};
const SAID = { transport: WHOLE, iterator: WORDS.join("") };

for (const [name, read] of Object.entries(READERS)) {
  const script = { frames: name === "iterator" ? NATIVE : FRAMES };
  const begun = name === "iterator" ? [undefined] : [];

  test(`${name}: a page with status 200 in place of a call's answer is no answer: the call is sent again`, async (t) => {
    const gateway = await played(t, { ...script, faults: [page, page] });
    assert.equal(await read(gateway.url, { limits: QUICK }), SAID[name]);
    assert.equal(new Set(keys(gateway).slice(0, 3)).size, 1);
    gateway.faults.push(...Array.from({ length: 9 }, () => page));
    await assert.rejects(read(gateway.url, { limits: QUICK }), { code: "not_an_edge", message: /200 text\/html/ });
    assert.equal(gateway.faults.length, 5);
  });

  test(`${name}: a redirect is not followed: the key goes nowhere else, and the way it points is told`, async (t) => {
    const other = await played(t, { frames: FRAMES });
    const away = (status) => ({ answer: { status, headers: { location: `${other.url}/login?back=a-ticket` }, body: "" } });
    const passing = await played(t, { ...script, faults: [away(307), ...begun, { after: bytesTo(script.frames, 2), how: "reset" }, away(302)] });
    assert.equal(await read(passing.url, { limits: QUICK }), SAID[name], "a portal that lets one through in the end");
    const lasting = await played(t, { ...script, faults: Array.from({ length: 9 }, () => away(308)) });
    await assert.rejects(read(lasting.url, { limits: QUICK }), { code: "not_an_edge", message: new RegExp(`a redirect to ${other.url}/login,`) });
    assert.equal(lasting.requests.length, 4);
    assert.equal(other.requests.length, 0);
  });

  test(`${name}: ids that go backwards bring nothing twice, and a stream of old events without end is left in time`, async (t) => {
    const old = [script.frames[1], script.frames[0], script.frames[1]].join("");
    const back = { after: bytesTo(script.frames, 2), tail: old, how: "end" };
    const gateway = await played(t, { ...script, faults: [...begun, back] });
    assert.equal(await read(gateway.url, { limits: QUICK }), SAID[name]);

    let closed = false;
    const replaying = async (url, init) => {
      const { method, headers } = new Request(url, init);
      if (method === "POST" && headers.get("prefer")) return new Response("{}", { status: 202, headers: { "x-generation-id": GENERATION } });
      const said = new TextEncoder().encode(script.frames.slice(0, 2).join(""));
      const body = new ReadableStream({ pull: (to) => to.enqueue(said), cancel: () => void (closed = true) });
      init.signal.addEventListener("abort", () => (closed = true));
      return new Response(body, { headers: { "content-type": "text/event-stream", "x-generation-id": GENERATION } });
    };
    let turns = 0;
    const clock = { ...systemClock, nowMs: () => (turns += 1) };
    const asked = read("http://edge.test", { fetch: replaying, clock, limits: { ...QUICK, readMs: 5_000 } });
    await assert.rejects(asked, { code: "read_timeout" });
    await until(() => closed);
  });

  test(`${name}: a line without end is left at its bound`, async (t) => {
    const gateway = await played(t, { ...script, faults: [...begun, { after: bytesTo(script.frames, 1), tail: `data: ${"x".repeat(5_000)}`, how: "hang" }] });
    await assert.rejects(read(gateway.url, { limits: { ...QUICK, frameCharsMax: 4_000 } }), { code: "frame_too_large" });
    await until(() => gateway.requests.at(-1).closed || gateway.requests.at(-1).url.endsWith("/cancel"));
  });

  test(`${name}: a stream that somebody compressed is read all the same, and broken compression is a cut`, async (t) => {
    const packed = gzipSync(script.frames.join(""));
    const headers = { "content-type": "text/event-stream", "content-encoding": "gzip", "x-generation-id": GENERATION };
    const broken = Buffer.concat([packed.subarray(0, 40), Buffer.alloc(60, 0xff)]);
    const answers = [broken, packed].map((body) => ({ answer: { status: 200, headers, body } }));
    const gateway = await played(t, { ...script, faults: [...begun, ...answers] });
    assert.equal(await read(gateway.url, { limits: QUICK }), SAID[name]);
    assert.equal(gateway.requests.length, begun.length + 2);
  });

  test(`${name}: a wall clock that jumps shortens no time-out, and makes no Retry-After longer than the session`, async (t) => {
    const later = { answer: { status: 503, headers: { "x-should-retry": "true", "retry-after": new Date(0).toUTCString() } } };
    const cut = { after: bytesTo(script.frames, 2), how: "reset" };
    const gateway = await played(t, { ...script, faults: [...begun, cut, later, later] });
    let jump = 0;
    const clock = { ...systemClock, wallMs: () => Date.now() + (jump = jump === 0 ? 10 ** 12 : 0) };
    assert.equal(await read(gateway.url, { clock, limits: QUICK }), SAID[name]);
    const future = { answer: { ...later.answer, headers: { "x-should-retry": "true", "retry-after": new Date(10 ** 13).toUTCString() } } };
    gateway.faults.push(...begun, cut, future);
    await assert.rejects(read(gateway.url, { limits: QUICK }), { code: "read_timeout" });
  });
}

test("iterator: an event that nobody can read is said, with its id and the text so far", async (t) => {
  for (const data of ["not JSON", "[".repeat(100_000), "7", '{"parts": [null]}', '{"parts": [{"type": "text", "text": 7}]}']) {
    const gateway = await played(t, { frames: [...NATIVE.slice(0, 2), frame(2, data, "delta"), ...NATIVE.slice(3)] });
    const read = generate({ edge: gateway.url, body: {}, limits: QUICK }).result();
    await assert.rejects(read, { name: "StreamError", code: "unreadable_event", text: "one", generationId: GENERATION }, data.slice(0, 50));
    gateway.stop();
  }
});

test("a ticket that does not come says why: refused, cut, a page, a redirect, nobody", async (t) => {
  const html = { headers: { "content-type": "text/html" } };
  const cut = () => new ReadableStream({ pull: (to) => to.error(new TypeError("terminated")) });
  const answers = [
    [() => new Response('{"error": {"code": "forbidden", "message": "not yours"}}', { status: 403 }), { code: "forbidden", status: 403 }],
    [() => new Response(cut(), { status: 403 }), { code: "unreachable", message: /terminated/ }],
    [() => new Response("<html>", html), { code: "not_an_edge", message: /200 text\/html/ }],
    [() => new Response(null, { status: 307, headers: { location: "http://elsewhere.test/" } }), { code: "not_an_edge", message: /redirect to http:\/\/elsewhere/ }],
    [() => Promise.reject(new TypeError("fetch failed")), { code: "unreachable", message: /fetch failed/ }],
  ];
  for (const [answer, expected] of answers) {
    const asked = ticketFor({ edge: "http://edge.test", generationId: GENERATION, apiKey: "key-1", fetch: async (...request) => {
      assert.equal(request[1].redirect, "manual");
      return answer();
    } });
    await assert.rejects(asked, { name: "StreamError", generationId: GENERATION, ...expected });
  }
});

test("an answer in one piece has a bound, too", async (t) => {
  const gateway = await played(t, { frames: [], result: JSON.stringify("x".repeat(9_000)) });
  const call = { ...CALL, body: "{}" };
  await assert.rejects(resumableFetch({ limits: { ...QUICK, answerBytesMax: 8_000 } })(gateway.url + path, call), { code: "answer_too_large" });
  assert.equal(gateway.requests.length, 1);
  const said = await played(t, { frames: nativeFrames(Array.from({ length: 9 }, () => "x".repeat(100))) });
  const read = generate({ edge: said.url, body: {}, limits: { ...QUICK, answerBytesMax: 500 } }).result();
  await assert.rejects(read, { code: "answer_too_large", text: "x".repeat(500) });
});

test("sessions that a wrong clock dated into the future do not push out those that begin after it was set right", async () => {
  const store = memoryStore({ keep: 2 });
  const begun = (session, startedMs) => ({ ...beginning({ session, base: "http://edge.test", startedMs }), seq: 0, lastEventId: idOf(0) });
  const wallMs = Date.now();
  for (const [session, startedMs] of [["a", wallMs + 10 ** 11], ["b", wallMs + 10 ** 11], ["c", wallMs - 5], ["d", wallMs]]) {
    await store.save(begun(session, startedMs), [{ id: idOf(0), data: "x" }]);
    assert.equal((await store.load(session))?.frames.length, 1, session);
  }
  assert.deepEqual((await store.list()).map(({ session }) => session), ["d", "c"]);
});
