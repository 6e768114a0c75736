/**
 * The retry matrix: what happened to a connection, and what is done about it. Pure.
 *
 * | what happened | what is done |
 * |---|---|
 * | reset, early end, silence, no answer | try again; a call by its Idempotency-Key, a stream behind its last id |
 * | 429 or 5xx that says `x-should-retry: true` | try again, not before its Retry-After |
 * | 429 or 5xx that does not | stop |
 * | 502, 503, 504 without `x-should-retry` | nobody of ours has answered (a proxy has): as no answer |
 * | any other 4xx | stop |
 *
 * What never comes here: the reader's own abort, and anything behind the terminal.
 * Before: `limits`. After: `reading`.
 */

/** @import { Limits } from "./limits.js" */

/**
 * @typedef {{ kind: "cut" | "early_end" | "idle" | "gap" }} Lost
 * @typedef {{ kind: "answer", status: number, advice: string | null, retryAfterMs: number | null }} Answered
 */

/**
 * `fruitless`: tries in a row without a new event, this one included. `begun`: whether there is a generation to resume.
 * @typedef {{ fruitless: number, begun: boolean, leftMs: number, random: number, limits: Limits }} Situation
 */

const FROM_A_PROXY = new Set([502, 503, 504]);
const TOO_MANY = 429;

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
  }
  if (!begun && fruitless >= limits.openAttempts) return { stop: "unreachable" };
  return waitMs < leftMs ? { waitMs } : { stop: "session_timeout" };
}

/** @param {Answered} answer */
function mayBeRetried({ status, advice }) {
  if (status !== TOO_MANY && status < 500) return false;
  return advice === "true" || (advice === null && FROM_A_PROXY.has(status));
}

/** @param {Situation} situation */
function backoffMs({ fruitless, random, limits }) {
  if (fruitless <= 1) return random * limits.spreadMs;
  const full = Math.min(limits.backoffMs * 2 ** (fruitless - 2), limits.backoffMsMax);
  return full * (0.5 + random / 2);
}

/**
 * What an answer's head says about trying again. Retry-After is a number of seconds or an HTTP date.
 * @param {Response} response
 * @param {number} wallMs
 * @returns {Answered}
 */
export function answered(response, wallMs) {
  const advice = response.headers.get("x-should-retry");
  const said = response.headers.get("retry-after")?.trim();
  let retryAfterMs = null;
  if (said && /^\d+(\.\d+)?$/.test(said)) retryAfterMs = Number(said) * 1000;
  else if (said && !Number.isNaN(Date.parse(said))) retryAfterMs = Math.max(0, Date.parse(said) - wallMs);
  return { kind: "answer", status: response.status, advice, retryAfterMs };
}
