/** The iterator: what it hands over, when, and what it says when there is no proper end. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { GenerationError, attach, eventsUrl, generate, memoryStore, resume, ticketFor } from "../src/index.js";
import { Acks } from "../src/acks.js";
import { crc32 } from "../src/cursor.js";
import { LIMITS } from "../src/limits.js";
import { GENERATION, LATE_MS, QUICK, bytesTo, frame, idOf, lateClock, nativeFrames, played, until } from "./played.js";

const WORDS = ["one", " two", " three", " four"];
const FRAMES = nativeFrames(WORDS);
const delta = (seq, ...parts) => frame(seq, { seq, parts }, parts.some(({ type }) => type === "tool_call") ? "tool_call_delta" : "delta");
const call = (tool_index, text, more = {}) => ({ type: "tool_call", tool_index, text, ...more });
const end = (seq, fields) => frame(seq, { seq, ...fields }, "message_end");

/** A generation of these frames, begun by the iterator. */
async function generating(t, frames, options = {}, faults = []) {
  const gateway = await played(t, { frames, faults: [undefined, ...faults] });
  return { gateway, stream: generate({ edge: gateway.url, apiKey: "key-1", body: { model: "m" }, limits: QUICK, ...options }) };
}

async function all(stream) {
  const items = [];
  for await (const item of stream) items.push(item);
  return items;
}

test("every event that says something is one item, with its seq and id, over any number of cuts", async (t) => {
  const cuts = [1, 2, 3, 4].map((count) => ({ after: bytesTo(FRAMES, 1) + count, how: "reset" }));
  const { gateway, stream } = await generating(t, FRAMES, {}, cuts);
  const items = await all(stream);
  assert.deepEqual(items.map(({ type }) => type), ["start", "delta", "delta", "delta", "delta", "end"]);
  assert.deepEqual(items.map(({ seq }) => seq), [0, 1, 2, 3, 4, 5]);
  assert.deepEqual(items.map(({ id }) => id), items.map(({ seq }) => idOf(seq)));
  assert.equal(items.at(-1).text, WORDS.join(""));
  const [begun] = gateway.requests;
  assert.equal(begun.headers.prefer, "respond-async");
  assert.equal(begun.headers["x-tokentrail-on-disconnect"], "grace");
  assert.ok(gateway.requests.every(({ headers }) => headers.authorization === "Bearer key-1"));
});

test("a tool call is handed over once, with the end, and only whole", async (t) => {
  const frames = [
    FRAMES[0],
    delta(1, call(0, "", { tool_call_id: "call_a", name: "weather" })),
    delta(2, call(0, '{"city":'), call(1, '{"x": 1}', { tool_call_id: "call_b", name: "other" })),
    delta(3, call(0, '"Zürich"}')),
    delta(4, call(2, "", { tool_call_id: "call_c", name: "bare" })),
    delta(5, call(3, '{"cut": ', { tool_call_id: "call_d", name: "torn" })),
    end(6, { finish_reason: "tool_call" }),
  ];
  const { stream } = await generating(t, frames, {}, [{ after: bytesTo(frames, 3), how: "fin" }]);
  const items = await all(stream);
  assert.deepEqual(items.map(({ type }) => type), ["start", "end"]);
  const calls = items[1].toolCalls.map(({ id, name, input }) => [id, name, input]);
  assert.deepEqual(calls, [["call_a", "weather", { city: "Zürich" }], ["call_b", "other", { x: 1 }], ["call_c", "bare", {}]]);
});

test("a tool call that was cut short by the output limit is not handed over, whatever it looks like", async (t) => {
  const frames = [FRAMES[0], delta(1, call(0, "{}", { name: "pay" })), end(2, { finish_reason: "length" })];
  const { stream } = await generating(t, frames);
  assert.deepEqual((await stream.result()).toolCalls, []);
});

test("of two choices each has its own text, tool calls and end", async (t) => {
  const text = (choice_index, words) => ({ type: "text", choice_index, text: words });
  const frames = [
    FRAMES[0],
    delta(1, { type: "text", text: "a" }, text(1, "b")),
    delta(2, call(0, "{}", { name: "first" }), call(0, "{}", { name: "second", choice_index: 1 })),
    end(3, { finish_reason: "tool_call", choices: [{ finish_reason: "tool_call" }, { choice_index: 1, finish_reason: "length" }] }),
  ];
  const { stream } = await generating(t, frames);
  const { choices, toolCalls } = await stream.result();
  assert.deepEqual(choices, ["a", "b"]);
  assert.deepEqual(toolCalls.map(({ name, choice }) => [name, choice]), [["first", 0]]);
});

