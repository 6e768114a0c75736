/** The transport against a played gateway: what an SDK above it sees, and what the gateway is asked. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { resumableFetch } from "../src/index.js";
import { DIALECTS, GENERATION, LATE_MS, QUICK, bytesTo, frame, idOf, lateClock, played, until } from "./played.js";

const WORDS = ["Grüße", " – 你好", " 👋", " end"];
const CALL = { method: "POST", body: JSON.stringify({ stream: true }), headers: { authorization: "Bearer key-1" } };

for (const [dialect, { path, frames }] of Object.entries(DIALECTS)) {
  const whole = frames(WORDS).join("");

  test(`a stream of ${dialect} that is cut anywhere is the uncut stream, byte for byte`, async (t) => {
    for (const [at, how] of /** @type {const} */ (["reset", "fin", "end"]).entries()) {
      for (let after = 1 + 12 * at; after < Buffer.byteLength(whole) + 40; after += 37) {
        const gateway = await played(t, { frames: frames(WORDS), faults: [{ after, how }] });
        const response = await resumableFetch({ limits: QUICK })(gateway.url + path, CALL);
        assert.equal(await response.text(), whole, `${how} after ${after}`);
        const [first, ...again] = gateway.requests;
        assert.equal(first.method, "POST");
        for (const { method, url, headers } of again) {
          assert.equal(`${method} ${url}`, `GET /v1/generations/${GENERATION}/events?dialect=${dialect}`);
          assert.equal(headers.authorization, "Bearer key-1");
        }
        gateway.stop();
      }
    }
  });
}

const { path, frames } = DIALECTS["openai.chat"];
const WHOLE = frames(WORDS).join("");

test("a stream that is cut again and again, without a new event between, still comes whole", async (t) => {
  const cuts = Array.from({ length: 12 }, (_, at) => ({ after: at * 60, how: /** @type {const} */ ("reset") }));
  const gateway = await played(t, { frames: frames(WORDS), faults: cuts });
  const response = await resumableFetch({ limits: QUICK })(gateway.url + path, CALL);
  assert.equal(await response.text(), WHOLE);
});

test("it goes on behind the last whole event, under the same auth and the caller's own headers", async (t) => {
  const cut = bytesTo(frames(WORDS), 1) + 30;
  const gateway = await played(t, { frames: frames(WORDS), faults: [{ after: cut, how: "reset" }] });
  const headers = { "x-api-key": "key-2", "x-client-id": "shop", "content-type": "application/json", accept: "*/*" };
  await (await resumableFetch({ limits: QUICK })(gateway.url + path, { ...CALL, headers })).text();
  const { headers: resumed } = gateway.requests[1];
  assert.equal(resumed["last-event-id"], idOf(1));
  assert.equal(resumed["x-api-key"], "key-2");
  assert.equal(resumed["x-client-id"], "shop");
  assert.equal(resumed.accept, "text/event-stream");
  assert.equal(resumed["content-type"], undefined);
  assert.equal(resumed["idempotency-key"], undefined);
});

test("silence is a cut: it reconnects after the idle time", async (t) => {
  const gateway = await played(t, { frames: frames(WORDS), faults: [{ after: 200, how: "hang" }] });
  const options = { fetch: gateway.fetch, clock: lateClock(gateway.silent), limits: { ...QUICK, idleMs: LATE_MS } };
  const response = await resumableFetch(options)(gateway.url + path, CALL);
  assert.equal(await response.text(), WHOLE);
  assert.equal(gateway.requests.length, 2);
  assert.ok(gateway.requests[0].closed);
});

test("nothing is asked behind the terminal, whatever becomes of the connection then", async (t) => {
  for (const how of /** @type {const} */ (["reset", "fin", "end", "hang"])) {
    const gateway = await played(t, { frames: frames(WORDS), faults: [{ after: 1e6, how }] });
    const response = await resumableFetch({ limits: QUICK })(gateway.url + path, CALL);
    assert.equal(await response.text(), WHOLE);
    assert.equal(gateway.requests.length, 1, how);
    gateway.stop();
  }
});

test("an error of the generation is its terminal: the SDK gets the event, and nothing is resumed", async (t) => {
  const failed = [frames(WORDS)[0], frame(2, { error: { code: "stall_timeout", message: "silent" } })];
  const gateway = await played(t, { frames: failed, faults: [{ after: 1e6, how: "reset" }] });
  const response = await resumableFetch({ limits: QUICK })(gateway.url + path, CALL);
  assert.equal(await response.text(), failed.join(""));
  assert.equal(gateway.requests.length, 1);
});

