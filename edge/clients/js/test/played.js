/**
 * A gateway of a script, for tests: one generation of a few events, and connections that are cut or refused as told.
 *
 * `faults[i]` says what becomes of the i-th request (cancel, tickets and acks aside); without one it is served to the end.
 */

import { createServer } from "node:http";

import { systemClock } from "../src/clock.js";

export const GENERATION = "0193a5d2-7c11-7b3e-9f04-5a2c8e61d0b7";
const SIG = "k3Jd0aXk3Jd0aXk3Jd0aXk";

/** @param {number} seq */
export const idOf = (seq) => `${seq}-17.${88_000 + seq}-${SIG}`;

/**
 * A frame as the edge writes it.
 * @param {number | null} seq
 * @param {unknown} data
 * @param {string} [event]
 */
export function frame(seq, data, event) {
  const text = typeof data === "string" ? data : JSON.stringify(data);
  return `${event ? `event: ${event}\n` : ""}${seq === null ? "" : `id: ${idOf(seq)}\n`}data: ${text}\n\n`;
}

/** @type {Record<string, { path: string, frames: (words: string[]) => string[] }>} */
export const DIALECTS = {
  "openai.chat": {
    path: "/v1/chat/completions",
    frames: (words) => [
      ...words.map((word, at) => frame(at + 1, { choices: [{ index: 0, delta: { content: word } }] })),
      frame(words.length + 1, "[DONE]"),
    ],
  },
  "anthropic.messages": {
    path: "/v1/messages",
    frames: (words) => [
      ...words.map((text, at) => frame(at + 1, { type: "content_block_delta", delta: { text } }, "content_block_delta")),
      frame(words.length + 1, { type: "message_stop" }, "message_stop"),
    ],
  },
  "openai.responses": {
    path: "/v1/responses",
    frames: (words) => [
      ...words.map((delta, at) => frame(at + 1, { type: "response.output_text.delta", delta }, "response.output_text.delta")),
      frame(words.length + 1, { type: "response.completed", response: {} }, "response.completed"),
    ],
  },
};

/** @param {string[]} words */
export function nativeFrames(words) {
  return [
    frame(0, { seq: 0, generation_id: GENERATION, model: "small-1" }, "message_start"),
    ...words.map((text, at) => frame(at + 1, { seq: at + 1, parts: [{ type: "text", text }] }, "delta")),
    frame(words.length + 1, { seq: words.length + 1, finish_reason: "stop" }, "message_end"),
  ];
}

/**
 * `after`: so many bytes of the body are sent. `how`: reset, fin (without the body's end), end (a proper, early one), hang.
 * `tail`: behind these bytes. An answer's `how`: it is cut so within its body. `mute`: nothing at all is said. `answer`: instead of a stream. `noAnswer`: the socket is reset before any head.
 * @typedef {{ after?: number, tail?: string, how?: "reset" | "fin" | "end" | "hang", noAnswer?: boolean, mute?: boolean,
 *   answer?: { status: number, headers?: Record<string, string>, body?: unknown, how?: "reset" | "fin" | "hang" } }} Fault
 */

/**
 * Play a generation; closed at the end of the test.
 * @param {import("node:test").TestContext} test
 * @param {{ frames: string[], faults?: (Fault | undefined)[], result?: string, acks?: any[] }} script
 */
