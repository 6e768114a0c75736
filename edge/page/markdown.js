// Markdown that is shown while it is still being written. A text is cut into blocks; whatever can no longer change is
// built once and left alone, only the open end is built again. Elements are made one by one and text goes in as text: no
// markup of a model is ever parsed, and a link leads only where `safeUrl` allows. Before: answer. After: inline, dom.

import { el } from "./dom.js";
import { inline } from "./inline.js";

const DEPTH_MAX = 8;
const FENCE = /^ {0,3}(`{3,}|~{3,})(.*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]|$)/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const MARKER = /^( {0,3})([-*+]|\d{1,9}[.)])( {1,4}|\t|$)/;
const DELIMITERS = /^[ |:-]*$/;

/** The blocks of some lines; each says by `line` where it begins. */
export function blocksOf(lines, depth = 0) {
  const blocks = [];
  for (let at = 0; at < lines.length; ) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const block = blockAt(lines, at, depth);
    blocks.push({ ...block, line: at });
    at = block.next;
  }
  return blocks;
}

function blockAt(lines, at, depth) {
  const line = lines[at];
  if (FENCE.test(line)) {
    const fenced = fence(lines, at);
    if (fenced) return fenced;
  }
  if (HEADING.test(line)) return heading(line, at);
  if (RULE.test(line)) return { type: "rule", next: at + 1 };
  if (depth < DEPTH_MAX && QUOTE.test(line)) return quote(lines, at, depth);
  if (depth < DEPTH_MAX && MARKER.test(line)) return list(lines, at, depth);
  return table(lines, at) ?? paragraph(lines, at);
}

function fence(lines, at) {
  const [, mark, info] = FENCE.exec(lines[at]);
  if (mark[0] === "`" && info.includes("`")) return null;
  const indent = lines[at].indexOf(mark[0]);
  let next = at + 1;
  while (next < lines.length && !closes(lines[next], mark)) next += 1;
  const text = lines.slice(at + 1, next).map((line) => unindented(line, indent)).join("\n");
  return { type: "code", language: info.trim().split(/\s/)[0], text, next: Math.min(next + 1, lines.length) };
}

function closes(line, mark) {
  const text = line.trim();
  return text.length >= mark.length && text === mark[0].repeat(text.length) && indentOf(line) < 4;
}

function heading(line, at) {
  const level = HEADING.exec(line)[1].length;
  let text = line.trim().slice(level).trim();
  let end = text.length;
  while (end && text[end - 1] === "#") end -= 1;
  if (end === 0 || text[end - 1] === " ") text = text.slice(0, end).trimEnd();
  return { type: "heading", level, text, next: at + 1 };
}

function quote(lines, at, depth) {
  let next = at;
  while (next < lines.length && QUOTE.test(lines[next])) next += 1;
  const inner = lines.slice(at, next).map((line) => line.replace(QUOTE, ""));
  return { type: "quote", blocks: blocksOf(inner, depth + 1), next };
}

/** A list: its items go on over lines that are indented, and over one blank line; a marker of another kind ends it. */
function list(lines, at, depth) {
  const [, base, first] = MARKER.exec(lines[at]);
  const ordered = /\d/.test(first);
  const items = [];
  let loose = false;
  let next = at;
  while (next < lines.length) {
    const marker = MARKER.exec(lines[next]);
    if (!marker || kindOf(marker[2]) !== kindOf(first) || RULE.test(lines[next])) break;
    const { inner, to, blank } = item(lines, next, marker);
    items.push(blocksOf(inner, depth + 1));
    next = to;
    const following = next < lines.length ? MARKER.exec(lines[next]) : null;
    const goesOn = following && kindOf(following[2]) === kindOf(first) && !RULE.test(lines[next]);
    if (blank && goesOn) loose = true;
    if (inner.some((text, i) => !text.trim() && i < inner.length - 1)) loose = true;
  }
  return { type: "list", ordered, start: ordered ? Number.parseInt(first, 10) : 1, items, loose, base: base.length, next };
}

function kindOf(marker) {
  return marker.at(-1);
}

function item(lines, at, marker) {
  const width = marker[0].length;
  const nested = marker[1].length + 2;
  const inner = [lines[at].slice(width)];
  let to = at + 1;
  let blank = false;
  for (; to < lines.length; to += 1) {
    const line = lines[to];
    if (!line.trim()) blank = true;
    else if (indentOf(line) >= nested) blank = false;
    else if (blank || starts(lines, to)) break;
    inner.push(unindented(line, width));
  }
  while (inner.length > 1 && !inner.at(-1).trim()) inner.pop();
  return { inner, to, blank };
}

function table(lines, at) {
  const under = lines[at + 1];
  if (!lines[at].includes("|") || under === undefined || !under.includes("-") || !DELIMITERS.test(under)) return null;
  const head = cells(lines[at]);
  const aligned = cells(under);
  if (head.length !== aligned.length || !aligned.every((cell) => /^:?-+:?$/.test(cell))) return null;
  const align = aligned.map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "centre" : "end") : "start"));
  const rows = [];
  let next = at + 2;
  for (; next < lines.length && lines[next].includes("|"); next += 1) {
    const row = cells(lines[next]);
    rows.push(head.map((_, i) => row[i] ?? ""));
  }
  return { type: "table", head, align, rows, next };
}

/** The cells of a row: pipes part them, but not one behind a backslash or within code. */
function cells(line) {
  const found = [];
  let cell = "";
  let code = false;
  const text = line.trim().replace(/^\|/, "");
  for (let i = 0; i < text.length; i += 1) {
    if (text[i] === "`") code = !code;
    if (text[i] === "\\" && text[i + 1] === "|") cell += text[(i += 1)];
    else if (text[i] === "|" && !code) {
      found.push(cell.trim());
      cell = "";
    } else cell += text[i];
  }
  return cell.trim() ? [...found, cell.trim()] : found;
}

