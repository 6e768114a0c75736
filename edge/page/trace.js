// What is known of one generation's time, from two sources: its events as they are read, and what the edge says of it
// (attempts, heartbeats, readers). One model comes out, in microseconds since the request was accepted. Pure but for the
// times that it is given. Before: view. After: timeline, facts.

const CONTENT = new Set(["text", "reasoning", "refusal", "tool_call", "citation"]);
const STALL_US = 2_000_000; // the edge's own default, until an attempt's end says which threshold it had

export class Trace {
  start = null;
  terminal = null;
  state = null;
  stage = null;
  usage = null;
  tokensEstimate = 0;
  #ticks = []; // [elapsed_us, attempt] of each content event
  #lastUs = 0;
  #lastAtMs = null;

  /** An event of the stream. */
  event(name, said, nowMs) {
    this.#moved(said.elapsed_us, nowMs);
    if (name === "message_start") this.start = said;
    else if (name === "message_end" || name === "generation_error") this.terminal = { name, ...said };
    else if (said.parts?.some((part) => part.text && CONTENT.has(part.type))) this.#ticks.push([said.elapsed_us, said.attempt]);
    this.usage = said.usage ?? this.usage;
    for (const part of said.parts ?? []) this.tokensEstimate += part.tokens_estimate ?? 0;
  }

  /** A heartbeat of the connection. */
  heartbeat(said, nowMs) {
    this.stage = said.stage;
    if (said.stage !== "unknown") this.#moved(said.elapsed_ms * 1000, nowMs);
  }

  /** What the edge says of the generation. */
  told(state, nowMs) {
    this.state = state;
    const times = [state.last_content_us, state.terminal?.at_us, ...state.trace.map((record) => record.at_us)];
    this.#moved(Math.max(0, ...times.filter(Number.isFinite)), nowMs);
  }

  get hasContent() {
    return this.#ticks.length > 0;
  }

  /** The word for where it stands before its end: by the stream while it is read, else as the edge said last. */
  phase(reads) {
    if (reads && this.hasContent) return "streaming";
    return (reads ? this.stage : null) ?? this.state?.state ?? "waiting";
  }

  /** Everything that a picture needs, as of now; who does not read does not know that it is silent. */
  model(nowMs, reads = false) {
    const ended = this.terminal ?? this.state?.terminal ?? null;
    const endUs = this.terminal?.elapsed_us ?? this.state?.terminal?.at_us ?? null;
    const nowUs = ended ? (endUs ?? this.#lastUs) : this.#lastUs + (this.#lastAtMs === null ? 0 : (nowMs - this.#lastAtMs) * 1000);
    const trace = this.state?.trace ?? [];
    return {
      totalUs: Math.max(nowUs, this.#lastUs, 1),
      firstUs: this.#ticks[0]?.[0] ?? this.state?.first_content_us ?? null,
      attempts: this.#attempts(nowUs),
      ticks: this.#ticks,
      stalls: this.#stalls(nowUs, reads && !ended),
      heartbeats: trace.filter(({ kind }) => kind === "heartbeat").map(({ at_us: atUs }) => atUs),
      readers: readersOf(trace, nowUs),
      cancelUs: trace.find(({ kind }) => kind === "cancel_requested")?.at_us ?? null,
      phase: this.phase(reads),
      terminal: ended && { atUs: endUs ?? this.#lastUs, ...endOf(this.terminal ?? this.state) },
    };
  }

  #moved(us, nowMs) {
    if (!Number.isFinite(us) || us < this.#lastUs || (us === this.#lastUs && this.#lastAtMs !== null)) return;
    this.#lastUs = us;
    this.#lastAtMs = nowMs;
  }

  #attempts(nowUs) {
    const seen = [...new Set(this.#ticks.map(([, attempt]) => attempt))];
    const told = this.state?.attempts ?? [];
    const numbers = [...new Set([...told.map(({ attempt }) => attempt), ...seen])].sort((a, b) => a - b);
    return numbers.map((number) => {
      const said = told.find(({ attempt }) => attempt === number) ?? {};
      const own = this.#ticks.filter(([, attempt]) => attempt === number);
      const fromUs = said.dispatched_us ?? said.opened_us ?? 0;
      return {
        number,
        provider: said.provider ?? null,
        model: said.served_model ?? said.model ?? null,
        reason: said.reason ?? null,
        outcome: said.outcome ?? null,
        errorCode: said.error_code ?? null,
        committed: said.committed ?? own.length > 0,
        fromUs,
        firstUs: said.first_content_us ?? own[0]?.[0] ?? null,
        toUs: said.closed_us ?? (this.terminal ? (own.at(-1)?.[0] ?? fromUs) : nowUs),
      };
    });
  }

  /** The edge's own word of an attempt that ended; of the one that runs, the gaps between its events, and the open one. */
  #stalls(nowUs, reads) {
    const closed = new Map((this.state?.attempts ?? []).filter((a) => a.outcome).map((a) => [a.attempt, a]));
    const found = (this.state?.stalls ?? []).filter(({ attempt }) => closed.has(attempt)).map(stallOf);
    const thresholdUs = closed.values().next().value?.stall_threshold_us ?? this.state?.stall_threshold_us ?? STALL_US;
    let last = null;
    for (const [us, attempt] of this.#ticks) {
      if (closed.has(attempt)) continue;
      if (last && last[1] === attempt && us - last[0] > thresholdUs) found.push({ attempt, fromUs: last[0], lengthUs: us - last[0], open: false });
      last = [us, attempt];
    }
    const silentUs = last && reads ? nowUs - last[0] : 0;
    if (silentUs > thresholdUs) found.push({ attempt: last[1], fromUs: last[0], lengthUs: silentUs, open: true });
    return found;
  }
}

function stallOf({ attempt, start_us: fromUs, length_us: lengthUs, ended_by: endedBy }) {
  return { attempt, fromUs, lengthUs, endedBy, open: false };
}

/** When somebody read on the generation's own edge: spans, each with where it resumed. */
function readersOf(trace, nowUs) {
  const open = new Map();
  const spans = [];
  for (const record of trace) {
    if (record.kind === "client_attached") {
      const span = { fromUs: record.at_us, toUs: nowUs, resumedFrom: record.resumed_from ?? null, left: null };
      open.set(record.reader_id, span);
      spans.push(span);
    } else if (record.kind === "client_detached" && open.has(record.reader_id)) {
      Object.assign(open.get(record.reader_id), { toUs: record.at_us, left: record.reason ?? "left" });
      open.delete(record.reader_id);
    }
  }
  return spans;
}

/** The word for an end, and which of three kinds it is: complete, cancelled, failed. */
function endOf(said) {
  const end = said.end ?? said;
  if (end.code) return { kind: "failed", word: end.code, message: end.message };
  return { kind: end.finish_reason === "cancelled" ? "cancelled" : "complete", word: end.finish_reason ?? "ended" };
}
