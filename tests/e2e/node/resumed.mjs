// Unmodified SDKs over our fetch, and our iterator: each case of a JSON list (stdin) is asked, all at once; their outcomes
// are one JSON list (stdout). Before it: tests/e2e/test_js_client.py. After it: edge/clients/js.

import Anthropic from "@anthropic-ai/sdk";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";
import { EventSource } from "eventsource";
import OpenAI from "openai";
import { spliced } from "./spliced.mjs";
import * as tokentrail from "../../../edge/clients/js/src/index.js";

globalThis.AI_SDK_LOG_WARNINGS = false;

const MESSAGES = [{ role: "user", content: "go" }];
const CALLS = {
  "/v1/chat/completions": { model: "sim-chat", messages: MESSAGES },
  "/v1/messages": { model: "sim-fast", messages: MESSAGES, max_tokens: 1000 },
  "/v1/responses": { model: "sim-fast", input: MESSAGES },
};
const LIMITS = { spreadMs: 5, backoffMs: 10, openAttempts: 20, idleMs: 2_000, pollMs: 20 };

const sdkOf = {
  "openai chat": async ({ url, key, simulate, fetch }) => {
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0, fetch });
    const stream = client.chat.completions.stream({ model: "sim-chat", messages: MESSAGES, simulate, stream_options: { include_usage: true } });
    const { choices, usage } = await stream.finalChatCompletion();
    return { message: choices[0].message, usage };
  },
  "openai chat whole": async ({ url, key, simulate, fetch }) => {
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0, fetch });
    const { choices, usage } = await client.chat.completions.create({ model: "sim-chat", messages: MESSAGES, simulate });
    return { message: choices[0].message, usage };
  },
  "openai responses": async ({ url, key, simulate, fetch }) => {
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0, fetch });
    const { output_text, output, usage } = await client.responses.stream({ model: "sim-fast", input: MESSAGES, simulate }).finalResponse();
    return { output_text, kinds: output.map(({ type }) => type), usage };
  },
  anthropic: async ({ url, key, simulate, fetch }) => {
    const client = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0, fetch });
    const message = await client.messages.stream({ model: "sim-fast", max_tokens: 1000, messages: MESSAGES, simulate }).finalMessage();
    return { content: message.content, stop: message.stop_reason, usage: message.usage };
  },
  "ai openai": ({ url, key, simulate, fetch }) => {
    const asked = async (...given) => fetch(given[0], { ...given[1], body: JSON.stringify({ ...JSON.parse(given[1].body), simulate }) });
    const provider = createOpenAICompatible({ name: "edge", baseURL: `${url}/v1`, apiKey: key, fetch: asked });
    return streamed(provider("sim-chat"));
  },
  "ai anthropic": ({ url, key, simulate, fetch }) => {
    const asked = async (...given) => fetch(given[0], { ...given[1], body: JSON.stringify({ ...JSON.parse(given[1].body), simulate }) });
    return streamed(createAnthropic({ baseURL: `${url}/v1`, apiKey: key, fetch: asked })("sim-fast"));
  },
  "ai whole": async ({ url, key, simulate, fetch }) => {
    const asked = async (...given) => fetch(given[0], { ...given[1], body: JSON.stringify({ ...JSON.parse(given[1].body), simulate }) });
    const { text, finishReason } = await generateText({ model: createAnthropic({ baseURL: `${url}/v1`, apiKey: key, fetch: asked })("sim-fast"), messages: MESSAGES, maxRetries: 0 });
    return { text, finishReason };
  },
  iterator: async ({ url, key, simulate, options, path }) => {
    const body = { simulate, ...CALLS[path] };
    const stream = tokentrail.generate({ edge: url, apiKey: key, path, body, limits: LIMITS, ...options });
    const seqs = [];
    for await (const { seq } of stream) seqs.push(seq);
    const { text, reasoning, toolCalls, finishReason } = await stream.result();
    return { text, reasoning, finishReason, calls: toolCalls.map(({ name, input }) => ({ name, input })), ordered: seqs.every((seq, at) => at === 0 || seq > seqs[at - 1]) };
  },
  "openai to the end": async ({ url, key, simulate, fetch }) => {
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0, fetch });
    const asked = { model: "sim-chat", messages: MESSAGES, simulate, stream: true };
    const { data, response } = await client.chat.completions.create(asked).withResponse();
    return toTheEnd(data, (chunk) => chunk.choices[0]?.delta.content, () => response.headers.get("x-generation-id"));
  },
  "iterator to the end": async ({ url, key, simulate, options }) => {
    const body = { model: "sim-chat", messages: MESSAGES, simulate };
    const stream = tokentrail.generate({ edge: url, apiKey: key, body, limits: LIMITS, ...options });
    return toTheEnd(stream, (item) => item.text, () => stream.generationId);
  },
  ticket: async ({ url, key, simulate, options }) => {
    const generationId = await begun(url, key, simulate);
    const { ticket } = await tokentrail.ticketFor({ edge: url, generationId, apiKey: key });
    const { text, finishReason } = await tokentrail.attach({ edge: url, generationId, ticket, limits: LIMITS, ...options }).result();
    return { text, finishReason };
  },
  eventsource: async ({ url, key, simulate }) => {
    const generationId = await begun(url, key, simulate);
    const { ticket } = await tokentrail.ticketFor({ edge: url, generationId, apiKey: key });
    const source = new EventSource(tokentrail.eventsUrl({ edge: url, generationId, ticket }));
    let text = "";
    source.addEventListener("delta", ({ data }) => {
      for (const part of JSON.parse(data).parts) if (part.type === "text") text += part.text;
    });
    const awake = setInterval(() => {}, 1_000); // while it waits to reconnect, it lets the process end
    const end = await new Promise((resolve, reject) => {
      source.addEventListener("message_end", resolve);
      source.addEventListener("error", (error) => source.readyState === EventSource.CLOSED && reject(new Error(`${error.code} ${error.message}`)));
    });
    source.close();
    clearInterval(awake);
    return { text, finishReason: JSON.parse(end.data).finish_reason };
  },
  "openai left": async ({ url, key, simulate, fetch }) => {
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0, fetch });
    for await (const chunk of await client.chat.completions.create({ model: "sim-chat", messages: MESSAGES, simulate, stream: true })) {
      if (chunk.choices[0]?.delta.content) break;
    }
    return {};
  },
};

