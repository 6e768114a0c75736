/**
 * A body read to its end, within bounds of size and time, and answers made of bodies that were read.
 *
 * Before: `clock`. After: `connections`, `whole`.
 */

import { systemClock, within } from "./clock.js";

/** @import { Clock } from "./types.js" */

/** There is more of a body than anybody wants to keep: reading it again would not help. */
export class TooLarge extends Error {}

/**
 * The whole of a body, decoded. Raises TooLarge, TooLate, or what its connection died of; the body is then let go.
 * @param {Response} response
 * @param {{ bytesMax: number, ms?: number, clock?: Clock }} bounds
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
export async function wholeBody(response, { bytesMax, ms = Infinity, clock = systemClock }) {
  if (response.body === null) return new Uint8Array();
  const reader = response.body.getReader();
  try {
    return await within(readOut(reader, bytesMax), ms, clock);
  } catch (error) {
    reader.cancel(error).catch(() => {}); // its connection may be gone already
    throw error;
  }
}

/**
 * @param {ReadableStreamDefaultReader<Uint8Array>} reader
 * @param {number} bytesMax
 */
async function readOut(reader, bytesMax) {
  const pieces = [];
  let bytes = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return joined(pieces, bytes);
    bytes += value.byteLength;
    if (bytes > bytesMax) throw new TooLarge(`the body is above ${bytesMax} bytes`);
    pieces.push(value);
  }
}

/**
 * @param {Uint8Array[]} pieces
 * @param {number} bytes
 */
function joined(pieces, bytes) {
  const whole = new Uint8Array(bytes);
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.byteLength;
  }
  return whole;
}

/**
 * A response like another one, with a body that is decoded already.
 * @param {Response} response
 * @param {BodyInit} body
 * @param {Record<string, string>} [own] headers in place of the other's
 */
export function likeness(response, body, own = {}) {
  const headers = new Headers(response.headers);
  for (const name of ["content-length", "content-encoding", "transfer-encoding"]) headers.delete(name);
  for (const [name, value] of Object.entries(own)) headers.set(name, value);
  const like = new Response(body, { status: response.status, statusText: response.statusText, headers });
  Object.defineProperty(like, "url", { value: response.url });
  return like;
}

/**
 * A refusal of which only the head is known, as every dialect says one.
 * @param {Response} response
 * @param {string} why
 */
export function beheaded(response, why) {
  const message = `HTTP ${response.status}, and what it says did not come whole: ${why}`;
  const error = { type: "refusal_cut", code: "refusal_cut", message };
  return likeness(response, JSON.stringify({ type: "error", error }), { "content-type": "application/json" });
}