export async function played(test, script) {
  const faults = [...(script.faults ?? [])];
  const acks = [...(script.acks ?? [])];
  let silent = false;
  /** A fetch by which the silence is over as soon as something else is asked. */
  const asking = (...asked) => {
    if (!/\/(ack|cancel)$/.test(String(asked[0]))) silent = false;
    return fetch(...asked);
  };
  const hung = () => {
    silent = true;
  };
  /** @type {{ method: string, url: string, headers: import("node:http").IncomingHttpHeaders, body: string, closed: boolean, atMs: number }[]} */
  const requests = [];
  /** @type {typeof requests} */
  const acknowledged = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const piece of request) body += piece;
    const { method = "", url = "", headers } = request;
    const seen = { method, url, headers, body, closed: false, atMs: performance.now() };
    (url.includes("/ack") ? acknowledged : requests).push(seen);
    response.on("close", () => (seen.closed = true));
    if (url.includes("/cancel")) return void answerWith(response, { status: 202, body: { state: "cancelling" } });
    if (url.includes("/ack")) return void answerWith(response, acks.shift() ?? { status: 404, body: {} });
    if (url.includes("/tickets")) return void answerWith(response, { status: 200, body: { ticket: "tkt" } });
    const fault = faults.shift() ?? {};
    silent = fault.mute === true;
    if (fault.mute) return;
    if (fault.noAnswer) return void request.socket.resetAndDestroy();
    if (fault.answer) return void answerWith(response, fault.answer, hung);
    if (headers.prefer === "respond-async") {
      return void answerWith(response, { status: 202, headers: { "x-generation-id": GENERATION }, body: {} });
    }
    if (script.result !== undefined) return void send(response, script.result, "application/json", fault, hung);
    const last = new URL(url, "http://played.test").searchParams.get("after") ?? headers["last-event-id"];
    const from = last === undefined ? 0 : script.frames.findIndex((one) => one.includes(`id: ${last}\n`)) + 1;
    if (last !== undefined && from === script.frames.length) return void response.writeHead(204).end();
    const frames = script.frames.slice(from).join("");
    send(response, `: tokentrail\nretry: 2000\n${last ? ": resumed\n" : ""}${frames}`, "text/event-stream; charset=utf-8", fault, hung);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(undefined)));
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  const stop = () => {
    server.closeAllConnections();
    server.close();
  };
  test.after(stop);
  return { url: `http://127.0.0.1:${port}`, requests, acknowledged, faults, stop, silent: () => silent, fetch: asking };
}

/**
 * @param {import("node:http").ServerResponse} response
 * @param {NonNullable<Fault["answer"]>} answer
 * @param {() => void} [hung] told when nothing more comes
 */
function answerWith(response, { status, headers = {}, body = "", how }, hung = () => {}) {
  const text = typeof body === "string" || Buffer.isBuffer(body) ? body : JSON.stringify(body);
  response.writeHead(status, { "content-type": "application/json", ...headers });
  if (how === undefined) return void response.end(text);
  response.write(text.slice(0, text.length / 2), () => cut(response, how, hung));
}

/**
 * @param {import("node:http").ServerResponse} response
 * @param {Fault["how"]} how
 * @param {() => void} hung
 */
function cut(response, how, hung) {
  if (how === "reset") response.socket?.resetAndDestroy();
  else if (how === "fin") response.socket?.end();
  else if (how === "end") response.end();
  else hung();
}

/**
 * @param {import("node:http").ServerResponse} response
 * @param {string} body
 * @param {string} type
 * @param {Fault} fault
 * @param {() => void} hung told when nothing more comes
 */
function send(response, body, type, { after, how, tail = "" }, hung) {
  const bytes = Buffer.from(body);
  response.writeHead(200, { "content-type": type, "x-generation-id": GENERATION, "x-reader-id": "r-1" });
  if (how === undefined) return void response.end(bytes);
  response.write(Buffer.concat([bytes.subarray(0, after), Buffer.from(tail)]), () => cut(response, how, hung));
}

/**
 * How many bytes of a stream end with the n-th frame.
 * @param {string[]} frames
 * @param {number} count
 */
export const bytesTo = (frames, count) => Buffer.byteLength(`: tokentrail\nretry: 2000\n${frames.slice(0, count).join("")}`);

/** A time-out that `lateClock` lets pass. */
export const LATE_MS = 99_000;

/**
 * A clock by which LATE_MS pass as soon as something is so for a number of turns, however busy the machine is: what was
 * written before has then been read, since both sides are turns of one loop.
 * @param {() => boolean} isLate
 * @returns {import("../src/types.js").Clock}
 */
export const lateClock = (isLate) => ({
  ...systemClock,
  async sleep(ms, signal) {
    if (ms !== LATE_MS) return systemClock.sleep(ms, signal);
    for (let turns = 0; turns < 300 && !signal.aborted; turns = isLate() ? turns + 1 : 0) {
      await new Promise((resolve) => setImmediate(resolve));
    }
  },
});

/** Limits with which a test can end. */
export const QUICK = { spreadMs: 1, backoffMs: 2, backoffMsMax: 8, pollMs: 5, idleMs: 5_000 };

/**
 * Wait until a condition holds.
 * @param {() => boolean} condition
 */
export async function until(condition) {
  for (const endMs = performance.now() + 10_000; !condition(); ) {
    if (performance.now() > endMs) throw new Error(`it does not hold: ${condition}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}