test("JSON is given behind a proper end only", async (t) => {
  const said = (finish_reason) => [FRAMES[0], delta(1, { type: "text", text: '{"a": 1}' }), end(2, { finish_reason })];
  assert.deepEqual(await (await generating(t, said("stop"))).stream.json(), { a: 1 });
  await assert.rejects((await generating(t, said("length"))).stream.json(), /not whole: it ended with length/);
  await assert.rejects((await generating(t, FRAMES)).stream.json(), SyntaxError);
});

test("an error of the generation completes the session, and carries the text so far", async (t) => {
  const frames = [...FRAMES.slice(0, 3), frame(3, { seq: 3, code: "overloaded", message: "too much", retryable: true, retry_after_ms: 20 }, "generation_error")];
  const { gateway, stream } = await generating(t, frames);
  const items = [];
  const reading = (async () => { for await (const item of stream) items.push(item); })();
  const expected = { name: "GenerationError", code: "overloaded", text: "one two", retryable: true, retryAfterMs: 20, generationId: GENERATION };
  await assert.rejects(reading, expected);
  await assert.rejects(stream.result(), GenerationError);
  assert.equal(items.length, 3);
  assert.equal(stream.state, "COMPLETED");
  assert.equal(gateway.requests.length, 2);
});

test("an error of the reading carries the text so far, too", async (t) => {
  const gone = { answer: { status: 410, body: { error: { code: "resume_expired", message: "gone" } } } };
  const { stream } = await generating(t, FRAMES, {}, [{ after: bytesTo(FRAMES, 3), how: "reset" }, gone]);
  await assert.rejects(stream.result(), { code: "resume_expired", status: 410, text: "one two" });
  assert.equal(stream.state, "CANCELLED");
});

test("a cancelled generation has an end that says so", async (t) => {
  const { stream } = await generating(t, [...FRAMES.slice(0, 2), end(2, { finish_reason: "cancelled" })]);
  assert.equal((await stream.result()).finishReason, "cancelled");
});

test("heartbeats are told, and are no items", async (t) => {
  const beats = [];
  const beat = frame(null, { stage: "prefill", elapsed_ms: 15_000 }, "heartbeat");
  const { stream } = await generating(t, [FRAMES[0], beat, ...FRAMES.slice(1)], { onHeartbeat: (said) => beats.push(said) });
  assert.equal((await all(stream)).length, 6);
  assert.deepEqual(beats, [{ stage: "prefill", elapsed_ms: 15_000 }]);
});

test("states are told in order, with the reason and the wait of a pause", async (t) => {
  const told = [];
  const { stream } = await generating(t, FRAMES, { onState: (change) => told.push(change) }, [{ after: 300, how: "end" }]);
  await stream.result();
  assert.deepEqual(told.map(({ before, state }) => `${before} ${state}`), [
    "CONNECTING STREAMING", "STREAMING PAUSED", "PAUSED RESUMING", "RESUMING STREAMING", "STREAMING COMPLETED",
  ]);
  assert.equal(told[1].reason, "early_end");
  assert.ok(told[1].waitMs >= 0);
  assert.ok(told.every(({ session, generationId }) => session === stream.session && generationId === GENERATION));
});

test("a session that was left can be gone on with: the same items again, the stored ones without a request", async (t) => {
  const store = memoryStore();
  const { gateway, stream } = await generating(t, FRAMES, { store }, [{ after: bytesTo(FRAMES, 3), how: "hang" }]);
  for await (const item of stream) if (item.seq === 2) break;
  const again = await resume(stream.session, { store, apiKey: "key-1", limits: QUICK });
  assert.deepEqual((await all(again)).map(({ seq }) => seq), [0, 1, 2, 3, 4, 5]);
  assert.equal(gateway.requests.length, 3);
  assert.equal(gateway.requests[2].headers["last-event-id"], idOf(2));
  const finished = await resume(stream.session, { store, after: 3 });
  assert.deepEqual((await all(finished)).map(({ seq }) => seq), [4, 5]);
  assert.equal((await finished.result()).text, WORDS.join(""));
  assert.equal(finished.state, "COMPLETED");
  assert.equal(gateway.requests.length, 3);
  assert.equal(await resume("another", { store }), undefined);
});

test("a place behind the end is another stream's, and is refused instead of leaving everything out", async (t) => {
  const store = memoryStore();
  const { stream } = await generating(t, FRAMES, { store });
  await all(stream);
  const again = await resume(stream.session, { store, after: 77 });
  await assert.rejects(all(again), { code: "foreign_cursor", text: WORDS.join("") });
  assert.deepEqual(await all(await resume(stream.session, { store, after: 5 })), []);
});

