/**
 * Calls that failed and that the SDK may send again: its second try is the same call, so it gets the same key.
 *
 * Without this, a call whose answer was lost would be paid for twice as soon as the SDK retries it by itself. SDKs made by
 * Stainless (openai, anthropic) number their tries; a call is known again by a digest of its address and body.
 * Before: `types`. After: `transport`.
 */
export declare class RetriedCalls {
    #private;
    /**
     * The key of the earlier try, where this call is a second one.
     * @param {{ url: string, headers: Headers, body: BodyInit | null }} request
     * @returns {Promise<string | null>}
     */
    keyOf(request: {
        url: string;
        headers: Headers;
        body: BodyInit | null;
    }): Promise<string | null>;
    /**
     * A call failed under a key.
     * @param {{ url: string, body: BodyInit | null }} request
     * @param {string} key
     */
    failed(request: {
        url: string;
        body: BodyInit | null;
    }, key: string): Promise<void>;
}