test("an error without a number that says the log is away is hidden, and the stream goes on", async (t) => {
  const tail = frame(null, { error: { code: "log_unavailable", message: "away" } });
  const gateway = await played(t, { frames: frames(WORDS), faults: [{ after: bytesTo(frames(WORDS), 2), tail, how: "end" }] });
  const response = await resumableFetch({ limits: QUICK })(gateway.url + path, CALL);
  assert.equal(await response.text(), WHOLE);
  assert.equal(gateway.requests.length, 2);
});

test("any other error without a number ends the stream: what follows is held nowhere", async (t) => {
  const tail = frame(null, { error: { code: "resume_expired", message: "gone" } });
  const gateway = await played(t, { frames: frames(WORDS), faults: [{ after: bytesTo(frames(WORDS), 2), tail, how: "end" }] });
  const response = await resumableFetch({ limits: QUICK })(gateway.url + path, CALL);
  await assert.rejects(response.text(), { name: "StreamError", code: "resume_expired", generationId: GENERATION });
  assert.equal(gateway.requests.length, 1);
});

test("a call that nobody answered is sent again with the same key, and only a few times", async (t) => {
  const gateway = await played(t, { frames: frames(WORDS), faults: [{ noAnswer: true }, { noAnswer: true }] });
  const response = await resumableFetch({ limits: QUICK })(gateway.url + path, CALL);
  assert.equal(await response.text(), WHOLE);
  const keys = gateway.requests.map(({ headers }) => headers["idempotency-key"]);
  assert.equal(keys.length, 3);
  assert.equal(new Set(keys).size, 1);
  gateway.faults.push(...Array.from({ length: 9 }, () => ({ noAnswer: true })));
  await assert.rejects(resumableFetch({ limits: QUICK })(gateway.url + path, CALL), { code: "unreachable", message: /nobody answers: \w/ });
  assert.equal(gateway.requests.length, 3 + 4);
});

/** A call, its state changes, and the text that comes. */
async function calling(t, script, options = {}, call = CALL) {
  const gateway = await played(t, { frames: frames(WORDS), ...script });
  const states = [];
  const onState = ({ state, reason }) => states.push(reason === undefined ? state : `${state} ${reason}`);
  const fetched = resumableFetch({ onState, ...options, limits: { ...QUICK, ...options.limits } });
  return { gateway, states, fetched, response: await fetched(gateway.url + path, call) };
}

test("the reader's own abort is never resumed, and cancels the generation once", async (t) => {
  const abort = new AbortController();
  const fault = { after: bytesTo(frames(WORDS), 2), how: /** @type {const} */ ("hang") };
  const { gateway, states, response } = await calling(t, { faults: [fault] }, {}, { ...CALL, signal: abort.signal });
  const reader = response.body.getReader();
  await reader.read();
  const reason = new Error("enough");
  abort.abort(reason);
  await assert.rejects(async () => { for (;;) if ((await reader.read()).done) return; }, reason);
  await until(() => gateway.requests.length === 2 && gateway.requests[0].closed);
  const [, { method, url, headers, body }] = gateway.requests;
  assert.equal(`${method} ${url}`, `POST /v1/generations/${GENERATION}/cancel`);
  assert.equal(headers.authorization, "Bearer key-1");
  assert.deepEqual(JSON.parse(body), { mode: "soft", reason: "user_abort" });
  assert.deepEqual(states, ["STREAMING", "CANCELLED aborted"]);
});

test("a body that its reader lets go of is an abort, too; one that was read to the end is not", async (t) => {
  const one = await calling(t, { faults: [{ after: 150, how: "hang" }] });
  await one.response.body.cancel();
  await until(() => one.gateway.requests.some(({ url }) => url.endsWith("/cancel")));
  const other = await calling(t, {});
  const reader = other.response.body.getReader();
  while (!(await reader.read()).done) continue;
  await reader.cancel();
  assert.equal(other.gateway.requests.length, 1);
});

test("an abort between two tries ends the waiting", async (t) => {
  const abort = new AbortController();
  const faults = [{ after: 150, how: "reset" }, { answer: { status: 503, headers: { "x-should-retry": "true", "retry-after": "30" } } }];
  const { gateway, states, response } = await calling(t, { faults }, {}, { ...CALL, signal: abort.signal });
  const text = response.text();
  await until(() => states.at(-1) === "PAUSED 503");
  abort.abort();
  await assert.rejects(text, { name: "AbortError" });
  await until(() => gateway.requests.length === 3);
  assert.ok(gateway.requests[2].url.endsWith("/cancel"));
});

