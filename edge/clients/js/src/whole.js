/**
 * An answer that is no stream, whole: where its connection is cut, it is fetched as the generation's result.
 *
 * Before: `reading`. After: `transport`.
 */

import { within } from "./clock.js";

/** @import { Reading } from "./reading.js" */
/** @import { Clock } from "./types.js" */
/** @import { Limits } from "./limits.js" */

const RUNNING = 202;

/**
 * The first answer whose body came whole, with that body. Raises StreamError.
 * @param {Reading} reading
 * @param {Response} first
 * @param {{ limits: Limits, clock: Clock }} known
 * @returns {Promise<{ response: Response, body: ArrayBuffer }>}
 */
export async function wholeAnswer(reading, first, { limits, clock }) {
  /** @type {Response | null} */
  let response = first;
  for (;;) {
    response ??= /** @type {Response} */ (await reading.connect());
    const body = await within(response.arrayBuffer(), limits.readMs, clock).catch(() => null);
    if (body !== null && (response === first || response.status !== RUNNING)) {
      await reading.complete();
      return { response, body };
    }
    await (body === null ? reading.lost({ kind: "cut" }) : reading.later(limits.pollMs));
    response = null;
  }
}