test("a session whose events were too many to keep is read from the server where the kept ones end", async (t) => {
  const store = memoryStore();
  const { gateway, stream } = await generating(t, FRAMES, { store, limits: { ...QUICK, journalCharsMax: 150 } });
  await stream.result();
  const again = await resume(stream.session, { store, limits: QUICK });
  assert.equal((await again.result()).text, WORDS.join(""));
  assert.equal(gateway.requests.length, 3);
  assert.equal(gateway.requests[2].headers["last-event-id"], idOf(1));
});

test("a ticket opens one generation without a header, and the cursor stands in the address", async (t) => {
  const gateway = await played(t, { frames: FRAMES, faults: [{ after: bytesTo(FRAMES, 2), how: "reset" }] });
  const { ticket } = await ticketFor({ edge: gateway.url, generationId: GENERATION, apiKey: "key-1" });
  const stream = attach({ edge: gateway.url, generationId: GENERATION, ticket, limits: QUICK });
  assert.equal((await stream.result()).text, WORDS.join(""));
  const [asked, first, second] = gateway.requests;
  assert.deepEqual([asked.method, asked.url, asked.headers.authorization], ["POST", `/v1/generations/${GENERATION}/tickets`, "Bearer key-1"]);
  assert.equal(first.url, `/v1/generations/${GENERATION}/events?ticket=tkt`);
  assert.equal(second.url, `/v1/generations/${GENERATION}/events?ticket=tkt&after=${idOf(1)}`);
  for (const { headers } of [first, second]) assert.equal(headers.authorization ?? headers["last-event-id"], undefined);
  const url = eventsUrl({ edge: `${gateway.url}/v1`, generationId: GENERATION, ticket, dialect: "openai.chat" });
  assert.equal(url, `${gateway.url}/v1/generations/${GENERATION}/events?dialect=openai.chat&ticket=tkt`);
});

test("a key, a ticket and a prompt are never stored", async (t) => {
  const saved = [];
  const store = { ...memoryStore(), save: async (...written) => void saved.push(JSON.stringify(written)) };
  const { stream } = await generating(t, FRAMES, { store, body: { model: "m", prompt: "PROMPT" }, apiKey: "KEY", headers: { cookie: "COOKIE" } });
  await stream.result();
  assert.ok(saved.length > 0);
  assert.doesNotMatch(saved.join(""), /KEY|PROMPT|COOKIE/);
});

test("every event is stored before it is handed over", async (t) => {
  let stored = -1;
  const store = { ...memoryStore(), save: async (position) => { await new Promise((resolve) => setImmediate(resolve)); stored = position.seq; } };
  const { stream } = await generating(t, FRAMES, { store });
  for await (const { seq } of stream) assert.ok(stored >= seq, `${seq} was handed over, ${stored} is stored`);
});

test("a signal that is aborted already asks nobody", async (t) => {
  const { gateway, stream } = await generating(t, FRAMES, { signal: AbortSignal.abort() });
  await assert.rejects(stream.result(), { name: "AbortError", code: "aborted" });
  await until(() => stream.state === "CANCELLED");
  assert.equal(gateway.requests.length, 0);
});

test("an abort while stored items are given again ends the generation; of a finished one there is nothing to end", async (t) => {
  const store = memoryStore();
  const { gateway, stream } = await generating(t, FRAMES, { store }, [{ after: bytesTo(FRAMES, 3), how: "hang" }]);
  for await (const { seq } of stream) if (seq === 2) break;
  const again = await resume(stream.session, { store, limits: QUICK });
  await assert.rejects(async () => { for await (const item of again) if (item.seq === 1) again.cancel(); }, { code: "aborted" });
  await until(() => gateway.requests.at(-1).url.endsWith("/cancel"));
  await (await resume(stream.session, { store, limits: QUICK })).result();
  const asked = gateway.requests.length;
  const finished = await resume(stream.session, { store });
  for await (const item of finished) if (item.seq === 1) finished.cancel();
  await assert.rejects((await resume(stream.session, { store, signal: AbortSignal.abort() })).result(), { code: "aborted" });
  assert.equal(gateway.requests.length, asked);
});

const taken = { status: 200, body: { resent: [], nack: [] } };
const said = ({ acknowledged }) => acknowledged.map(({ body }) => JSON.parse(body));

