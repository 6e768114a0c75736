// Numbers and ids as a person reads them. Pure. Before: nothing. After: facts, timeline, live.

/** Microseconds as milliseconds, seconds or minutes; a dash where nothing was observed. */
export function duration(us) {
  if (us === null || us === undefined) return "–";
  const ms = us / 1000;
  if (ms < 1) return `${us} µs`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 59_995) return `${(ms / 1000).toFixed(ms < 9_995 ? 2 : 1)} s`;
  const seconds = Math.round(ms / 1000);
  return `${Math.floor(seconds / 60)} min ${String(seconds % 60).padStart(2, "0")} s`;
}

/** A whole number with thin groups; a dash for what was not measured (never a zero). */
export function count(value) {
  return value === null || value === undefined ? "–" : String(value).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

/** An amount of money: a decimal string from end to end, never a number. */
export function money(amount, currency = "USD") {
  return amount === null || amount === undefined ? "–" : `${amount} ${currency}`;
}

/** The end of an id, where they differ. */
export function short(id) {
  return id ? `…${id.slice(-8)}` : "–";
}

/** A moment in the reader's own time. */
export function moment(us) {
  return us === null || us === undefined ? "–" : new Date(us / 1000).toLocaleTimeString();
}

/** The word for so many of a thing. */
export function many(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}
