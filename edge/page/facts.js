// What is known of a generation beside its text: how it ended, its times, its attempts, its tokens and cost, where it came
// from. A dash is what nobody measured; a zero is a measured zero. Before: trace. After: dom, format.

import { el } from "./dom.js";
import { count, duration, many, moment, money } from "./format.js";

const TOKENS = [
  ["input", "input"],
  ["cache_read", "read from a cache"],
  ["cache_write", "written to a cache"],
  ["output", "output"],
  ["reasoning", "of it reasoning"],
];

const PIECE_MAX = 18; // what fits into its column beside four others, on a telephone too

/** The elements of the facts; `open(id)` shows another generation. */
export function facts(model, trace, open) {
  const state = trace.state;
  return [
    general(model, trace),
    tokens(model, trace),
    attempts(model),
    stalls(model),
    lineage(state, trace.start, open),
  ].filter(Boolean);
}

function general(model, { start, state, terminal }) {
  const end = terminal ?? state?.end;
  const said = start ?? state?.start;
  return el("section", {}, el("h3", {}, "Facts"), pairs([
    model.terminal ? ["outcome", outcome(model.terminal)] : ["state", model.phase],
    ["what it says", end?.message],
    ["model", served(said?.model, end?.served_model)],
    ["dialect", start?.dialect ?? state?.dialect],
    ["edge", state?.edge_id],
    ["began", state ? moment(state.started_us) : null],
    ["first token", duration(model.firstUs)],
    [model.terminal ? "in total" : "so far", duration(model.totalUs)],
    ["trace", state && model.terminal ? (state.trace_complete ? "complete" : "not complete") : null],
  ]));
}

function outcome({ kind, word }) {
  return kind === word ? kind : `${kind}: ${word}`;
}

function served(asked, answered) {
  return answered && answered !== asked ? `${asked}, served as ${answered}` : asked;
}

/** While it runs what the stream has brought, by the edge's estimate or the provider's own count; the cost once it is counted. */
function tokens(model, { state, terminal, usage: told, tokensEstimate }) {
  const usage = state?.usage ?? terminal?.usage ?? told;
  const rows = usage ? TOKENS.map(([name, word]) => [word, usage[name] === undefined ? null : count(usage[name])]) : [];
  const source = usage?.source && usage.source !== "none" ? usage.source.replaceAll("_", " ") : null;
  if (!model.terminal) {
    const soFar = usage ? rows : [["output", tokensEstimate ? `about ${count(tokensEstimate)} so far` : "nothing yet"]];
    return el("section", {}, el("h3", {}, "Tokens and cost"), pairs([...soFar, ["provider cost", "when it has ended"]]));
  }
  return el("section", {}, el("h3", {}, "Tokens and cost"), pairs([
    ...(rows.some(([, value]) => value !== null) ? rows : unreported(terminal ?? state?.end, tokensEstimate)),
    ["counted", source],
    ["provider cost", sums(state?.provider_cost) ?? "not in the ledger yet"],
    ["charge", sums(state?.customer_charge)],
  ]));
}

/** Where no provider told a count: what the edge saw go by, which is no measure. */
function unreported(end, seen) {
  const about = end?.tokens_generated ?? seen;
  return [["tokens", "not reported"], ["output", about ? `about ${count(about)}, as it went by` : null]];
}

/** What the ledger says, exactly; what it could not price is no zero. */
function sums(lines) {
  const said = lines?.map(({ amount, currency, lines_without_amount: without }) =>
    [amount === null ? null : money(amount, currency), without ? `${many(without, "line")} without a price` : null].filter(Boolean).join(", "));
  return said?.join(" and ") ?? null;
}

function attempts(model) {
  if (!model.attempts.length) return null;
  const rows = model.attempts.map(({ number, provider, reason, outcome, errorCode, fromUs, firstUs, toUs }) =>
    el("tr", {},
      el("th", { scope: "row" }, String(number)),
      named([provider ?? "–", reason && reason !== "first" ? ` (${reason})` : ""].join("")),
      named(errorCode ?? outcome ?? "runs"),
      el("td", { class: "end" }, firstUs === null ? "–" : duration(firstUs - fromUs)),
      el("td", { class: "end" }, duration(toUs - fromUs))));
  const head = ["#", "provider", "outcome", "to first", "in all"].map((word, i) => el("th", { scope: "col", class: i > 2 ? "end" : null }, word));
  return el("section", {}, el("h3", {}, "Attempts"), el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows)));
}

/** A cell with a name, which is broken behind a joint of its own: anywhere else only where it is very long. */
function named(text) {
  const [first, ...others] = text.split(/(?<=[_/])/);
  const longest = Math.max(...text.split(/[_/ -]/).map((piece) => piece.length));
  return el("td", { class: longest > PIECE_MAX ? "long" : null }, first, ...others.flatMap((piece) => [el("wbr"), piece]));
}

function stalls(model) {
  if (!model.stalls.length) return null;
  const rows = model.stalls.map(({ attempt, fromUs, lengthUs, open }) =>
    el("li", {}, `${duration(lengthUs)} ${open ? "and still, since" : "from"} ${duration(fromUs)}`, model.attempts.length > 1 ? `, attempt ${attempt}` : ""));
  return el("section", {}, el("h3", {}, "Stalls"), el("ul", {}, rows));
}

function lineage(state, start, open) {
  const said = start ?? state?.start;
  const previous = said?.previous_generation_id;
  const retries = (state?.attempts ?? []).filter(({ reason }) => reason && reason !== "first");
  const rows = [];
  if (previous) {
    const button = el("button", { type: "button", class: "link" }, previous);
    button.addEventListener("click", () => open(previous));
    rows.push(el("li", {}, `${said.lineage_kind ?? "retry"} of `, button));
  }
  for (const { attempt, reason, from_model: from, to_model: to } of retries) {
    rows.push(el("li", {}, `attempt ${attempt}: ${reason}${from && to ? ` from ${from} to ${to}` : ""}, after attempt ${attempt - 1}`));
  }
  if (!rows.length) rows.push(el("li", {}, "It follows no other, and its first attempt was its only one."));
  if (said) rows.push(el("li", {}, `of request ${said.request_id}`));
  return said ? el("section", {}, el("h3", {}, "Lineage"), el("ul", {}, rows)) : null;
}

function pairs(rows) {
  const shown = rows.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el("dl", {}, shown.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))]));
}
