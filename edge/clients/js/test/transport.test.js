/** The transport against a played gateway: what an SDK above it sees, and what the gateway is asked. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { resumableFetch } from "../src/index.js";
import { DIALECTS, GENERATION, QUICK, bytesTo, frame, idOf, played } from "./played.js";

const WORDS = ["Grüße", " – 你好", " 👋", " end"];
const CALL = { method: "POST", body: JSON.stringify({ stream: true }), headers: { authorization: "Bearer key-1" } };

for (const [dialect, { path, frames }] of Object.entries(DIALECTS)) {
  const whole = frames(WORDS).join("");

  test(`a stream of ${dialect} that is cut at any byte is the uncut stream, byte for byte`, async (t) => {
    for (const how of /** @type {const} */ (["reset", "fin", "end"])) {
      for (let after = 1; after < Buffer.byteLength(whole) + 40; after += 11) {
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

test("silence is a cut: it reconnects after the idle time, and heartbeats are no silence", async (t) => {
  const gateway = await played(t, { frames: frames(WORDS), faults: [{ after: 200, how: "hang" }] });
  const response = await resumableFetch({ limits: { ...QUICK, idleMs: 60 } })(gateway.url + path, CALL);
  assert.equal(await response.text(), WHOLE);
  assert.equal(gateway.requests.length, 2);
  assert.ok(gateway.requests[0].closed);
});

test("nothing is asked behind the terminal, whatever becomes of the connection then", async (t) => {
  for (const how of /** @type {const} */ (["reset", "fin", "end", "hang"])) {
    const gateway = await played(t, { frames: frames(WORDS), faults: [{ after: 1e6, how }] });
    const response = await resumableFetch({ limits: { ...QUICK, idleMs: 60 } })(gateway.url + path, CALL);
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
  await assert.rejects(resumableFetch({ limits: QUICK })(gateway.url + path, CALL), { code: "unreachable" });
  assert.equal(gateway.requests.length, 3 + 4);
});
