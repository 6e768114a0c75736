/**
 * A store that lasts as long as its process: enough to survive cuts, not a crash.
 *
 * Before: `types`. After: `transport`, `stream`.
 */

/** @import { Frame, Position, Store } from "../types.js" */

/** So many sessions are kept by every store; the oldest leave. */
export const SESSIONS_KEPT = 20;
/** So far may a clock be set back while its sessions run. */
const SLACK_MS = 60_000;

/**
 * @param {{ keep?: number }} [options]
 * @returns {Store}
 */
export function memoryStore({ keep = SESSIONS_KEPT } = {}) {
  /** @type {Map<string, { position: Position, frames: Frame[] }>} */
  const sessions = new Map();
  return {
    async save(position, frames) {
      const saved = sessions.get(position.session) ?? { position, frames: [] };
      saved.position = { ...position };
      saved.frames.push(...frames);
      sessions.set(position.session, saved);
      for (const old of newestFirst(sessions.values()).slice(keep)) sessions.delete(old.session);
    },
    async load(session) {
      const saved = sessions.get(session);
      return saved && { position: { ...saved.position }, frames: [...saved.frames] };
    },
    async list() {
      return newestFirst(sessions.values());
    },
    async drop(session) {
      sessions.delete(session);
    },
  };
}

/**
 * What a wrong clock dated into the future counts as the oldest: it would push out everything that begins after the clock
 * was set right, the session that is being read among it.
 * @param {Iterable<{ position: Position }>} saved
 * @param {number} [wallMs]
 * @returns {Position[]}
 */
export function newestFirst(saved, wallMs = Date.now()) {
  const positions = Array.from(saved, ({ position }) => ({ ...position }));
  const begunMs = (/** @type {Position} */ { startedMs }) => (startedMs > wallMs + SLACK_MS ? 0 : startedMs);
  return positions.reverse().sort((one, other) => begunMs(other) - begunMs(one));
}