function paragraph(lines, at) {
  let next = at + 1;
  while (next < lines.length && lines[next].trim() && !starts(lines, next)) next += 1;
  const text = lines.slice(at, next).map((line) => line.trimStart()).join("\n");
  return { type: "paragraph", text, next };
}

/** Whether a block begins here that needs no blank line before it. */
function starts(lines, at) {
  const line = lines[at];
  const marker = MARKER.exec(line);
  if (marker && line.length > marker[0].length) return true;
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || table(lines, at) !== null;
}

function indentOf(line) {
  return line.length - line.trimStart().length;
}

function unindented(line, most) {
  return line.slice(Math.min(most, indentOf(line)));
}

// ---- elements

/** A block as an element; `open`: its end is still being written. */
export function built(block, open = false) {
  switch (block.type) {
    case "code":
      return code(block);
    case "heading":
      return el(`h${Math.min(6, block.level + 3)}`, { class: `h${block.level}` }, spans(inline(block.text, open)));
    case "rule":
      return el("hr");
    case "quote":
      return el("blockquote", {}, childrenOf(block.blocks, open));
    case "list":
      return listed(block, open);
    case "table":
      return tabled(block, open);
    default:
      return el("p", {}, spans(inline(block.text, open)));
  }
}

function childrenOf(blocks, open) {
  return blocks.map((block, i) => built(block, open && i === blocks.length - 1));
}

function code({ language, text }) {
  const name = /^[\w+#.-]{1,30}$/.test(language) ? language : "";
  const label = name ? `Code: ${name}` : "Code";
  return el("pre", { tabindex: "0", role: "region", "aria-label": label, "data-language": name || null }, el("code", {}, text));
}

function listed({ ordered, start, items, loose }, open) {
  const rows = items.map((blocks, i) => {
    const last = open && i === items.length - 1;
    const [first, ...rest] = blocks;
    if (loose || first?.type !== "paragraph") return el("li", {}, childrenOf(blocks, last));
    return el("li", {}, spans(inline(first.text, last && !rest.length)), childrenOf(rest, last));
  });
  return ordered ? el("ol", { start: start === 1 ? null : String(start) }, rows) : el("ul", {}, rows);
}

function tabled({ head, align, rows }, open) {
  const row = (name, texts, last) =>
    el("tr", {}, texts.map((text, i) => el(name, { class: align[i] }, spans(inline(text, last && i === texts.length - 1)))));
  const body = rows.map((texts, i) => row("td", texts, open && i === rows.length - 1));
  const table = el("table", {}, el("thead", {}, row("th", head, false)), el("tbody", {}, body));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table" }, table);
}

function spans(nodes) {
  return nodes.map((node) => {
    if (typeof node === "string") return node;
    if (node.type === "br") return el("br");
    if (node.type === "code") return el("code", {}, node.text);
    if (node.type !== "link") return el(node.type, {}, spans(node.nodes));
    return el("a", { href: node.href, target: "_blank", rel: "noopener noreferrer nofollow" }, spans(node.nodes));
  });
}

/** A text that grows, shown in an element of its own. */
export class GrowingMarkdown {
  text = "";
  #target;
  #settled = 0; // the text before it can no longer change what is shown of it
  #kept = 0; // so many children belong to that text
  #shown = []; // what the children behind it were made of

  constructor(target) {
    this.#target = target;
  }

  append(text) {
    this.text += text;
  }

  /** Bring the element up to the text; `final`: nothing follows, so what was begun and not ended was no mark. */
  show(final = false) {
    const lines = this.text.slice(this.#settled).replace(/\r\n?/g, "\n").split("\n");
    const blocks = blocksOf(lines);
    blocks.forEach((block, i) => this.#child(i, block, lines, !final && i === blocks.length - 1));
    while (this.#target.children.length > this.#kept + blocks.length) this.#target.lastElementChild.remove();
    this.#shown.length = blocks.length;
    this.#settle(blocks, lines);
  }

  #child(i, block, lines, open) {
    const source = `${open}\n${lines.slice(block.line, block.next).join("\n")}`;
    if (this.#shown[i] === source) return;
    const before = this.#target.children[this.#kept + i];
    const shown = before?.tagName === "PRE" && block.type === "code" ? before.firstElementChild.firstChild : null;
    if (shown && sameCode(before, block) && block.text.startsWith(shown.data)) {
      shown.appendData(block.text.slice(shown.data.length)); // a long listing grows at its end
    } else if (before) before.replaceWith(built(block, open));
    else this.#target.append(built(block, open));
    this.#shown[i] = source;
  }

  /** A block can still become a part of the one before it until the line that makes it one is whole. */
  #settle(blocks, lines) {
    if (this.text.endsWith("\r")) return;
    const last = blocks.findLastIndex(({ line, type }) => line + (type === "table" ? 1 : 0) < lines.length - 1);
    if (last <= 0) return;
    this.#settled += offsetOf(this.text.slice(this.#settled), blocks[last].line);
    this.#kept += last;
    this.#shown.splice(0, last);
  }
}

function sameCode(pre, block) {
  return (pre.dataset.language ?? "") === (/^[\w+#.-]{1,30}$/.test(block.language) ? block.language : "");
}

/** Where a line begins in a text whose line ends may be of any kind. */
function offsetOf(text, line) {
  const ends = /\r\n?|\n/g;
  for (let i = 0; i < line; i += 1) ends.exec(text);
  return line === 0 ? 0 : ends.lastIndex;
}