test("without cancelOnAbort an abort leaves the generation to the grace time", async (t) => {
  const abort = new AbortController();
  const faults = [{ after: 150, how: "hang" }];
  const { gateway, response } = await calling(t, { faults }, { cancelOnAbort: false }, { ...CALL, signal: abort.signal });
  abort.abort();
  await assert.rejects(response.text(), { name: "AbortError" });
  await until(() => gateway.requests[0].closed);
  assert.equal(gateway.requests.length, 1);
});

test("a refusal goes up as it came: the SDK has its own mind about it", async (t) => {
  for (const status of [400, 401, 404, 422, 429, 500, 503]) {
    const body = { error: { code: "no", message: "no" } };
    const answer = { status, headers: { "x-should-retry": "true", "retry-after": "1", "x-generation-id": GENERATION }, body };
    const { gateway, response } = await calling(t, { faults: [{ answer }] });
    assert.equal(response.status, status);
    assert.deepEqual(await response.json(), body);
    assert.equal(response.headers.get("retry-after"), "1");
    assert.equal(gateway.requests.length, 1);
  }
});

test("a second try of the SDK's own has the key of the first; a new call of the same text has not", async (t) => {
  const answer = { status: 503, body: {} };
  const { gateway, fetched } = await calling(t, { faults: [{ answer }] });
  const again = { ...CALL, headers: { ...CALL.headers, "x-stainless-retry-count": "1" } };
  await (await fetched(gateway.url + path, again)).text();
  await (await fetched(gateway.url + path, CALL)).text();
  const [first, second, third] = gateway.requests.map(({ headers }) => headers["idempotency-key"]);
  assert.equal(second, first);
  assert.notEqual(third, first);
});

const page = { answer: { status: 200, headers: { "content-type": "text/html" }, body: "<html>sign in</html>" } };

test("another generation's stream, as a broken cache would give it, is not taken for ours", async (t) => {
  const foreign = { answer: { status: 200, headers: { "x-generation-id": "other", "content-type": "text/event-stream" }, body: frame(2, "foreign") } };
  const { gateway, states, response } = await calling(t, { faults: [{ after: 170, how: "reset" }, foreign] });
  assert.equal(await response.text(), WHOLE);
  assert.equal(gateway.requests.length, 3);
  assert.ok(states.includes("PAUSED foreign"));
});

test("a proxy's page in place of a resumed stream is a cut, whatever its status says", async (t) => {
  const { gateway, states, response } = await calling(t, { faults: [{ after: 170, how: "reset" }, page, page] });
  assert.equal(await response.text(), WHOLE);
  assert.equal(gateway.requests.length, 4);
  assert.equal(states.filter((state) => state === "PAUSED foreign").length, 2);
});

test("a browser's fetch is called as a function, not as a method of something", async (t) => {
  async function strict(...asked) {
    assert.equal(this, undefined);
    return fetch(...asked);
  }
  const { response } = await calling(t, { faults: [{ after: 170, how: "reset" }] }, { fetch: strict });
  assert.equal(await response.text(), WHOLE);
});

test("a key of the caller's own is kept", async (t) => {
  const headers = { ...CALL.headers, "Idempotency-Key": "order-7" };
  const { gateway } = await calling(t, {}, {}, { ...CALL, headers });
  assert.equal(gateway.requests[0].headers["idempotency-key"], "order-7");
});

test("what is no generation passes through: other paths, other methods, other servers' answers", async (t) => {
  const gateway = await played(t, { frames: [], result: "[1]", faults: [] });
  const fetched = resumableFetch({ limits: QUICK });
  assert.equal(await (await fetched(new URL("/v1/models", gateway.url))).text(), "[1]");
  assert.equal(gateway.requests[0].headers["idempotency-key"], undefined);
  const plain = async () => new Response("data: x\n\n", { headers: { "content-type": "text/event-stream" } });
  const passed = await resumableFetch({ fetch: plain })("http://other.test/v1/messages", { ...CALL });
  assert.equal(await passed.text(), "data: x\n\n");
});

test("a Request can be sent again like an address with its options", async (t) => {
  const gateway = await played(t, { frames: frames(WORDS), faults: [{ noAnswer: true }, { after: 170, how: "reset" }] });
  const response = await resumableFetch({ limits: QUICK })(new Request(gateway.url + path, CALL));
  assert.equal(await response.text(), WHOLE);
  assert.equal(gateway.requests[1].body, CALL.body);
  assert.equal(gateway.requests[2].headers.authorization, "Bearer key-1");
});