// What came, and how it ended.
async function toTheEnd(items, textOf, idOf) {
  let text = "";
  let code = null;
  try {
    for await (const item of items) text += textOf(item) ?? "";
  } catch (error) {
    code = error.code;
  }
  return { text, code, generation_id: idOf() };
}

// As a server of the application's does: the generation begins, and its name goes to the page.
async function begun(url, key, simulate) {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json", prefer: "respond-async" };
  const body = JSON.stringify({ model: "sim-chat", messages: MESSAGES, simulate });
  const response = await tokentrail.fetch({ limits: LIMITS })(`${url}/v1/chat/completions`, { method: "POST", headers, body });
  return (await response.json()).generation_id;
}

async function streamed(model) {
  const result = streamText({ model, messages: MESSAGES, maxRetries: 0, onError: () => {} });
  return { text: await result.text, reasoning: await result.reasoningText, finish: await result.finishReason, usage: await result.usage };
}

async function outcome({ sdk, ...asked }) {
  const states = [];
  const options = { onState: ({ state }) => states.push(state), edges: asked.edges ?? [] };
  const ours = () => (asked.there ? spliced(asked) : tokentrail.fetch({ limits: LIMITS, ...options }));
  const fetch = asked.plain ? globalThis.fetch : ours();
  try {
    return { got: await sdkOf[sdk]({ ...asked, fetch, options }), states };
  } catch (error) {
    return { raised: `${error.name}: ${error.message} (${error.cause ?? ""})`, states };
  }
}

const pieces = [];
for await (const piece of process.stdin) pieces.push(piece);
process.stdout.write(JSON.stringify(await Promise.all(JSON.parse(Buffer.concat(pieces)).map(outcome))));
