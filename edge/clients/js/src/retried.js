/**
 * Calls that failed and that the SDK may send again: its second try is the same call, so it gets the same key.
 *
 * Without this, a call whose answer was lost would be paid for twice as soon as the SDK retries it by itself. SDKs made by
 * Stainless (openai, anthropic) number their tries; a call is known again by a digest of its address and body.
 * Before: `types`. After: `transport`.
 */

/** So many failed calls are remembered, by their digest only. */
const CALLS_MAX = 256;

export class RetriedCalls {
  /** @type {Map<string, string[]>} */
  #keys = new Map();

  /**
   * The key of the earlier try, where this call is a second one.
   * @param {{ url: string, headers: Headers, body: BodyInit | null }} request
   * @returns {Promise<string | null>}
   */
  async keyOf(request) {
    if (!(Number(request.headers.get("x-stainless-retry-count")) > 0)) return null;
    const digest = await digestOf(request);
    const keys = digest === null ? [] : (this.#keys.get(digest) ?? []);
    const key = keys.shift() ?? null;
    if (digest !== null && keys.length === 0) this.#keys.delete(digest);
    return key;
  }

  /**
   * A call failed under a key.
   * @param {{ url: string, body: BodyInit | null }} request
   * @param {string} key
   */
  async failed(request, key) {
    const digest = await digestOf(request);
    if (digest === null) return;
    const keys = this.#keys.get(digest) ?? [];
    this.#keys.delete(digest);
    this.#keys.set(digest, [...keys, key].slice(-CALLS_MAX));
    if (this.#keys.size > CALLS_MAX) this.#keys.delete(/** @type {string} */ (this.#keys.keys().next().value));
  }
}

/**
 * @param {{ url: string, body: BodyInit | null }} request
 * @returns {Promise<string | null>} null for a body that is no text, and where the platform has no digests (plain HTTP)
 */
async function digestOf({ url, body }) {
  if (typeof body !== "string" || globalThis.crypto?.subtle === undefined) return null;
  const bytes = new TextEncoder().encode(`${url}\n${body}`);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
