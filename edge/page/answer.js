// The answer as it comes: text as Markdown, reasoning folded away, a tool's arguments and citations as what they are. Each
// kind of part has a section; the sections stand in the order in which they began. What was sent is kept letter by letter,
// for who wants to see or copy that. A screen reader is told whole sentences. Before: view. After: markdown.

import { el, say } from "./dom.js";
import { safeUrl } from "./inline.js";
import { GrowingMarkdown } from "./markdown.js";

const SPEAK_EVERY_MS = 1200;
const NEAR_END_PX = 32;
const TITLES = { reasoning: "Reasoning", refusal: "Refusal", tool_call: "Tool call" };

export class Answer {
  #paper;
  #spoken;
  #sections = new Map();
  #raw = false;
  #unspoken = "";
  #spokeAt = 0;

  constructor(paper, spoken) {
    this.#paper = paper;
    this.#spoken = spoken;
    this.clear();
  }

  /** Everything that was sent as text, as it was sent. */
  get text() {
    return [...this.#sections.values()].filter(({ type }) => type === "text").map(({ text }) => text).join("\n\n");
  }

  clear() {
    this.#sections.clear();
    this.#paper.replaceChildren();
    this.#spoken.replaceChildren();
    this.#unspoken = "";
  }

  /** Take the parts of an event. */
  add(parts) {
    for (const part of parts) {
      if (!part.text && !part.name) continue;
      const section = this.#section(part);
      section.text += part.text ?? "";
      if (part.name && !section.title) section.title = part.name;
      if (part.url) section.urls.push(part.url);
      section.fresh = true;
      if (section.type === "text") this.#unspoken += part.text ?? "";
    }
  }

  /** Bring the page up to what came. */
  show(final = false) {
    const { scrollHeight, scrollTop, clientHeight } = this.#paper;
    const atEnd = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
    for (const section of this.#sections.values()) {
      if (section.fresh || final) this.#draw(section, final);
      section.fresh = false;
    }
    if (atEnd) this.#paper.scrollTop = this.#paper.scrollHeight;
    this.#speak(final);
  }

  /** Show what was sent, letter by letter, or what it means. */
  showRaw(raw, final) {
    this.#raw = raw;
    this.#paper.replaceChildren();
    for (const section of this.#sections.values()) {
      section.element = null;
      section.markdown = null;
      section.fresh = true;
    }
    this.show(final);
  }

  #section(part) {
    const { type, choice_index: choice = 0, block_index: block, tool_index: tool } = part;
    const key = type === "citation" ? type : [type, choice, block, tool].join("/");
    if (!this.#sections.has(key)) {
      this.#sections.set(key, { type, choice, text: "", title: "", urls: [], element: null, markdown: null, fresh: true });
    }
    return this.#sections.get(key);
  }

  #draw(section, final) {
    if (!section.element) {
      section.element = el("div", { class: `part ${section.type}`, "data-type": section.type, "data-choice": String(section.choice) });
      this.#paper.append(section.element);
    }
    if (this.#raw) drawRaw(section);
    else if (section.type === "text" || section.type === "refusal") drawMarkdown(section, final);
    else if (section.type === "citation") drawCitations(section);
    else drawPlain(section);
  }

  /** Tell whole sentences, a few at a time: a word at a time cannot be listened to. */
  #speak(final) {
    const now = performance.now();
    if (!final && now - this.#spokeAt < SPEAK_EVERY_MS) return;
    const end = final ? this.#unspoken.length : lastSentenceEnd(this.#unspoken);
    const sentences = this.#unspoken.slice(0, end).trim();
    if (!sentences) return;
    this.#unspoken = this.#unspoken.slice(end);
    this.#spokeAt = now;
    this.#spoken.append(el("p", {}, sentences));
    while (this.#spoken.childElementCount > 3) this.#spoken.firstElementChild.remove();
  }
}

function lastSentenceEnd(text) {
  for (let at = text.length - 1; at > 0; at -= 1) {
    if (text[at] === "\n" || (/\s/.test(text[at]) && ".!?:".includes(text[at - 1]))) return at + 1;
  }
  return 0;
}

function drawRaw(section) {
  if (!section.element.firstChild) section.element.append(el("pre", { class: "as-sent" }, ""));
  const shown = section.element.firstChild.firstChild;
  shown.appendData(section.text.slice(shown.length));
}

function drawMarkdown(section, final) {
  section.markdown ??= new GrowingMarkdown(section.element);
  section.markdown.append(section.text.slice(section.markdown.text.length));
  section.markdown.show(final);
}

function drawPlain(section) {
  const open = section.type !== "reasoning";
  if (!section.element.firstChild) {
    section.element.append(el("details", { open }, el("summary"), el("pre", {}, "")));
  }
  const [summary, pre] = section.element.firstChild.children;
  const title = TITLES[section.type] ?? section.type;
  say(summary, section.title ? `${title}: ${section.title}` : title);
  pre.firstChild.appendData(section.text.slice(pre.firstChild.length));
}

function drawCitations(section) {
  const links = section.urls.map((url) => {
    const href = safeUrl(url);
    return el("li", {}, href ? el("a", { href, target: "_blank", rel: "noopener noreferrer nofollow" }, url) : url);
  });
  section.element.replaceChildren(el("h4", {}, "Sources"), el("ul", {}, links));
}
