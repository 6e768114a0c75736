// Markdown within a line, as a tree: emphasis, code, links. One pass with a stack, bounded in depth, so that no text takes
// long. What is not understood stays text. `open`: the text is still growing, so what was begun counts as meant.
// Pure. Before: markdown. After: nothing.

const DEPTH_MAX = 32;
const URL_CHARACTERS_MAX = 2048;
const SCHEMES = new Set(["http:", "https:", "mailto:"]);
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const BARE_URL = /https?:\/\/[^\s<>"'`]+/y;
const ENTITY = /&(?:amp|lt|gt|quot|nbsp|#39);/y;
const ENTITIES = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&nbsp;": "\u00a0", "&#39;": "'" };
const WORD = /[\p{L}\p{N}]/u;

/** The address as it may stand in a link, or null: absolute, and of a scheme that runs nothing. */
export function safeUrl(text) {
  if (text.length > URL_CHARACTERS_MAX) return null;
  try {
    const url = new URL(text);
    return SCHEMES.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/** A text as nodes: strings, and {type: strong|em|del|code|link|br, nodes|text, href}. */
export function inline(text, open = false) {
  return new Scan(text, open).nodes();
}

class Scan {
  #text;
  #open;
  #at = 0;
  #plain = "";
  #unclosed = new Set();
  #stack = [{ mark: "", nodes: [] }];

  constructor(text, open) {
    this.#text = text;
    this.#open = open;
  }

  nodes() {
    while (this.#at < this.#text.length) this.#step(this.#text[this.#at]);
    this.#flush();
    while (this.#stack.length > 1) {
      const { mark, nodes } = this.#stack.at(-1);
      if (this.#open && mark in WRAPS && nodes.length) this.#close(this.#stack.length - 1);
      else this.#flatten();
    }
    return this.#stack[0].nodes;
  }

  #step(char) {
    if (char === "\\") this.#escape();
    else if (char === "`") this.#code();
    else if (char === "*" || char === "_" || char === "~") this.#run(char);
    else if (char === "[" || (char === "!" && this.#text[this.#at + 1] === "[")) this.#openLink(char === "!" ? "![" : "[");
    else if (char === "]") this.#closeLink();
    else if (char === "<") this.#autolink();
    else if (char === "h") this.#bareUrl();
    else if (char === "&") this.#entity();
    else if (char === "\n") this.#newline();
    else this.#literal(char);
  }

  #literal(text) {
    this.#plain += text;
    this.#at += text.length;
  }

  #flush() {
    if (this.#plain) this.#stack.at(-1).nodes.push(this.#plain);
    this.#plain = "";
  }

  #put(node, next) {
    this.#flush();
    this.#stack.at(-1).nodes.push(node);
    this.#at = next;
  }

  #escape() {
    const next = this.#text[this.#at + 1];
    if (next === "\n") return this.#put({ type: "br" }, this.#at + 2);
    if (next === undefined || !ESCAPABLE.test(next)) return this.#literal("\\");
    this.#plain += next;
    this.#at += 2;
  }

  #newline() {
    if (this.#plain.endsWith("  ")) {
      this.#plain = this.#plain.trimEnd();
      return this.#put({ type: "br" }, this.#at + 1);
    }
    this.#literal("\n");
  }

  #code() {
    const length = runLength(this.#text, this.#at, "`");
    const from = this.#at + length;
    const end = this.#unclosed.has(length) ? -1 : closingRun(this.#text, from, length);
    if (end < 0) {
      this.#unclosed.add(length);
      if (!this.#open || from === this.#text.length) return this.#literal("`".repeat(length));
      return this.#put({ type: "code", text: this.#text.slice(from) }, this.#text.length);
    }
    let text = this.#text.slice(from, end).replaceAll("\n", " ");
    if (text.startsWith(" ") && text.endsWith(" ") && text.trim()) text = text.slice(1, -1);
    this.#put({ type: "code", text }, end + length);
  }

  /** A run of one mark: closes what it can, from the inside out, and opens the rest. */
  #run(char) {
    let left = runLength(this.#text, this.#at, char);
    const before = this.#text[this.#at - 1] ?? " ";
    const after = this.#text[this.#at + left] ?? " ";
    const start = this.#at;
    this.#at += left;
    const inWord = char === "_" && WORD.test(before) && WORD.test(after);
    const closes = !/\s/.test(before) && !inWord;
    const opens = !/\s/.test(after) && !inWord && (char !== "_" || !WORD.test(before));
    while (closes && left) {
      const index = this.#opener(char, left);
      if (index < 0) break;
      left -= this.#stack[index].mark.length;
      this.#flush();
      this.#close(index);
    }
    for (const size of opens && left <= 3 ? sizes(char, left) : []) {
      if (this.#stack.length >= DEPTH_MAX) break;
      this.#flush();
      this.#stack.push({ mark: char.repeat(size), nodes: [], at: start });
      left -= size;
    }
    this.#plain += char.repeat(left);
  }

  /** The innermost frame that a run of so many can close; not across the bracket of a link. */
  #opener(char, left) {
    for (let i = this.#stack.length - 1; i > 0; i -= 1) {
      const { mark } = this.#stack[i];
      if (mark.endsWith("[")) return -1;
      if (mark[0] === char && mark.length <= left && mark in WRAPS) return i;
    }
    return -1;
  }

  /** Wrap a frame; what was begun within it and not ended was no mark. */
  #close(index) {
    while (this.#stack.length - 1 > index) this.#flatten();
    const { mark, nodes } = this.#stack.pop();
    this.#stack.at(-1).nodes.push({ type: WRAPS[mark], nodes });
  }

  #flatten() {
    const { mark, nodes } = this.#stack.pop();
    const outer = this.#stack.at(-1).nodes;
    outer.push(mark);
    for (const node of nodes) outer.push(node);
  }

  #openLink(mark) {
    if (this.#stack.length >= DEPTH_MAX) return this.#literal(mark);
    this.#flush();
    this.#stack.push({ mark, nodes: [] });
    this.#at += mark.length;
  }

  #closeLink() {
    let index = this.#stack.length - 1;
    while (index > 0 && !this.#stack[index].mark.endsWith("[")) index -= 1;
    if (index === 0) return this.#literal("]");
    const target = this.#text[this.#at + 1] === "(" ? destination(this.#text, this.#at + 2) : null;
    const href = target && safeUrl(target.url);
    this.#flush();
    while (this.#stack.length - 1 > index) this.#flatten();
    if (!href || this.#stack.slice(1, index).some(({ mark }) => mark === "[")) {
      this.#flatten(); // an address that is none of ours stays to be read as it was written
      return this.#literal("]");
    }
    const { nodes } = this.#stack.pop();
    this.#put({ type: "link", href, nodes: nodes.length ? nodes : [href] }, target.next);
  }

  #autolink() {
    const end = this.#text.indexOf(">", this.#at);
    const inside = end < 0 || end - this.#at > URL_CHARACTERS_MAX ? "" : this.#text.slice(this.#at + 1, end);
    const href = /^[a-z][a-z0-9+.-]*:[^\s<]*$/i.test(inside) ? safeUrl(inside) : null;
    if (!href) return this.#literal("<");
    this.#put({ type: "link", href, nodes: [inside] }, end + 1);
  }

  #bareUrl() {
    BARE_URL.lastIndex = this.#at;
    const found = WORD.test(this.#text[this.#at - 1] ?? " ") ? null : BARE_URL.exec(this.#text)?.[0];
    const url = found?.slice(0, URL_CHARACTERS_MAX).replace(/[.,;:!?)\]}*_~|]+$/, "");
    const href = url && safeUrl(url);
    const linked = this.#stack.some(({ mark }) => mark === "[");
    if (!href || linked) return this.#literal(url || "h");
    this.#put({ type: "link", href, nodes: [url] }, this.#at + url.length);
  }

  #entity() {
    ENTITY.lastIndex = this.#at;
    const found = ENTITY.exec(this.#text)?.[0];
    this.#plain += found ? ENTITIES[found] : "&";
    this.#at += found ? found.length : 1;
  }
}

const WRAPS = { "*": "em", _: "em", "**": "strong", __: "strong", "~~": "del" };

function sizes(char, length) {
  if (char === "~") return length === 2 ? [2] : [];
  return length === 3 ? [2, 1] : [length];
}

function runLength(text, from, char) {
  let to = from;
  while (text[to] === char) to += 1;
  return to - from;
}

/** Where a run of exactly so many backticks begins. */
function closingRun(text, from, length) {
  for (let at = text.indexOf("`", from); at >= 0; at = text.indexOf("`", at)) {
    const found = runLength(text, at, "`");
    if (found === length) return at;
    at += found;
  }
  return -1;
}

/** The address between the parentheses of a link, and what follows them; null where it is none. */
function destination(text, from) {
  const rest = text.slice(from, from + URL_CHARACTERS_MAX);
  const found = /^[ \n]*(?:<([^<>\n]*)>|((?:[^\s()\\]|\([^\s()]*\))+))(?:[ \n]+(?:"[^"]*"|'[^']*'))?[ \n]*\)/.exec(rest);
  return found && { url: found[1] ?? found[2], next: from + found[0].length };
}
