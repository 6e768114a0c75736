/**
 * What a client needs to know of an id, and the checksum of what it was given. Pure.
 *
 * An id is `<seq>-<partition>.<offset>-<signature>`; it goes back to the edge unchanged.
 * Before: `types`. After: `reading`, the stores.
 */
/**
 * The seq of an id; null for one that is not ours.
 * @param {string | undefined} id
 */
export declare function seqOf(id: string | undefined): number | null;
/**
 * The resumption token of an id: lets a plain `Last-Event-ID: <seq>` be resumed from.
 * @param {string | null} generationId
 * @param {string} id
 */
export declare function tokenOf(generationId: string | null, id: string): string | null;
/**
 * CRC-32 (that of zlib) of a text's UTF-8 bytes, going on from an earlier one.
 * @param {string} text
 * @param {number} [before]
 */
export declare function crc32(text: string, before?: number): number;
