// Server-sent events out of the bytes of a fetch, as the WHATWG says it: an id holds until the next one, data lines are
// joined, a frame without data is none, unknown fields and comments are skipped. Before: fetch. After: reader.

const FRAME_CHARACTERS_MAX = 16 << 20; // twice the edge's own bound on a frame

/** One connection's parser; `lastId` is what a reconnect gives back. */
export class SseParser {
  #decoder = new TextDecoder();
  #rest = "";
  #looked = 0;
  #event = "";
  #data = [];
  lastId;

  constructor(lastId = null) {
    this.lastId = lastId;
  }

  /** The frames that these bytes complete: {event, data, id}; `id` is null where the frame itself had none. */
  feed(bytes) {
    this.#rest += this.#decoder.decode(bytes, { stream: true });
    const frames = [];
    let from = 0;
    for (;;) {
      const end = this.#lineEnd(Math.max(from, this.#looked));
      if (end === null) break;
      this.#line(this.#rest.slice(from, end.at), frames);
      from = this.#looked = end.next;
    }
    this.#rest = this.#rest.slice(from);
    this.#looked = Math.max(0, this.#rest.length - 1);
    if (this.#rest.length > FRAME_CHARACTERS_MAX) throw new Error("a line of the stream is too long");
    return frames;
  }

  /** Where a line ends and the next begins; a carriage return at the very end may be half of a line's end. */
  #lineEnd(from) {
    for (let at = from; at < this.#rest.length; at += 1) {
      const code = this.#rest.charCodeAt(at);
      if (code === 10) return { at, next: at + 1 };
      if (code === 13) {
        if (at + 1 === this.#rest.length) return null;
        return { at, next: this.#rest.charCodeAt(at + 1) === 10 ? at + 2 : at + 1 };
      }
    }
    return null;
  }

  #ownId = null;

  #line(line, frames) {
    if (line === "") {
      if (this.#ownId !== null) this.lastId = this.#ownId;
      if (this.#data.length) frames.push({ event: this.#event || "message", data: this.#data.join("\n"), id: this.#ownId });
      this.#event = "";
      this.#data = [];
      this.#ownId = null;
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.#data.push(value);
    else if (name === "event") this.#event = value;
    else if (name === "id" && !value.includes("\0")) this.#ownId = value;
  }
}
