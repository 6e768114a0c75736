/**
 * What a client needs to know of an id, and the checksum of what it was given. Pure.
 *
 * An id is `<seq>-<partition>.<offset>-<signature>`; it goes back to the edge unchanged.
 * Before: `types`. After: `reading`, the stores.
 */

const CURSOR = /^(\d{1,16})-\d+\.\d+-([A-Za-z0-9_-]+)$/;

/**
 * The seq of an id; null for one that is not ours.
 * @param {string | undefined} id
 */
export function seqOf(id) {
  const found = CURSOR.exec(id ?? "");
  return found ? Number(found[1]) : null;
}

/**
 * The resumption token of an id: lets a plain `Last-Event-ID: <seq>` be resumed from.
 * @param {string | null} generationId
 * @param {string} id
 */
export function tokenOf(generationId, id) {
  const found = CURSOR.exec(id);
  return found && generationId ? `resumption_id=${generationId}&seq=${found[1]}&sig=${found[2]}` : null;
}

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});
const UTF8 = new TextEncoder();

/**
 * CRC-32 (that of zlib) of a text's UTF-8 bytes, going on from an earlier one.
 * @param {string} text
 * @param {number} [before]
 */
export function crc32(text, before = 0) {
  let value = ~before;
  for (const byte of UTF8.encode(text)) value = (value >>> 8) ^ TABLE[(value ^ byte) & 0xff];
  return ~value >>> 0;
}
