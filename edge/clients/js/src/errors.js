/**
 * What a reader is told when a stream has no proper end. Each error carries what came until then.
 *
 * Before: `types`. After: `retry`, `reading`, `stream`.
 */

/**
 * @typedef {object} ErrorDetails
 * @property {string} code the edge's word (`resume_expired`, `stall_timeout` …), or one of the library's: `aborted`,
 *   `unreachable`, `not_an_edge`, `session_timeout`, `read_timeout`, `frame_too_large`, `answer_too_large`, `foreign_cursor`,
 *   `unreadable_event`, `refused`, `refusal_cut` (its body did not come whole)
 * @property {number} [status] of the HTTP answer
 * @property {boolean} [retryable] whether the same call may be sent again by itself
 * @property {number} [retryAfterMs]
 * @property {string | null} [generationId]
 * @property {string} [session]
 * @property {string} [text] of the first choice, as far as it came
 * @property {unknown} [cause]
 */

/** Anything that ends a stream without its proper end. */
export class TokentrailError extends Error {
  /**
   * @param {string} message
   * @param {ErrorDetails} details
   */
  constructor(message, details) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = details.code === "aborted" ? "AbortError" : new.target.name;
    this.code = details.code;
    this.status = details.status;
    this.retryable = details.retryable ?? false;
    this.retryAfterMs = details.retryAfterMs;
    this.generationId = details.generationId ?? null;
    this.session = details.session;
    this.text = details.text ?? "";
  }
}

/** The stream could not be read to its end: refused, out of reach, out of time, or the reader's own abort. */
export class StreamError extends TokentrailError {}

/** The stream was read to its end, and that is an error of the generation. */
export class GenerationError extends TokentrailError {}

/**
 * What is known of a refusal: by the matrix, by the answer's head, and by its body.
 * @param {string} stop
 * @param {{ status: number, advice: string | null, retryAfterMs: number | null } | null} answer
 * @param {{ code?: string, message?: string }} said
 * @param {unknown} [cause] what the last try died of
 * @returns {{ message: string, details: ErrorDetails }}
 */
export function refusalOf(stop, answer, said, cause) {
  const nobody = cause === undefined ? "nobody answers" : `nobody answers: ${reasonOf(cause)}`;
  const message = said.message ?? (answer === null ? nobody : `the answer is HTTP ${answer.status}`);
  const code = stop === "refused" ? (said.code ?? stop) : stop;
  const retryAfterMs = answer?.retryAfterMs ?? undefined;
  return { message, details: { code, status: answer?.status, retryable: answer?.advice === "true", retryAfterMs } };
}

/**
 * Why a connection failed: platforms say it in the cause, "fetch failed" before it.
 * @param {any} error
 */
export function reasonOf(error) {
  return String(error?.cause?.message || error?.cause?.code || error?.message || error);
}
