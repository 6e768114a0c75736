/**
 * The retry matrix: what happened to a connection, and what is done about it. Pure.
 *
 * | what happened | what is done |
 * |---|---|
 * | reset, early end, silence, no answer | try again; a call by its Idempotency-Key, a stream behind its last id |
 * | 429 or 5xx that says `x-should-retry: true` | try again, not before its Retry-After |
 * | 429 or 5xx that says `false` | stop |
 * | 429 or 5xx that says neither | try again where it names a Retry-After, or is a 502, 503, 504: a proxy lost the edge |
 * | any of these answers, cut within its body | try again, `openAttempts` times at most; then its head counts |
 * | in place of an answer a page, another generation's stream (a cache), or a redirect, which nobody follows | try again |
 * | any other 4xx | stop |
 *
 * What never comes here: the reader's own abort, and anything behind the terminal.
 * Before: `limits`. After: `connections`.
 */

/** @import { Limits } from "./limits.js" */

/**
 * @typedef {{ kind: "cut" | "early_end" | "idle" | "gap" | "foreign", notBeforeMs?: number }} Lost
 * @typedef {{ kind: "answer", status: number, advice: string | null, retryAfterMs: number | null }} Answered
 */

/**
 * `fruitless`: tries in a row without a new event, this one included. `begun`: whether there is a generation to resume.
 * @typedef {{ fruitless: number, begun: boolean, leftMs: number, random: number, limits: Limits }} Situation
 */

const FROM_A_PROXY = new Set([502, 503, 504]);
const TOO_MANY = 429;
const NUMBER = /^\d+(\.\d+)?$/;

/**
 * How long to wait before the next try, or why there is none.
 * @param {Lost | Answered} failure
 * @param {Situation} situation
 * @returns {{ waitMs: number } | { stop: string }}
 */
export function decide(failure, situation) {
  const { fruitless, begun, leftMs, limits } = situation;
  let waitMs = backoffMs(situation);
  if (failure.kind === "answer") {
    if (!mayBeRetried(failure)) return { stop: "refused" };
    waitMs = Math.max(waitMs, failure.retryAfterMs ?? 0);
  } else waitMs = Math.max(waitMs, failure.notBeforeMs ?? 0);
  if (!begun && fruitless >= limits.openAttempts) return { stop: failure.kind === "foreign" ? "not_an_edge" : "unreachable" };
  return waitMs < leftMs ? { waitMs } : { stop: "session_timeout" };
}

/**
 * What the head of a refusal says.
 * @param {Answered} answer
 */
export function mayBeRetried({ status, advice, retryAfterMs }) {
  if (status !== TOO_MANY && status < 500) return false;
  if (advice !== null) return advice === "true";
  return retryAfterMs !== null || FROM_A_PROXY.has(status);
}

/** @param {Situation} situation */
function backoffMs({ fruitless, random, limits }) {
  if (fruitless <= 1) return random * limits.spreadMs;
  const full = Math.min(limits.backoffMs * 2 ** (fruitless - 2), limits.backoffMsMax);
  return full * (0.5 + random / 2);
}

/**
 * What an answer's head says about trying again: `retry-after-ms`, else Retry-After, in seconds or as an HTTP date.
 * @param {Response} response
 * @param {number} wallMs
 * @returns {Answered}
 */
export function answered(response, wallMs) {
  const advice = response.headers.get("x-should-retry")?.trim().toLowerCase() ?? null;
  const said = response.headers.get("retry-after")?.trim() ?? "";
  const saidMs = response.headers.get("retry-after-ms")?.trim() ?? "";
  const dueMs = Date.parse(said);
  let retryAfterMs = null;
  if (NUMBER.test(saidMs)) retryAfterMs = Number(saidMs);
  else if (NUMBER.test(said)) retryAfterMs = Number(said) * 1000;
  else if (!Number.isNaN(dueMs)) retryAfterMs = Math.max(0, dueMs - wallMs);
  return { kind: "answer", status: response.status, advice, retryAfterMs };
}
