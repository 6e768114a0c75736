// What runs on this edge, or ran lately, for this key's tenant: asked every two seconds while the page can be seen. A row
// keeps its element, so that the focus stays where it is. Before: main. After: api, dom.

import { byId, el, say } from "./dom.js";
import { duration, many } from "./format.js";

const EVERY_MS = 2000;
const SHOWN_MAX = 20;
const WORDS = { prefill: "waiting", decode: "streaming", postprocess: "ending" };

export class Live {
  #api;
  #open;
  #rows = new Map();
  #timer = 0;
  #current = null;

  /** `open(id)` is called when a row is pressed. */
  constructor(api, open) {
    this.#api = api;
    this.#open = open;
    document.addEventListener("visibilitychange", () => this.#timer && this.now());
  }

  /** Ask now, and from now on. */
  async now() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.now(), EVERY_MS);
    if (document.hidden) return;
    try {
      this.#show(await this.#api.running());
    } catch (error) {
      say(byId("live-said"), `The list could not be read: ${error.message}`);
      if (error.status === 401) clearTimeout(this.#timer);
    }
  }

  /** Mark the one that is open. */
  mark(id) {
    this.#current = id;
    for (const [row, { button }] of this.#rows) mark(button, row === id);
  }

  #show({ edge_id: edge, data }) {
    const listed = [...data].sort((a, b) => (a.terminal ? 1 : 0) - (b.terminal ? 1 : 0)).slice(0, SHOWN_MAX);
    const running = data.filter(({ terminal }) => !terminal).length;
    say(byId("where"), edge);
    say(byId("live-said"), data.length ? `${running} running, ${data.length - running} ended lately` : "Nothing runs now.");
    const ids = new Set(listed.map(({ generation_id: id }) => id));
    for (const [id, { item }] of this.#rows) if (!ids.has(id)) (item.remove(), this.#rows.delete(id));
    listed.forEach((said, i) => this.#row(said, i));
  }

  #row(said, i) {
    const id = said.generation_id;
    if (!this.#rows.has(id)) this.#rows.set(id, this.#made(id));
    const { item, name, about, chip } = this.#rows.get(id);
    const state = said.terminal ? (said.terminal.kind === "error" ? "failed" : "ended") : said.stage;
    const word = WORDS[state] ?? state;
    say(name, `${said.model} …${id.slice(-6)}`);
    say(about, `${duration(said.elapsed_ms * 1000)} · ${many(said.last_seq + 1, "event")} · ${many(said.readers, "reader")}`);
    say(chip, word);
    chip.dataset.state = state;
    const list = byId("live");
    if (list.children[i] !== item) list.insertBefore(item, list.children[i] ?? null);
  }

  #made(id) {
    const [name, about, chip] = [el("span", { class: "name" }), el("span", { class: "about" }), el("span", { class: "chip" })];
    const button = el("button", { type: "button", class: "pick" }, name, chip, about);
    button.addEventListener("click", () => this.#open(id));
    mark(button, id === this.#current);
    return { item: el("li", {}, button), button, name, about, chip };
  }
}

function mark(button, current) {
  if (current) button.setAttribute("aria-current", "true");
  else button.removeAttribute("aria-current");
}
