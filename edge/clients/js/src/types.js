/**
 * The shapes that the files of this library hand to one another; no code.
 *
 * After: `limits`, which is the first file with values.
 */

/**
 * One server-sent event. `id` is the cursor of a numbered event; heartbeats and notices have none.
 * @typedef {{ id?: string, event?: string, data: string }} Frame
 */

/**
 * Where a session stands: what is stored before an event is handed over. Never holds a key or a ticket.
 *
 * `seq`: of the last numbered event, -1 before the first. `token`: the resumption token for a plain `Last-Event-ID`.
 * `crc32`: of the joined UTF-8 `data` of all numbered events up to `seq`. `startedMs`: wall clock.
 * @typedef {object} Position
 * @property {string} session
 * @property {string} base
 * @property {string} dialect
 * @property {string | null} generationId
 * @property {string | null} lastEventId
 * @property {number} seq
 * @property {string | null} token
 * @property {number} crc32
 * @property {number} startedMs
 * @property {boolean} ended
 */

/**
 * What a store gives back: the position, and the kept events from the first one on, without a gap.
 * @typedef {{ position: Position, frames: Frame[] }} Saved
 */

/**
 * Keeps sessions. `save` is one write that is there as a whole or not at all; `frames` follow those that it holds.
 * @typedef {object} Store
 * @property {(position: Position, frames: Frame[]) => Promise<void>} save
 * @property {(session: string) => Promise<Saved | undefined>} load
 * @property {() => Promise<Position[]>} list newest first
 * @property {(session: string) => Promise<void>} drop
 */

/**
 * Time and chance, as arguments.
 * @typedef {object} Clock
 * @property {() => number} nowMs monotonic
 * @property {() => number} wallMs
 * @property {() => number} random from 0 to 1
 * @property {(ms: number, signal: AbortSignal) => Promise<void>} sleep resolves early when the signal is aborted
 */

/** @typedef {"CONNECTING" | "STREAMING" | "PAUSED" | "RESUMING" | "COMPLETED" | "CANCELLED"} State */
/** @typedef {"opened" | "lost" | "again" | "resume" | "ended" | "refused" | "aborted"} Move */

/**
 * Told to `onState`. `reason`: why it paused or was cancelled. `waitMs`: until the next try, of PAUSED.
 * @typedef {{ state: State, before: State, session: string, generationId: string | null, reason?: string, waitMs?: number }} StateChange
 */

/** @typedef {typeof globalThis.fetch} Fetch */

/**
 * How one connection is made. `open` makes the first, `reopen` every other one, behind a cursor (null: from the start).
 * `cancel` ends the generation; it is called once at the most. `final`: whether an error status is the generation's own.
 * `acknowledge` tells an edge what was received; false where it did not take it.
 * @typedef {object} Source
 * @property {string | null} generationId
 * @property {boolean} [streamed] whether its answers are streams; default: yes
 * @property {(signal: AbortSignal) => Promise<Response>} open
 * @property {(lastEventId: string | null, signal: AbortSignal) => Promise<Response>} reopen
 * @property {() => Promise<void>} cancel
 * @property {(response: Response) => boolean} [final]
 * @property {((ranges: import("./acks.js").Range[]) => Promise<boolean>) | undefined} [acknowledge]
 */

/**
 * What a session is made of.
 * @typedef {object} ReadingOptions
 * @property {Source} source
 * @property {Saved} from where the session stands
 * @property {Store} store
 * @property {import("./limits.js").Limits} limits
 * @property {Clock} clock
 * @property {boolean} keepFrames whether the store is given the frames, too, or only where they end
 * @property {boolean} refusalsUp whether an answer that refuses the call is for the caller to judge (an SDK does)
 * @property {State} [state] PAUSED for a session that goes on
 * @property {AbortSignal | null} [signal] the reader's own
 * @property {(change: StateChange) => void} [onState]
 * @property {boolean} [cancelOnAbort]
 */

export {};
