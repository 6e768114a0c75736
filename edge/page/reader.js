// One generation, read to its end over as many connections as it takes. The states are a table; what a broken connection
// means is decided in one place: it is resumed behind the last id that was shown, and every event is counted, so that the
// page can say how many were lost or repeated. Before: api, and sse of the client library. After: view.

import { Refused } from "./api.js";
import { FrameParser } from "./sse.js";

export const MOVES = {
  idle: { open: "connecting" },
  connecting: { opened: "reading", lost: "resuming", cut: "cut", ended: "ended", refused: "refused" },
  reading: { lost: "resuming", cut: "cut", ended: "ended", refused: "refused" },
  resuming: { opened: "reading", lost: "resuming", cut: "cut", ended: "ended", refused: "refused" },
  cut: { open: "resuming" },
  refused: { open: "resuming" },
  ended: {},
};

const BACKOFF_MS = [250, 500, 1000, 2000, 5000];
const FRAME_CHARACTERS_MAX = 16 << 20; // twice the edge's own bound on a frame
const IDLE_MS = 60_000; // four heartbeats: whoever is silent for longer is gone
const TERMINALS = new Set(["message_end", "generation_error"]);

export class Reader {
  state = "idle";
  seen = { events: 0, lost: 0, repeated: 0, connections: 0 };
  #api;
  #id;
  #on;
  #lastId = null;
  #nextSeq = 0;
  #abort = null;
  #wake = null;

  /** `on`: {state(state, why), event(name, data), heartbeat(data)}, called in order. */
  constructor(api, id, on) {
    this.#api = api;
    this.#id = id;
    this.#on = on;
  }

  /** Read from the beginning, or go on behind the last event. */
  open() {
    if (!("open" in MOVES[this.state])) return;
    this.#move("open");
    this.#read(new AbortController());
  }

  /** Drop the connection; the generation is not asked to end. */
  cut() {
    if (!("cut" in MOVES[this.state])) return;
    this.#abort?.abort();
    this.#move("cut");
  }

  /** Try again now, where it waits to do so. */
  hurry() {
    this.#wake?.();
  }

  async #read(abort) {
    this.#abort = abort;
    for (let failures = 0; !abort.signal.aborted; failures += 1) {
      const before = this.seen.events;
      let waitMs = BACKOFF_MS[Math.min(failures, BACKOFF_MS.length - 1)];
      let why = null;
      try {
        if (await this.#connection(abort)) return void this.#move("ended");
      } catch (error) {
        if (abort.signal.aborted) return;
        if (error instanceof Refused && !error.again) return void this.#move("refused", error.message);
        why = error instanceof Refused ? error.message : null;
        waitMs = Math.max(waitMs, error.afterMs ?? 0);
      }
      if (abort.signal.aborted) return;
      this.#move("lost", why);
      if (this.seen.events > before) failures = 0;
      await this.#pause(waitMs, abort.signal);
    }
  }

  /** One connection: true when the generation is at its end, false when only the connection is. */
  async #connection(abort) {
    const idle = new Idle(abort.signal);
    try {
      const response = await this.#api.events(this.#id, this.#lastId, idle.signal);
      if (response.status === 204) return true;
      this.seen.connections += 1;
      this.#move("opened");
      const parser = new FrameParser(FRAME_CHARACTERS_MAX);
      const body = response.body.getReader();
      for (;;) {
        idle.touch();
        const { done, value } = await body.read();
        if (done) return false;
        for (const frame of parser.feed(value)) {
          if (abort.signal.aborted) return false;
          if (this.#take(frame)) return true;
        }
        if (parser.tooLarge) throw new Refused(0, "frame_too_large", "an event is too large to be shown", false, null);
      }
    } finally {
      idle.stop();
    }
  }

  /** Hand a frame on; whether it was the terminal. One without an id is a heartbeat, or an error that is not the end. */
  #take({ event, data, id }) {
    const said = JSON.parse(data);
    if (id === undefined) {
      if (event === "heartbeat") this.#on.heartbeat(said);
      else if (event === "generation_error") throw new Error("broken off by the edge");
      return false;
    }
    this.#lastId = id;
    if (said.seq < this.#nextSeq) {
      this.seen.repeated += 1;
      return false;
    }
    this.seen.lost += said.seq - this.#nextSeq;
    this.seen.events += 1;
    this.#nextSeq = said.seq + 1;
    this.#on.event(event, said);
    return TERMINALS.has(event);
  }

  #move(what, why = null) {
    const next = MOVES[this.state][what];
    if (next === undefined) throw new Error(`a reader that is ${this.state} cannot take ${what}`);
    this.state = next;
    this.#on.state(next, why);
  }

  /** Wait before the next try; the browser's own word that it is online again ends the wait. */
  async #pause(ms, signal) {
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => (clearTimeout(timer), resolve());
      addEventListener("online", this.#wake, { once: true });
      signal.addEventListener("abort", this.#wake, { once: true });
    });
    removeEventListener("online", this.#wake);
    this.#wake = null;
  }
}

/** Aborts a connection that says nothing for too long, or with the one that it is given. */
class Idle {
  #controller = new AbortController();
  #timer = null;

  constructor(outer) {
    this.signal = AbortSignal.any([outer, this.#controller.signal]);
    this.touch();
  }

  touch() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#controller.abort(), IDLE_MS);
  }

  stop() {
    clearTimeout(this.#timer);
    this.#controller.abort();
  }
}