test("an answer that is no stream and was cut is fetched as the generation's result", async (t) => {
  const result = JSON.stringify({ choices: [{ message: { content: "whole" } }] });
  const running = { answer: { status: 202, headers: { "x-generation-id": GENERATION }, body: { state: "running" } } };
  const gateway = await played(t, { frames: [], result, faults: [{ after: 9, how: "reset" }, running, { noAnswer: true }, page, running] });
  const response = await resumableFetch({ limits: QUICK })(gateway.url + path, { ...CALL, body: "{}" });
  assert.equal(await response.text(), result);
  assert.equal(response.headers.get("content-type"), "application/json");
  assert.equal(gateway.requests.at(-1).url, `/v1/generations/${GENERATION}/result`);
});

test("a look at a response that was cut is looked at again, not waited for", async (t) => {
  const result = JSON.stringify({ id: "resp_1", status: "in_progress" });
  const gateway = await played(t, { frames: [], result, faults: [{ after: 9, how: "reset" }] });
  const response = await resumableFetch({ limits: QUICK })(`${gateway.url}/v1/responses/resp_1`, { headers: CALL.headers });
  assert.equal(await response.text(), result);
  assert.deepEqual(gateway.requests.map(({ url }) => url), ["/v1/responses/resp_1", "/v1/responses/resp_1"]);
});

test("a stream that is read from the middle, and cut before its first event, begins there again", async (t) => {
  const gateway = await played(t, { frames: frames(WORDS), faults: [{ after: 5, how: "reset" }, { after: 170, how: "reset" }] });
  const headers = { ...CALL.headers, "last-event-id": idOf(2) };
  const response = await resumableFetch({ limits: QUICK })(`${gateway.url}/v1/generations/${GENERATION}/events?dialect=openai.chat`, { headers });
  assert.equal(await response.text(), frames(WORDS).slice(2).join(""));
  assert.deepEqual(gateway.requests.map(({ headers: asked }) => asked["last-event-id"]), [idOf(2), idOf(2), idOf(3)]);
});

test("the result of a generation that failed goes up with its own status", async (t) => {
  const headers = { "x-generation-id": GENERATION, "x-should-retry": "false" };
  const failed = { answer: { status: 504, headers, body: { error: { code: "stall_timeout" } } } };
  const { response } = await calling(t, { frames: [], result: "{}", faults: [{ after: 1, how: "fin" }, failed] });
  assert.equal(response.status, 504);
  assert.equal((await response.json()).error.code, "stall_timeout");
});

test("other addresses of the gateway are taken in turn, also where one takes the connection and says nothing", async (t) => {
  const [one, dead, frozen] = await Promise.all([
    played(t, { frames: frames(WORDS), faults: [{ after: 170, how: "reset" }] }),
    played(t, { frames: frames(WORDS), faults: [{ noAnswer: true }] }),
    played(t, { frames: frames(WORDS), faults: [{ mute: true }] }),
  ]);
  const limits = { ...QUICK, idleMs: LATE_MS };
  let asked = 0;
  const counted = (...request) => {
    asked += 1;
    return fetch(...request);
  };
  const options = { limits, fetch: counted, edges: [dead.url, `${frozen.url}/`], clock: lateClock(() => frozen.silent() && asked === 3) };
  const response = await resumableFetch(options)(one.url + path, CALL);
  assert.equal(await response.text(), WHOLE);
  assert.deepEqual([one, dead, frozen].map(({ requests }) => requests.length), [2, 1, 1]);
});

test("a reader that does not read holds the gateway back", async (t) => {
  const many = frames(Array.from({ length: 4_000 }, () => "x".repeat(1_000)));
  let taken = 0;
  const counted = async (...asked) => {
    const response = await fetch(...asked);
    const counting = new TransformStream({ transform: (piece, to) => { taken += piece.byteLength; to.enqueue(piece); } }, undefined, { highWaterMark: 0 });
    return new Response(response.body.pipeThrough(counting), response);
  };
  const { response } = await calling(t, { frames: many }, { fetch: counted });
  const reader = response.body.getReader();
  await reader.read();
  await new Promise((resolve) => setImmediate(resolve));
  assert.ok(taken < 512 * 1024, `${taken} bytes were read`);
  let got = 0;
  for (let at = await reader.read(); !at.done; at = await reader.read()) got += at.value.byteLength;
  assert.ok(got > 4_000_000);
});
