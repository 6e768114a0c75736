/**
 * What the native events of a generation add up to: one item for each event that says something, and the whole. Pure.
 *
 * Tool calls are given once, with the end, and only those that are complete; JSON is parsed only behind a proper end: half
 * of either is not to be acted on. Before: `dialects`. After: `stream`.
 */

import { seqOf } from "./cursor.js";

/** @import { Frame } from "./types.js" */

/**
 * A piece of an event: `type` is text, reasoning, refusal, citation, tool_call or finish.
 * @typedef {{ type: string, text?: string, choice_index?: number, tool_index?: number, tool_call_id?: string, name?: string, [field: string]: unknown }} Part
 * @typedef {{ id: string, name: string, arguments: string, input: unknown, choice: number, index: number }} ToolCall
 */

/**
 * `start`: the generation's own facts. `delta`: text (of the first choice), and all parts of the event. `end`: how it
 * ended, with everything that it came to. `fields` is the event's data as it came.
 * @typedef {{ type: "start", seq: number, id: string, fields: Record<string, any> }} Start
 * @typedef {{ type: "delta", seq: number, id: string, text: string, parts: Part[] }} Delta
 * @typedef {{ type: "end", seq: number, id: string, finishReason: string, text: string, reasoning: string, choices: string[],
 *   toolCalls: ToolCall[], usage: Record<string, any> | null, fields: Record<string, any> }} End
 * @typedef {Start | Delta | End} Item
 */

/** An end that leaves nothing out. */
const PROPER = new Set(["stop", "tool_call"]);
const SAID = new Set(["text", "reasoning", "refusal", "citation"]);

/** A generation says more than anybody wants to hold. */
export class TooLong extends Error {}

export class Answer {
  #chars = 0;
  /** @type {string[]} */
  #texts = [];
  /** @type {Map<string, { id: string, name: string, arguments: string, choice: number, index: number }>} */
  #calls = new Map();
  reasoning = "";
  /** @type {End | null} */
  end = null;
  /** The error that ended it. @type {Record<string, any> | null} */
  failure = null;

  /** @param {number} charsMax of all that is said */
  constructor(charsMax) {
    this.charsMax = charsMax;
  }

  /** The text of the first choice. */
  get text() {
    return this.#texts[0] ?? "";
  }

  /**
   * Take one frame; null where it says nothing of its own. Raises where it is no event of an edge's.
   * @param {Frame} frame
   * @returns {Item | null}
   */
  take(frame) {
    const seq = seqOf(frame.id);
    if (seq === null || frame.id === undefined) return null;
    const fields = JSON.parse(frame.data);
    if (typeof fields !== "object" || fields === null) throw new TypeError("the data of an event is no object");
    const at = { seq, id: frame.id };
    if (frame.event === "message_start") return { type: "start", ...at, fields };
    if (frame.event === "generation_error") this.failure = fields;
    if (frame.event === "message_end") return (this.end = this.#ended(at, fields));
    /** @type {Part[]} */
    const parts = Array.isArray(fields.parts) ? fields.parts : [];
    let text = "";
    for (const part of parts) text += this.#part(part);
    return parts.some((part) => SAID.has(part.type)) ? { type: "delta", ...at, text, parts } : null;
  }

  /**
   * The text of the first choice in a part.
   * @param {Part} part
   */
  #part(part) {
    const { type, choice_index: choice = 0 } = part;
    const text = part.text ?? "";
    if (typeof text !== "string") throw new TypeError("the text of a part is no text");
    this.#chars += text.length;
    if (this.#chars > this.charsMax) throw new TooLong(`above ${this.charsMax} characters`);
    if (type === "tool_call") this.#call(part, choice);
    if (type === "reasoning" && choice === 0) this.reasoning += text;
    if (type !== "text") return "";
    this.#texts[choice] = (this.#texts[choice] ?? "") + text;
    return choice === 0 ? text : "";
  }

  /**
   * @param {Part} part
   * @param {number} choice
   */
  #call(part, choice) {
    const index = part.tool_index ?? 0;
    const key = `${choice}/${index}`;
    const call = this.#calls.get(key) ?? { id: "", name: "", arguments: "", choice, index };
    call.id ||= part.tool_call_id ?? "";
    call.name ||= part.name ?? "";
    call.arguments += part.text ?? "";
    this.#calls.set(key, call);
  }

  /**
   * @param {{ seq: number, id: string }} at
   * @param {Record<string, any>} fields
   * @returns {End}
   */
  #ended(at, fields) {
    const finishReason = String(fields.finish_reason ?? "unknown");
    return {
      type: "end",
      ...at,
      finishReason,
      text: this.text,
      reasoning: this.reasoning,
      choices: Array.from(this.#texts, (text) => text ?? ""),
      toolCalls: [...this.#calls.values()].flatMap((call) => completed(call, finishOf(fields, call.choice, finishReason))),
      usage: fields.usage ?? null,
      fields,
    };
  }
}

/**
 * What a whole answer in JSON says. Raises where it is no whole answer, or no JSON.
 * @param {End} end
 */
export function jsonOf(end) {
  if (end.finishReason !== "stop") throw new SyntaxError(`the answer is not whole: it ended with ${end.finishReason}`);
  return JSON.parse(end.text);
}

/**
 * @param {Record<string, any>} fields
 * @param {number} choice
 * @param {string} overall
 */
function finishOf(fields, choice, overall) {
  const choices = Array.isArray(fields.choices) ? fields.choices : [];
  return choices.find((one) => (one.choice_index ?? 0) === choice)?.finish_reason ?? overall;
}

/**
 * A call with its input, if it is whole.
 * @param {Omit<ToolCall, "input">} call
 * @param {string} finishReason
 * @returns {ToolCall[]}
 */
function completed(call, finishReason) {
  if (!PROPER.has(finishReason) || call.name === "") return [];
  try {
    return [{ ...call, input: JSON.parse(call.arguments || "{}") }];
  } catch {
    return [];
  }
}
