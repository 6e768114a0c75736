// The eventsource package: every event by its name and data; and, told to resume, what it gathers over its reconnects.

import { EventSource } from "eventsource";
import { QUESTION } from "./asked.mjs";
import { ways } from "./outcome.mjs";

const ENDS = new Set(["[DONE]", "message_stop", "response.completed", "response.incomplete"]);

// An EventSource tells its listeners of named events only; this one is told of all of them.
class Everything extends EventSource {
  dispatchEvent(event) {
    this.saw?.(event);
    return super.dispatchEvent(event);
  }
}

const speaking = (path, said) => (question) =>
  question.asked === "resume" ? ways({ events: () => resumed(question) }) : ways({ events: () => events(path, said, question) });

export const openai_chat = speaking("/v1/chat/completions", { messages: QUESTION });
export const openai_responses = speaking("/v1/responses", { input: QUESTION });
export const anthropic_messages = speaking("/v1/messages", { messages: QUESTION, max_tokens: 100 });

function events(path, said, { url, key, model }) {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const body = JSON.stringify({ ...said, model, stream: true });
  const post = (to, init) => fetch(to, { ...init, method: "POST", headers: { ...init.headers, ...headers }, body });
  return gathered(new Everything(url + path, { fetch: post }), (event, got, end) => {
    if (event.type === "ping" || event.type === "open") return;
    if (event.data === undefined) return end({ refused: event.code ?? null });
    got.push([event.type, event.data === "[DONE]" ? event.data : JSON.parse(event.data)]);
    if (event.type === "error" || ENDS.has(event.data) || ENDS.has(event.type)) end();
  });
}

function resumed({ url, key }) {
  const get = (to, init) => fetch(to, { ...init, headers: { ...init.headers, authorization: `Bearer ${key}` } });
  let opened = 0;
  return gathered(new Everything(url, { fetch: get }), (event, got, end) => {
    if (event.type === "open") opened += 1;
    else if (event.data === undefined && event.code === 204) end({ opened });
    else if (event.data !== undefined && event.lastEventId) got.push([event.lastEventId, event.type, event.data]);
  });
}

function gathered(source, saw) {
  const got = [];
  return new Promise((resolve) => {
    source.saw = (event) =>
      saw(event, got, (last) => {
        source.close();
        resolve(last === undefined ? got : [...got, last]);
      });
  });
}
