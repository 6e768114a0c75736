// One generation as a picture: a lane for each attempt, one for its readers, one for its heartbeats, and what happened
// across them as lines. Drawn at the width that there is, in its own pixels, so that the letters keep their size. Colour
// never stands alone: each thing has a shape or a word too. Pure: a model in, an element out. Before: trace. After: dom.

import { svg } from "./dom.js";
import { duration, many } from "./format.js";

const LETTER_PX = 6.4;
const MARK_ROW_PX = 15;
const TOP_PX = 4;
const BAR_PX = 14;
const LABEL_PX = 15;
const GAP_PX = 8;
const AXIS_PX = 20;
const NICE_US = [1, 2, 5].flatMap((n) => [1e3, 1e4, 1e5, 1e6, 1e7, 1e8].map((unit) => n * unit)).sort((a, b) => a - b);

/** The picture; its title and description say in words what it shows. */
export function picture(model, width) {
  const at = (us) => Math.min(width - 1, Math.max(0, (us / model.totalUs) * (width - 2))) + 0.5;
  const marks = placed(marksOf(model), at, width);
  let y = TOP_PX + (Math.max(0, ...marks.map(({ row }) => row)) + 1) * MARK_ROW_PX;
  const lanesTop = y;
  const parts = [];
  for (const attempt of model.attempts) {
    parts.push(...attemptLane(model, attempt, at, width, y));
    y += LABEL_PX + BAR_PX + GAP_PX;
  }
  if (model.readers.length) {
    parts.push(...readerLane(model, at, y));
    y += LABEL_PX + 8 + GAP_PX;
  }
  if (model.heartbeats.length) {
    parts.push(label(many(model.heartbeats.length, "heartbeat"), 0, y + 11), ...model.heartbeats.map((us) => beat(at(us), y + LABEL_PX + 4)));
    y += LABEL_PX + 8 + GAP_PX;
  }
  const axis = axisOf(model.totalUs, at, width, y);
  const lines = marks.map((mark) => markOf(mark, lanesTop, y));
  return svg(
    "svg",
    { width, height: y + AXIS_PX, viewBox: `0 0 ${width} ${y + AXIS_PX}`, role: "img", "aria-labelledby": "picture-title picture-words" },
    svg("title", { id: "picture-title" }, "Timeline of the generation"),
    svg("desc", { id: "picture-words" }, inWords(model).join(". ")),
    hatch(),
    axis,
    parts.filter((part) => !part?.matches(".lane")),
    lines,
    parts.filter((part) => part?.matches(".lane")),
  );
}

/** The same, as sentences in the order of time. */
export function inWords(model) {
  const said = model.attempts.flatMap(attemptInWords);
  if (model.firstUs !== null) said.push([model.firstUs, `first token after ${duration(model.firstUs)}`]);
  for (const stall of model.stalls) {
    const how = stall.open ? "silent since then, for" : "silent for";
    said.push([stall.fromUs, `attempt ${stall.attempt} ${how} ${duration(stall.lengthUs)}, from ${duration(stall.fromUs)} on`]);
  }
  for (const reader of model.readers) {
    const came = reader.resumedFrom === null ? "a reader came" : `a reader resumed behind event ${reader.resumedFrom}`;
    said.push([reader.fromUs, `${came} at ${duration(reader.fromUs)}`]);
    if (reader.left) said.push([reader.toUs, `a reader left at ${duration(reader.toUs)}: ${reader.left.replaceAll("_", " ")}`]);
  }
  if (model.heartbeats.length) said.push([model.heartbeats[0], many(model.heartbeats.length, "heartbeat")]);
  if (model.cancelUs !== null) said.push([model.cancelUs, `a cancel was asked for at ${duration(model.cancelUs)}`]);
  const { terminal } = model;
  if (terminal) said.push([terminal.atUs, `${terminal.kind}${terminal.kind === terminal.word ? "" : `: ${terminal.word},`} after ${duration(terminal.atUs)}`]);
  return said.sort((a, b) => a[0] - b[0]).map(([, text]) => text);
}

function attemptInWords({ number, provider, outcome, errorCode, fromUs, toUs, reason }) {
  const why = reason && reason !== "first" ? ` (${reason})` : "";
  const said = [[fromUs, `attempt ${number}${why}${provider ? ` to ${provider}` : ""} began at ${duration(fromUs)}`]];
  if (outcome) said.push([toUs, `attempt ${number} ended at ${duration(toUs)}: ${errorCode ?? outcome}`]);
  return said;
}

function attemptLane(model, attempt, at, width, y) {
  const { number, provider, model: name, outcome, errorCode, fromUs, firstUs, toUs } = attempt;
  const words = [`attempt ${number}`, provider, name, errorCode ?? outcome].filter(Boolean).join(" · ");
  const bar = y + LABEL_PX;
  const stalls = model.stalls.filter((stall) => stall.attempt === number);
  const ticks = columns(model.ticks, number, at);
  return [
    label(fitted(words, width), 0, y + 11),
    span("wait", at(fromUs), at(firstUs ?? toUs), bar, BAR_PX, `waiting: ${duration((firstUs ?? toUs) - fromUs)}`),
    firstUs === null ? null : span("stream", at(firstUs), at(toUs), bar, BAR_PX, `streaming: ${duration(toUs - firstUs)}`),
    svg("path", { class: "ticks", d: ticks.map((x) => `M${x + 0.5} ${bar + 3}v${BAR_PX - 6}`).join("") }),
    ...stalls.flatMap((stall) => silence(stall, at, bar)),
    outcome === "failed" || outcome === "lost" ? cross(at(toUs), bar + BAR_PX / 2) : null,
  ];
}

