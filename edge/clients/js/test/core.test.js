/** The pure pieces: frames from bytes, the table of states, what a client understands of an event, checksums. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { crc32 as zlibCrc32 } from "node:zlib";

import { addressOf, baseOf, pathOf } from "../src/addresses.js";
import { crc32, seqOf, tokenOf } from "../src/cursor.js";
import { isTerminal, noticeIn } from "../src/dialects.js";
import { Progress, beginning, sound } from "../src/progress.js";
import { FrameParser, encodeFrames } from "../src/sse.js";
import { Machine, TABLE } from "../src/states.js";
import { GENERATION, idOf } from "./played.js";

const bytes = (text) => new TextEncoder().encode(text);
const parse = (pieces, max = 1_000) => {
  const parser = new FrameParser(max);
  return pieces.flatMap((piece) => parser.feed(piece));
};

const STREAM = '\ufeff: hello\r\n\r\nretry: 10\rid: 1-0.1-a\revent: x\rdata: Grü\rdata:👋\r\rid: bad\0\ndata\n\n: c\n\nevent:\ndata: {"a":\ndata:  1}\nid:2-0.2-b\nack: 3\n\nid: 9\n\ndata: half';
const FRAMES = [
  { id: "1-0.1-a", event: "x", data: "Grü\n👋" },
  { data: "" },
  { id: "2-0.2-b", data: '{"a":\n 1}' },
];

test("any split of the same bytes gives the same frames, and half a frame is none", () => {
  const all = bytes(STREAM);
  assert.deepEqual(parse([all]), FRAMES);
  assert.deepEqual(parse(Array.from(all, (byte) => Uint8Array.of(byte))), FRAMES);
  for (let at = 0; at < all.length; at += 1) assert.deepEqual(parse([all.subarray(0, at), all.subarray(at)]), FRAMES);
});

test("frames that are written are the frames that are read", () => {
  assert.deepEqual(parse([encodeFrames(FRAMES)]), FRAMES);
});

test("an event or a line above the bound is noticed at once, and those before it are given", () => {
  for (const text of ["x".repeat(200), `data: ${"x".repeat(60)}\ndata: ${"x".repeat(60)}\n\n`, `: ${"x".repeat(200)}\n`]) {
    const parser = new FrameParser(100);
    assert.deepEqual(parser.feed(bytes(`data: 1\n\n${text}`)), [{ data: "1" }]);
    assert.ok(parser.tooLarge, text.slice(0, 8));
    assert.deepEqual(parser.feed(bytes("\n\ndata: 2\n\n")), []);
  }
});

test("the table names six states; a move that it does not name raises and changes nothing", () => {
  assert.deepEqual(Object.keys(TABLE), ["CONNECTING", "STREAMING", "PAUSED", "RESUMING", "COMPLETED", "CANCELLED"]);
  const moves = new Set(Object.values(TABLE).flatMap((row) => Object.keys(row)));
  for (const [state, row] of Object.entries(TABLE)) {
    for (const move of moves) {
      const told = [];
      const machine = new Machine(state, (change) => told.push(change.state));
      if (move in row) machine.move(move);
      else assert.throws(() => machine.move(move), new RegExp(`${state} cannot be ${move}`));
      assert.equal(machine.state, row[move] ?? state);
      assert.equal(told.length, move in row ? 1 : 0);
    }
  }
});

const ENDS = [
  ["openai.chat", { data: "[DONE]" }, true],
  ["openai.chat", { data: '{"error":{"message":"x"}}' }, true],
  ["openai.chat", { data: '{"error":null,"choices":[]}' }, false],
  ["openai.chat", { data: '{"error":{},"choices":[]}' }, false],
  ["openai.chat", { data: '{"choices":[{"finish_reason":"error"}]}' }, true],
  ["openai.chat", { data: '{"choices":[{"delta":{"content":"\\"error\\" [DONE]"}}]}' }, false],
  ["anthropic.messages", { event: "message_stop", data: '{"type":"message_stop"}' }, true],
  ["anthropic.messages", { event: "error", data: '{"type":"error","error":{"type":"api_error"}}' }, true],
  ["anthropic.messages", { event: "content_block_delta", data: '{"type":"content_block_delta","delta":{"text":"message_stop"}}' }, false],
  ["openai.responses", { event: "response.completed", data: '{"type":"response.completed"}' }, true],
  ["openai.responses", { event: "response.incomplete", data: '{"type":"response.incomplete"}' }, true],
  ["openai.responses", { event: "response.failed", data: '{"type":"response.failed","response":{"error":{"code":"x"}}}' }, true],
  ["openai.responses", { event: "error", data: '{"type":"error","code":"x"}' }, true],
  ["openai.responses", { event: "response.created", data: '{"type":"response.created","response":{"error":null}}' }, false],
  ["native", { event: "message_end", data: "{}" }, true],
  ["native", { event: "generation_error", data: "{}" }, true],
  ["native", { event: "delta", data: '{"parts":[{"text":"error"}]}' }, false],
];

test("the terminal of each dialect is known, and nothing that only looks like it", () => {
  for (const [dialect, frame, expected] of ENDS) {
    assert.equal(isTerminal(dialect, { id: idOf(3), ...frame }), expected, `${dialect} ${frame.data}`);
  }
});

test("an error without a number is a notice, with a code in each dialect; a ping and a chunk are none", () => {
  const code = "log_unavailable";
  assert.equal(noticeIn("openai.chat", { data: JSON.stringify({ error: { code } }) })?.code, code);
  assert.equal(noticeIn("anthropic.messages", { event: "error", data: JSON.stringify({ type: "error", error: { code } }) })?.code, code);
  assert.equal(noticeIn("openai.responses", { event: "error", data: JSON.stringify({ type: "error", code }) })?.code, code);
  assert.equal(noticeIn("native", { event: "generation_error", data: JSON.stringify({ error: { code } }) })?.code, code);
  assert.equal(noticeIn("openai.chat", { id: idOf(1), data: JSON.stringify({ error: { code } }) }), null);
  assert.equal(noticeIn("openai.chat", { data: '{"choices":[],"error":null}' }), null);
  assert.equal(noticeIn("anthropic.messages", { event: "ping", data: '{"type": "ping"}' }), null);
});

test("the checksum is zlib's, in one piece or in many", { skip: zlibCrc32 === undefined && "this Node has none to compare with" }, () => {
  const text = "Grüße 👋 ".repeat(20);
  assert.equal(crc32(text), zlibCrc32(text));
  assert.equal(crc32(text.slice(5), crc32(text.slice(0, 5))), zlibCrc32(text));
});

test("the checksum of the standard's own example is the standard's", () => {
  assert.equal(crc32("123456789"), 0xcbf43926);
});

test("a seq and a token are read from our ids only", () => {
  assert.equal(seqOf(idOf(41)), 41);
  assert.equal(seqOf("41"), null);
  assert.equal(seqOf(undefined), null);
  assert.match(tokenOf(GENERATION, idOf(41)) ?? "", new RegExp(`^resumption_id=${GENERATION}&seq=41&sig=[\\w-]{22}$`));
});

test("an address says whether a call can be resumed, and at which edge", () => {
  const base = "https://gateway.example/llm";
  assert.deepEqual(addressOf("POST", `${base}/v1/messages?beta=true`), { base, dialect: "anthropic.messages", kind: "call" });
  assert.deepEqual(addressOf("POST", `${base}/v1/chat/completions`), { base, dialect: "openai.chat", kind: "call" });
  assert.deepEqual(addressOf("GET", `${base}/v1/responses/resp_1?stream=true`), { base, dialect: "openai.responses", kind: "stream" });
  assert.deepEqual(addressOf("GET", `${base}/v1/generations/g/events`), { base, dialect: "native", kind: "stream" });
  for (const [method, path] of [["GET", "/v1/models"], ["POST", "/v1/embeddings"], ["POST", "/v1/generations/g/cancel"], ["GET", "/v1/generations/g"]]) {
    assert.equal(addressOf(method, base + path), null, path);
  }
  assert.equal(baseOf("https://gateway.example/llm/v1/"), base);
  for (const path of ["/v1/messages", "/messages", "messages"]) assert.equal(pathOf(path), "/v1/messages");
});

const numbered = (seq, data = `d${seq}`) => ({ id: idOf(seq), event: "delta", data });
const begun = () => beginning({ session: "s", base: "http://edge.test", generationId: GENERATION, startedMs: 1 });

test("what was taken before is not new, and an event that is missing is not stepped over", () => {
  const progress = new Progress({ position: begun(), frames: [] }, 1_000);
  const taken = progress.take([numbered(0), numbered(1), numbered(1), numbered(0), { event: "heartbeat", data: "{}" }, numbered(3)]);
  assert.deepEqual(taken.frames.map(({ id }) => id), [idOf(0), idOf(1), undefined]);
  assert.ok(taken.gap);
  assert.deepEqual(progress.take([numbered(2), numbered(3)]).frames.length, 2);
  assert.equal(progress.position.crc32, crc32("d0d1d2d3"));
  const lost = progress.take([{ id: idOf(9), event: "generation_error", data: "{}" }, numbered(10)]);
  assert.deepEqual([lost.gap, lost.ended, lost.frames.length], [false, true, 1]);
});

test("of a stored session only what its checksum vouches for is taken", () => {
  const frames = [numbered(0), numbered(1), numbered(2)];
  const progress = new Progress({ position: begun(), frames: [] }, 1_000);
  progress.take(frames);
  const position = progress.position;
  assert.deepEqual(sound({ position, frames }), { position, frames });
  assert.deepEqual(sound({ position, frames: [...frames, numbered(3)] }).frames, frames);
  assert.deepEqual(sound({ position, frames: [frames[0], numbered(1, "x"), frames[2]] }).position.seq, -1);
  const partly = sound({ position: { ...position, ended: true }, frames: [frames[0], frames[2]] });
  assert.deepEqual([partly.position.seq, partly.position.lastEventId, partly.position.ended, partly.frames.length], [0, idOf(0), false, 1]);
  assert.equal(sound({ position, frames: [] }).position.lastEventId, null);
});

test("what is kept has a bound, and is a beginning without a gap", () => {
  const progress = new Progress({ position: begun(), frames: [] }, 5);
  assert.deepEqual(progress.kept([numbered(0), numbered(1), numbered(2)]).length, 2);
  assert.deepEqual(progress.kept([numbered(3)]), []);
});
