/**
 * Every bound of the library, each with its reason. All may be given anew under `limits`.
 *
 * Before: `types`. After: `retry`, `sse`, `reading`.
 */
export declare const LIMITS: Readonly<{
    /** A call's response head, a whole answer that is no stream, a stream without a new event: as long as the SDKs wait. */
    readMs: 600000;
    /** Silence within a stream, or of an edge that is to resume one: four heartbeats. */
    idleMs: 60000;
    /** A finished answer may end by itself, and a refusal that is tried again say why, for so long. */
    leaveMs: 1000;
    /** From the call to the end, all connections together: beyond this nobody waits for an answer any more. */
    sessionMs: 3600000;
    /** Tries of a call that nobody has answered yet, and of a refusal that does not come whole; a generation that runs is resumed as long as the session may last. */
    openAttempts: 4;
    /** The wait before the second fruitless try; it doubles from there. */
    backoffMs: 250;
    backoffMsMax: 15000;
    /** The first reconnect is spread over this time: an edge that dies loses all of its clients at once. */
    spreadMs: 100;
    /** Between two looks at an answer that is no stream, was cut, and is not finished yet. */
    pollMs: 1000;
    /** The edge is told what was received after so many events, or so much time. */
    ackEvents: 32;
    ackMs: 2000;
    /** What a refusal says: a few hundred bytes of an edge, a page of a proxy. Of a longer one only the head is told. */
    refusalBytesMax: number;
    /** An answer in one piece, and what a generation says in all; an edge's is below it. */
    answerBytesMax: number;
    /** One event; the edge's own bound is 8 MiB. */
    frameCharsMax: number;
    /** Events kept of one session; what lies behind is read from the server again. */
    journalCharsMax: number;
    /** A body reads this far ahead of its reader in the end; it begins at a 64th. */
    aheadBytesMax: number;
}>;
export type Limits = {
    -readonly [name in keyof typeof LIMITS]: number;
};
/** @typedef {{ -readonly [name in keyof typeof LIMITS]: number }} Limits */
/**
 * @param {Partial<Limits>} [given]
 * @returns {Limits}
 */
export declare function limitsOf(given?: Partial<Limits>): Limits;
