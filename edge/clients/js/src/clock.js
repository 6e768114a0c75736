/**
 * The real clock, waiting with a bound, and names by chance. Everything else takes time as an argument.
 *
 * Before: `types`. After: `connections`.
 */

/** @import { Clock } from "./types.js" */

/** A longer timer would fire at once. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/** @type {Clock} */
export const systemClock = {
  nowMs: () => performance.now(),
  wallMs: () => Date.now(),
  random: () => Math.random(),
  sleep: (ms, signal) =>
    new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", done);
        resolve();
      };
      const timer = setTimeout(done, Math.max(0, Math.min(ms, TIMER_MS_MAX)));
      signal.addEventListener("abort", done);
      if (signal.aborted) done();
    }),
};

/** Something did not come in time. */
export class TooLate extends Error {}

/**
 * A promise's value, or TooLate.
 * @template T
 * @param {Promise<T>} promise
 * @param {number} ms
 * @param {Clock} clock
 * @returns {Promise<T>}
 */
export async function within(promise, ms, clock) {
  const over = new AbortController();
  promise.catch(() => {}); // it may fail after nobody waits for it any more
  try {
    return await Promise.race([
      promise,
      clock.sleep(ms, over.signal).then(() => {
        throw new TooLate(`nothing came within ${Math.round(ms)} ms`);
      }),
    ]);
  } finally {
    over.abort();
  }
}

/** A name that nobody else has, also where `crypto.randomUUID` is missing: in pages that came by plain HTTP. */
export function newName() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
