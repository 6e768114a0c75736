/**
 * Server-sent events: bytes in, whole frames out, and frames as bytes again. Pure; the grammar is WHATWG HTML's.
 *
 * Any split of the same bytes gives the same frames. A frame that no blank line has closed is none: after a cut it comes
 * again. Comments and `retry:` are dropped. Before: `types`. After: `reading`.
 */

/** @import { Frame } from "./types.js" */

const LINE_END = /\r\n|\r|\n/g;

export class FrameParser {
  #decoder = new TextDecoder();
  #line = "";
  #afterCr = false;
  #frameChars = 0;
  /** @type {string[]} */
  #data = [];
  /** @type {string | undefined} */
  #event;
  /** @type {string | undefined} */
  #id;

  /** Whether one event was above the bound: nothing behind it is read, and reading it again would not help. */
  tooLarge = false;

  /** @param {number} frameCharsMax */
  constructor(frameCharsMax) {
    this.frameCharsMax = frameCharsMax;
  }

  /**
   * The frames that end within these bytes.
   * @param {Uint8Array} bytes
   * @returns {Frame[]}
   */
  feed(bytes) {
    /** @type {Frame[]} */
    const frames = [];
    let text = this.#decoder.decode(bytes, { stream: true });
    if (text === "") return frames;
    if (this.#afterCr && text.startsWith("\n")) text = text.slice(1);
    this.#afterCr = text === "" ? false : text.endsWith("\r");
    let from = 0;
    for (const end of text.matchAll(LINE_END)) {
      if (this.tooLarge) return frames;
      this.#take(this.#line + text.slice(from, end.index), frames);
      this.#line = "";
      from = end.index + end[0].length;
    }
    this.#line += text.slice(from);
    this.#check(this.#line.length);
    return frames;
  }

  /**
   * @param {string} line
   * @param {Frame[]} frames
   */
  #take(line, frames) {
    if (line === "") {
      if (this.#data.length > 0) frames.push(this.#frame());
      this.#reset();
      return;
    }
    this.#check(line.length);
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (name === "data") this.#data.push(value);
    else if (name === "event") this.#event = value || undefined;
    else if (name === "id" && !value.includes("\0")) this.#id = value;
    else return;
    this.#frameChars += line.length;
  }

  #frame() {
    /** @type {Frame} */
    const frame = { data: this.#data.join("\n") };
    if (this.#event !== undefined) frame.event = this.#event;
    if (this.#id !== undefined) frame.id = this.#id;
    return frame;
  }

  #reset() {
    this.#data = [];
    this.#event = this.#id = undefined;
    this.#frameChars = 0;
  }

  /** @param {number} lineChars */
  #check(lineChars) {
    this.tooLarge ||= this.#frameChars + lineChars > this.frameCharsMax;
    if (this.tooLarge) this.#line = "";
  }
}

/**
 * Frames as an SDK reads them.
 * @param {Frame[]} frames
 * @returns {Uint8Array}
 */
export function encodeFrames(frames) {
  const text = frames.map(({ id, event, data }) => {
    const head = (event === undefined ? "" : `event: ${event}\n`) + (id === undefined ? "" : `id: ${id}\n`);
    return `${head}data: ${data.replaceAll("\n", "\ndata: ")}\n\n`;
  });
  return new TextEncoder().encode(text.join(""));
}
