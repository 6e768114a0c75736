// The page: the key, the question, what runs, and the generation that is open. The key is in memory; only where its owner
// says so is it kept for this tab, and never in a URL. Before: index.html. After: api, view, live.

import { Api, Refused } from "./api.js";
import { byId, el, enable, say } from "./dom.js";
import { Live } from "./live.js";
import { View } from "./view.js";

const KEPT = "tokentrail.key";
const OTHER = "another one…";
const TICK_MS = 250;
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/;

let key = "";
let dialects = new Map();
let beginning = false;

const api = new Api(() => key);
const view = new View(api, opened, () => live.now());
const live = new Live(api, (id) => view.open(id));

/** Another generation is open: the address names it, so that it can be found again. */
function opened(id) {
  live.mark(id);
  if (linked() !== id) history.pushState(null, "", `#g=${id}`);
}

function linked() {
  const id = location.hash.replace(/^#g=/, "");
  return UUID.test(id) ? id : null;
}

async function connect() {
  key = byId("key").value.trim();
  if (!/^[\x21-\x7e]+$/.test(key)) return say(byId("key-said"), "An API key has no spaces and no special letters.");
  say(byId("key-said"), "Connecting…");
  try {
    models(await api.models());
  } catch (error) {
    return say(byId("key-said"), error instanceof Refused ? error.message : "The edge cannot be reached.");
  }
  keep();
  say(byId("key-said"), "Connected.");
  live.now();
  const id = linked();
  if (id && view.id !== id) view.open(id);
}

/** Keep the key for this tab, or forget what was kept. */
function keep() {
  try {
    if (byId("keep").checked) sessionStorage.setItem(KEPT, key);
    else sessionStorage.removeItem(KEPT);
  } catch {
    say(byId("key-said"), "This browser keeps nothing for the tab.");
  }
}

function kept() {
  try {
    return sessionStorage.getItem(KEPT);
  } catch {
    return null; // storage is forbidden here: the key stays in memory
  }
}

function models(listed) {
  const before = byId("model").value;
  dialects = new Map(listed.map(({ id, dialect }) => [id, dialect]));
  byId("model").replaceChildren(...[...dialects.keys(), OTHER].map((name) => el("option", {}, name)));
  if (dialects.has(before)) byId("model").value = before;
  chosen();
}

function chosen() {
  byId("other-model").hidden = byId("model").value !== OTHER;
}

/** What the form asks for; a text for people where it cannot be asked. */
function asked() {
  const name = byId("model").value;
  const other = name === OTHER;
  const model = other ? byId("model-name").value.trim() : name;
  if (!key) return "Connect with an API key first.";
  if (!model) return "Name a model.";
  const text = byId("extra").value.trim();
  let extra = {};
  try {
    extra = text ? JSON.parse(text) : {};
  } catch {
    return "The fields of the request are not JSON.";
  }
  if (extra === null || typeof extra !== "object" || Array.isArray(extra)) return "The fields of the request must be a JSON object.";
  const dialect = other ? byId("model-dialect").value : dialects.get(name);
  return { model, dialect, prompt: byId("prompt").value, extra, onDisconnect: byId("on-disconnect").value };
}

async function begin() {
  if (beginning) return;
  const wanted = asked();
  if (typeof wanted === "string") return say(byId("ask-said"), wanted);
  beginning = true;
  enable(byId("send"), false);
  say(byId("ask-said"), "Asking…");
  try {
    const { generation_id: id } = await api.begin(wanted, () => say(byId("ask-said"), "No answer, asking again…"));
    say(byId("ask-said"), "");
    view.open(id);
    live.now();
    byId("generation").scrollIntoView({ block: "nearest" });
  } catch (error) {
    say(byId("ask-said"), error instanceof Refused ? error.message : "The edge cannot be reached. If it began, what it began is in the list.");
  } finally {
    beginning = false;
    enable(byId("send"), true);
  }
}

function onSubmit(id, handler) {
  byId(id).addEventListener("submit", (event) => {
    event.preventDefault();
    handler();
  });
}

onSubmit("key-form", connect);
onSubmit("ask", begin);
onSubmit("find", () => {
  const id = byId("find-id").value.trim();
  if (!UUID.test(id)) return say(byId("live-said"), "That is not a generation id.");
  view.open(id);
});
byId("model").addEventListener("change", chosen);
byId("keep").addEventListener("change", keep);
byId("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) begin();
});
addEventListener("popstate", () => {
  const id = linked();
  if (id && key && id !== view.id) view.open(id);
});
setInterval(() => view.tick(), TICK_MS);

const before = kept();
if (before) {
  byId("key").value = before;
  byId("keep").checked = true;
  connect();
}
