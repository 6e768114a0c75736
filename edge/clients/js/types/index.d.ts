/**
 * tokentrail-client: streams of LLM answers that survive a broken connection.
 *
 * Reading order: `types`, `limits`, `states`, `retry`, `sse`, `progress`, `connections`, `reading` (the core), then `transport` (under an
 * SDK) or `stream` (instead of one).
 */
export { resumableFetch, resumableFetch as fetch } from "./transport.js";
export { Stream, attach, generate, resume } from "./stream.js";
export { eventsUrl, ticketFor } from "./tickets.js";
export { GenerationError, StreamError, TokentrailError } from "./errors.js";
export { LIMITS } from "./limits.js";
export { memoryStore } from "./stores/memory.js";
export { indexedDBStore } from "./stores/indexeddb.js";
export type Store = import("./types.js").Store;
export type Position = import("./types.js").Position;
export type StateChange = import("./types.js").StateChange;
export type TransportOptions = import("./transport.js").TransportOptions;
export type StreamOptions = import("./stream.js").StreamOptions;
export type Item = import("./answer.js").Item;
export type End = import("./answer.js").End;
export type ToolCall = import("./answer.js").ToolCall;
export type Limits = import("./limits.js").Limits;
/** @typedef {import("./types.js").Store} Store */
/** @typedef {import("./types.js").Position} Position */
/** @typedef {import("./types.js").StateChange} StateChange */
/** @typedef {import("./transport.js").TransportOptions} TransportOptions */
/** @typedef {import("./stream.js").StreamOptions} StreamOptions */
/** @typedef {import("./answer.js").Item} Item */
/** @typedef {import("./answer.js").End} End */
/** @typedef {import("./answer.js").ToolCall} ToolCall */
/** @typedef {import("./limits.js").Limits} Limits */
