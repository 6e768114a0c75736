// The generation that is open: its reader, its text, its picture, its facts, and the three things that can be done to it.
// Drawn once a frame at most, the picture four times a second. Before: main. After: reader, trace, answer, timeline, facts.

import { Answer } from "./answer.js";
import { byId, el, enable, onPress, say } from "./dom.js";
import { facts } from "./facts.js";
import { count, duration, many } from "./format.js";
import { MOVES, Reader } from "./reader.js";
import { inWords, picture } from "./timeline.js";
import { Trace } from "./trace.js";

const PICTURE_EVERY_MS = 250;
const IDLE_SHARE = 3; // three times as long as a drawing took, nothing is drawn
const ASK_EVERY_MS = 3000;
const ASK_AFTER_END_MS = [300, 1500, 3000, 6000, 12_000, 30_000, 60_000]; // the cost comes when the pipeline has counted it

export class View {
  #api;
  #said;
  #turned;
  #id = null;
  #reader = null;
  #trace = new Trace();
  #answer = new Answer(byId("answer"), byId("spoken"));
  #cancelling = false;
  #frame = 0;
  #tookMs = 0;
  #drawnAtMs = 0;
  #asking = 0;
  #resize = new ResizeObserver(() => this.#picture(true));

  /** `said(id)` is called when another generation is opened, `turned()` at its first content and at its end. */
  constructor(api, said, turned) {
    this.#api = api;
    this.#said = said;
    this.#turned = turned;
    onPress(byId("cut"), () => this.#reader.cut());
    onPress(byId("resume"), () => this.resume());
    onPress(byId("cancel"), () => this.cancel());
    onPress(byId("raw"), () => this.#toggleRaw());
    onPress(byId("copy"), () => this.#copy());
    this.#resize.observe(byId("picture"));
    addEventListener("online", () => this.#reader?.hurry());
  }

  get id() {
    return this.#id;
  }

  get ended() {
    return this.#trace.terminal !== null;
  }

  /** Read a generation from its beginning. */
  open(id) {
    this.#reader?.cut();
    clearTimeout(this.#asking);
    this.#id = id;
    this.#trace = new Trace();
    this.#answer.clear();
    this.#cancelling = false;
    const trace = this.#trace;
    const mine = (act) => (...said) => trace === this.#trace && act(...said);
    this.#reader = new Reader(this.#api, id, {
      state: mine((state, why) => this.#moved(state, why)),
      event: mine((name, said) => this.#event(name, said)),
      heartbeat: mine((said) => {
        trace.heartbeat(said, performance.now());
        this.#tell();
      }),
    });
    byId("generation").removeAttribute("data-empty");
    this.#said(id);
    this.#reader.open();
    this.#ask(0);
  }

  resume() {
    this.#reader.open();
  }

  /** Ask for the generation's end, and see it: who cut the connection is connected again for that. */
  async cancel() {
    const trace = this.#trace;
    this.#cancelling = true;
    this.#tell();
    try {
      await this.#api.cancel(this.#id);
      if (trace === this.#trace && this.#reader.state === "cut") this.#reader.open();
    } catch (error) {
      if (trace !== this.#trace) return;
      this.#cancelling = false;
      this.#tell(`It could not be cancelled: ${error.message}`);
    }
  }

  #event(name, said) {
    const before = [this.ended, this.#trace.hasContent];
    this.#trace.event(name, said, performance.now());
    if (this.ended !== before[0] || this.#trace.hasContent !== before[1]) this.#turned();
    if (said.parts) this.#answer.add(said.parts);
    this.#soon();
  }

  #moved(state, why) {
    this.#tell(null, why);
    this.#soon();
    if (state === "ended") this.#askAfterEnd();
    else if (state === "cut" || state === "reading") this.#ask(300);
  }

  /** Draw in the next frame; where drawing takes long, later, so that most of the time is left to whoever uses the page. */
  #soon() {
    this.#frame ||= setTimeout(() => requestAnimationFrame(() => {
      this.#frame = 0;
      const beganMs = performance.now();
      this.#draw();
      setTimeout(() => (this.#tookMs = performance.now() - beganMs)); // behind the browser's own part of it
    }), IDLE_SHARE * this.#tookMs);
  }

  #draw() {
    this.#answer.show(this.ended);
    this.#tell();
    this.#picture(false);
  }

  /** The picture, its words and the facts; `now`: however short ago they were drawn. */
  #picture(now) {
    const nowMs = performance.now();
    if (this.#id === null || (!now && !this.ended && nowMs - this.#drawnAtMs < PICTURE_EVERY_MS)) return;
    this.#drawnAtMs = nowMs;
    const model = this.#trace.model(nowMs, this.#reader.state === "reading");
    const width = Math.floor(byId("picture").clientWidth);
    if (width > 0) byId("picture").replaceChildren(picture(model, width));
    const words = inWords(model).map((text) => el("li", {}, text));
    byId("in-words").replaceChildren(...words);
    renew(byId("facts"), facts(model, this.#trace, (id) => this.open(id)));
  }

  /** Draw while time passes, also where nothing comes: a stall is seen as it grows. */
  tick() {
    if (this.#id !== null && !this.ended && this.#reader.state !== "refused") this.#picture(false);
  }

  #tell(said = null, why = null) {
    const { state, seen } = this.#reader ?? { state: "idle", seen: null };
    byId("dot").dataset.state = this.ended ? this.#trace.model(0).terminal.kind : state;
    const words = said ?? this.#words(state, why);
    if (words) say(byId("status"), words);
    say(byId("counts"), seen ? `${many(seen.events, "event")} · ${count(seen.lost)} lost · ${count(seen.repeated)} repeated · ${many(seen.connections, "connection")}` : "");
    say(byId("generation-id"), this.#id ?? "");
    enable(byId("cut"), "cut" in MOVES[state]);
    enable(byId("resume"), "open" in MOVES[state] && state !== "idle");
    enable(byId("cancel"), this.#id !== null && !this.ended && !this.#cancelling);
  }

  #words(state, why) {
    const { terminal } = this.#trace;
    if (terminal) return ended(this.#trace.model(0).terminal);
    if (this.#cancelling) return "Cancelling…";
    const words = {
      idle: null,
      connecting: "Connecting…",
      reading: this.#trace.hasContent ? "Streaming" : "Waiting for the first token",
      resuming: why ? `Connection lost, resuming… (${why})` : null,
      cut: this.#trace.state?.terminal
        ? "You cut the connection. It has ended meanwhile; resume to see the rest."
        : "You cut the connection. It runs on without you; resume when you like.",
      refused: why ? `It cannot be read: ${why}` : null,
      ended: "Ended",
    };
    if (state === "resuming" && !words.resuming) {
      return byId("status").textContent.includes("resuming…") ? null : "Connection lost, resuming…";
    }
    return words[state];
  }

  async #ask(afterMs, then = () => this.#ask(ASK_EVERY_MS)) {
    clearTimeout(this.#asking);
    const trace = this.#trace;
    this.#asking = setTimeout(async () => {
      try {
        const state = await this.#api.generation(this.#id);
        if (trace !== this.#trace) return;
        trace.told(state, performance.now());
        this.#tell();
        this.#picture(true);
      } catch {
        if (trace !== this.#trace) return; // the reader says what is wrong; this only adds to the picture
      }
      const over = this.ended || trace.state?.terminal || this.#reader.state === "refused";
      if (then.late || !over) then();
    }, afterMs);
  }

  #askAfterEnd(times = ASK_AFTER_END_MS) {
    const [afterMs, ...more] = times;
    const next = () => {
      if (more.length && (this.#trace.state?.provider_cost ?? null) === null) this.#askAfterEnd(more);
    };
    this.#ask(afterMs, Object.assign(next, { late: true }));
  }

  #toggleRaw() {
    const raw = byId("raw").getAttribute("aria-pressed") !== "true";
    byId("raw").setAttribute("aria-pressed", String(raw));
    this.#answer.showRaw(raw, this.ended);
  }

  async #copy() {
    const button = byId("copy");
    try {
      await navigator.clipboard.writeText(this.#answer.text);
      say(button, "Copied");
    } catch {
      say(button, "Not allowed");
    }
    setTimeout(() => say(button, "Copy"), 1500);
  }
}

/** Put these in the place of an element's children, and leave those that say the same: one of them may have the focus. */
function renew(element, children) {
  children.forEach((child, i) => {
    const before = element.children[i];
    if (!before) element.append(child);
    else if (!before.isEqualNode(child)) before.replaceWith(child);
  });
  while (element.children.length > children.length) element.lastElementChild.remove();
}

function ended({ kind, word, message, atUs }) {
  if (kind === "failed") return `Failed after ${duration(atUs)}: ${word}${message ? `. ${message}` : ""}`;
  if (kind === "cancelled") return `Cancelled after ${duration(atUs)}`;
  return `Complete after ${duration(atUs)}: ${word}`;
}
