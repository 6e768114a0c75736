/**
 * What a client must understand of a frame, whatever the dialect: is it the end, and is it a notice without a number.
 *
 * The terminal is a numbered event. A cut behind one that is not known here is no harm: the edge answers 204 to its id.
 * Before: `sse`. After: `reading`.
 */

/** @import { Frame } from "./types.js" */

export const NATIVE = "native";

/** @type {Readonly<Record<string, ReadonlySet<string>>>} */
const END_TYPES = {
  "anthropic.messages": new Set(["message_stop", "error"]),
  "openai.responses": new Set(["response.completed", "response.incomplete", "response.failed", "error"]),
  [NATIVE]: new Set(["message_end", "generation_error"]),
};

/**
 * Whether a numbered frame ends its generation.
 * @param {string} dialect
 * @param {Frame} frame
 */
export function isTerminal(dialect, frame) {
  if (dialect === NATIVE) return END_TYPES[NATIVE].has(frame.event ?? "");
  if (dialect === "openai.chat" && frame.data.trim() === "[DONE]") return true;
  if (!/"(?:error|message_stop|response\.)/.test(frame.data)) return frame.event === "error";
  const said = objectIn(frame.data);
  if (truthy(said.error) || frame.event === "error") return true;
  if (dialect === "openai.chat") return choicesOf(said).some((choice) => choice?.finish_reason === "error");
  return END_TYPES[dialect]?.has(String(said.type)) ?? false;
}

/**
 * The code and message of an error that has no number: the connection's, not the generation's. Null for anything else.
 * @param {string} dialect
 * @param {Frame} frame
 * @returns {{ code: string, message: string } | null}
 */
export function noticeIn(dialect, frame) {
  const named = frame.event === "error" || frame.event === "generation_error";
  if (frame.id !== undefined || !(named || (dialect === "openai.chat" && frame.data.includes('"error"')))) return null;
  const { code, message } = errorIn(frame.data);
  if (!named && code === undefined && message === undefined) return null;
  return { code: code ?? "upstream_error", message: message ?? frame.data };
}

/**
 * Code and message of an error's body, in whatever dialect.
 * @param {string} text
 * @returns {{ code?: string, message?: string }}
 */
export function errorIn(text) {
  const said = objectIn(text);
  const detail = typeof said.error === "object" && said.error !== null ? said.error : said.type === "error" ? said : {};
  return {
    ...(typeof detail.code === "string" && { code: detail.code }),
    ...(typeof detail.message === "string" && { message: detail.message }),
  };
}

/**
 * @param {string} text
 * @returns {Record<string, any>}
 */
export function objectIn(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && value !== null ? value : {};
  } catch {
    return {};
  }
}

/** @param {Record<string, any>} said */
function choicesOf(said) {
  return Array.isArray(said.choices) ? said.choices : [];
}

/**
 * Whether there is something in it: an empty object or list is no error.
 * @param {unknown} value
 */
function truthy(value) {
  return typeof value === "object" && value !== null ? Object.keys(value).length > 0 : Boolean(value);
}