test("what is stored is acknowledged in ranges with their checksums: after so many events, and at the end", async (t) => {
  const frames = nativeFrames(Array.from({ length: 40 }, (_, at) => `Grüße ${at}`));
  const gateway = await played(t, { frames, faults: [undefined, { after: bytesTo(frames, 33), how: "end" }], acks: [taken, taken] });
  await generate({ edge: gateway.url, apiKey: "key-1", body: {}, limits: QUICK }).result();
  await until(() => gateway.acknowledged.length === 2);
  const data = frames.map((one) => /data: (.*)\n/.exec(one)[1]);
  const sum = (first, last) => crc32(data.slice(first, last + 1).join("")).toString(16).padStart(8, "0");
  assert.deepEqual(said(gateway), [
    { reader_id: "r-1", ranges: [[0, 31, sum(0, 31)], [32, 32, sum(32, 32)]] },
    { reader_id: "r-1", ranges: [[33, 41, sum(33, 41)]] },
  ]);
  const [{ url, headers }] = gateway.acknowledged;
  assert.equal(url, `/v1/generations/${GENERATION}/ack`);
  assert.equal(headers.authorization, "Bearer key-1");
});

test("what no edge took is said again; an edge that does not know acknowledgements is not asked twice", async (t) => {
  const told = new Acks({ ...LIMITS, ackEvents: 2 });
  const numbered = (seq) => ({ id: idOf(seq), data: "x" });
  told.took([numbered(0), numbered(1)], 0);
  const first = told.due(0, false);
  assert.deepEqual(first.map(([from, to]) => [from, to]), [[0, 1]]);
  told.refused(first);
  assert.equal(told.due(0, true), null, "nothing new came");
  told.took([numbered(2)], 10);
  assert.equal(told.due(10, false), null);
  assert.deepEqual(told.due(10 + LIMITS.ackMs, false).map(([from, to]) => [from, to]), [[0, 1], [2, 2]]);
  const gateway = await played(t, { frames: FRAMES, faults: [undefined, { after: bytesTo(FRAMES, 2), how: "end" }] });
  await generate({ edge: gateway.url, body: {}, limits: { ...QUICK, ackEvents: 1 } }).result();
  assert.ok(gateway.acknowledged.length <= 2);
});

test("what an edge wants to send again is asked for on the next connection, told, and is no item", async (t) => {
  const again = { seq: 1, event: "delta", data: "{}" };
  const frames = [...FRAMES.slice(0, 4), frame(null, again, "resent"), ...FRAMES.slice(4)];
  const gateway = await played(t, {
    frames,
    faults: [undefined, { after: bytesTo(frames, 3), how: "hang" }, { answer: { status: 400 } }],
    acks: [{ status: 200, body: { resent: [], nack: [[1, 1], [3, 4]] } }],
  });
  const told = [];
  let heard = false;
  const hearing = async (...asked) => {
    const response = await gateway.fetch(...asked);
    if (!String(asked[0]).endsWith("/ack")) return response;
    const flush = () => void setImmediate(() => (heard = true)); // by then the answer is read to its end
    return new Response(response.body.pipeThrough(new TransformStream({ flush })), response);
  };
  const clock = lateClock(() => heard && gateway.silent());
  const limits = { ...QUICK, ackEvents: 3, idleMs: LATE_MS };
  const items = await all(generate({ edge: gateway.url, body: {}, limits, clock, fetch: hearing, onResent: (event) => told.push(event) }));
  assert.deepEqual(items.map(({ seq }) => seq), [0, 1, 2, 3, 4, 5]);
  assert.equal(gateway.requests[2].headers["x-resume-nack"], "1-1,3-4");
  assert.equal(gateway.requests[3].headers["x-resume-nack"], undefined, "the edge would not: the stream goes on without");
  assert.deepEqual(told, [again]);
});

test("the stream, its acknowledgements and its end are asked of the edge that began it, until a connection is lost", async (t) => {
  const one = await played(t, { frames: FRAMES, faults: [undefined, { after: bytesTo(FRAMES, 3), how: "end" }], acks: [taken] });
  const other = await played(t, { frames: FRAMES, acks: [taken] });
  const limits = { ...QUICK, ackEvents: 3 };
  await generate({ edge: one.url, edges: [other.url], body: {}, limits }).result();
  await until(() => one.acknowledged.length + other.acknowledged.length === 2);
  assert.deepEqual(one.requests.map(({ method }) => method), ["POST", "GET"]);
  assert.deepEqual(other.requests.map(({ method }) => method), ["GET"]);
  assert.deepEqual([one.acknowledged.length, other.acknowledged.length], [1, 1]);
});
