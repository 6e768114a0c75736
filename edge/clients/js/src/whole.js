/**
 * An answer that is no stream, whole: where its connection is cut, it is fetched as the generation's result.
 *
 * Before: `reading`. After: `transport`.
 */

import { TooLarge, wholeBody } from "./bodies.js";

/** @import { Reading } from "./reading.js" */
/** @import { Clock } from "./types.js" */
/** @import { Limits } from "./limits.js" */

const RUNNING = 202;

/**
 * The first answer whose body came whole, with that body. Raises StreamError.
 * @param {Reading} reading
 * @param {Response} first
 * @param {{ limits: Limits, clock: Clock }} known
 * @returns {Promise<{ response: Response, body: Uint8Array<ArrayBuffer> }>}
 */
export async function wholeAnswer(reading, first, { limits, clock }) {
  /** @type {Response | null} */
  let response = first;
  for (;;) {
    response ??= /** @type {Response} */ (await reading.connect());
    const bounds = { bytesMax: limits.answerBytesMax, ms: Math.min(limits.readMs, reading.leftMs()), clock };
    const body = await wholeBody(response, bounds).catch((error) => {
      if (error instanceof TooLarge) throw reading.refuse(`the answer: ${error.message}`, { code: "answer_too_large" });
      return null;
    });
    if (body !== null && (response === first || response.status !== RUNNING)) {
      await reading.complete();
      return { response, body };
    }
    if (body === null) reading.lost({ kind: "cut" });
    else reading.later(limits.pollMs);
    response = null;
  }
}