function silence(stall, at, y) {
  const [from, to] = [at(stall.fromUs), at(stall.fromUs + stall.lengthUs)];
  const words = `${duration(stall.lengthUs)} silent`;
  const inside = to - from > words.length * LETTER_PX + 8;
  return [
    span("stall", from, to, y, BAR_PX, words),
    svg("rect", { class: "hatched", x: from, y, width: Math.max(2, to - from), height: BAR_PX, fill: "url(#hatch)" }),
    inside ? svg("text", { class: "in-stall", x: (from + to) / 2, y: y + 11, "text-anchor": "middle" }, words) : null,
  ];
}

function readerLane(model, at, y) {
  const bar = y + LABEL_PX;
  return [
    label(many(model.readers.length, "reader"), 0, y + 11),
    ...model.readers.map(({ fromUs, toUs, resumedFrom }) => {
      const words = resumedFrom === null ? "from the beginning" : `resumed behind event ${resumedFrom}`;
      return span("reader", at(fromUs), at(toUs), bar, 8, words);
    }),
    ...model.readers.filter(({ resumedFrom }) => resumedFrom !== null).map(({ fromUs }) => arrow(at(fromUs), bar + 4)),
  ];
}

function marksOf({ firstUs, cancelUs, terminal, totalUs }) {
  const marks = [];
  if (firstUs !== null) marks.push({ us: firstUs, kind: "first", words: `first token ${duration(firstUs)}` });
  if (cancelUs !== null) marks.push({ us: cancelUs, kind: "asked", words: "cancel asked" });
  if (terminal) marks.push({ us: terminal.atUs, kind: terminal.kind, words: `${terminal.word} ${duration(terminal.atUs)}` });
  else marks.push({ us: totalUs, kind: "now", words: duration(totalUs) });
  return marks;
}

/** Give each mark's words a side and a row where they cover no other's. */
function placed(marks, at, width) {
  const taken = [];
  return marks.map((mark) => {
    const x = at(mark.us);
    const wide = mark.words.length * LETTER_PX + 16;
    const left = x + wide > width;
    const [from, to] = left ? [x - wide, x] : [x, x + wide];
    let row = 0;
    while (taken.some((other) => other.row === row && from < other.to && to > other.from)) row += 1;
    taken.push({ row, from, to });
    return { ...mark, x, left, row };
  });
}

function markOf({ x, kind, words, left, row }, top, bottom) {
  const y = TOP_PX + row * MARK_ROW_PX + 10;
  return svg(
    "g",
    { class: `mark ${kind}` },
    svg("line", { x1: x, x2: x, y1: y - 6, y2: Math.max(bottom, top) }),
    svg("text", { x: left ? x - 12 : x + 12, y, "text-anchor": left ? "end" : "start" }, words),
    sign(kind, left ? x - 5 : x + 5, y - 4),
  );
}

function sign(kind, x, y) {
  if (kind === "failed") return cross(x, y);
  if (kind === "cancelled" || kind === "asked") return svg("rect", { class: "sign", x: x - 3.5, y: y - 3.5, width: 7, height: 7 });
  return svg("circle", { class: "sign", cx: x, cy: y, r: kind === "first" ? 2.5 : 4 });
}

function cross(x, y) {
  return svg("path", { class: "cross", d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8` });
}

function arrow(x, y) {
  return svg("path", { class: "arrow", d: `M${x} ${y - 6}l6 6l-6 6z` });
}

function beat(x, y) {
  return svg("circle", { class: "beat", cx: x, cy: y, r: 2.5 });
}

function span(kind, from, to, y, height, words) {
  return svg("rect", { class: kind, x: from, y, width: Math.max(2, to - from), height, rx: 2 }, svg("title", {}, words));
}

function label(words, x, y) {
  return svg("text", { class: "lane", x, y }, words);
}

function fitted(words, width) {
  const most = Math.floor(width / LETTER_PX);
  return words.length > most ? `${words.slice(0, most - 1)}…` : words;
}

/** The pixel columns in which an attempt said something: however many events, not more lines than pixels. */
function columns(ticks, number, at) {
  const found = new Set();
  for (const [us, attempt] of ticks) if (attempt === number) found.add(Math.round(at(us)));
  return [...found];
}

function axisOf(totalUs, at, width, y) {
  const stepUs = NICE_US.find((us) => (us / totalUs) * width >= 72) ?? NICE_US.at(-1);
  const marks = [];
  for (let us = 0; us <= totalUs; us += stepUs) {
    const x = at(us);
    const anchor = us === 0 ? "start" : x > width - 20 ? "end" : "middle";
    const words = us === 0 ? "0" : stepUs >= 1e6 ? `${us / 1e6} s` : stepUs >= 1e5 ? `${(us / 1e6).toFixed(1)} s` : `${us / 1e3} ms`;
    marks.push(svg("line", { x1: x, x2: x, y1: TOP_PX + MARK_ROW_PX, y2: y + 4 }), svg("text", { x, y: y + 16, "text-anchor": anchor }, words));
  }
  return svg("g", { class: "axis" }, svg("line", { x1: 0, x2: width, y1: y, y2: y }), marks);
}

function hatch() {
  const line = svg("path", { d: "M0 6L6 0", class: "hatch" });
  return svg("defs", {}, svg("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse" }, line));
}
