/**
 * An answer that is no stream, whole: where its connection is cut, it is fetched as the generation's result.
 *
 * Before: `reading`. After: `transport`.
 */
import type { Reading } from "./reading.js";
import type { Clock } from "./types.js";
import type { Limits } from "./limits.js";
/**
 * The first answer whose body came whole, with that body. Raises StreamError.
 * @param {Reading} reading
 * @param {Response} first
 * @param {{ limits: Limits, clock: Clock }} known
 * @returns {Promise<{ response: Response, body: Uint8Array<ArrayBuffer> }>}
 */
export declare function wholeAnswer(reading: Reading, first: Response, { limits, clock }: {
    limits: Limits;
    clock: Clock;
}): Promise<{
    response: Response;
    body: Uint8Array<ArrayBuffer>;
}>;
