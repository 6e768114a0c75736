// The JS SDKs over our fetch, for the drill: each line of stdin asks for one stream, each line of stdout is what came of it.
// Before it: tests/drill/readers.py. After it: edge/clients/js.

import { createInterface } from "node:readline";
import Anthropic from "@anthropic-ai/sdk";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { streamText } from "ai";
import OpenAI from "openai";
import * as tokentrail from "../../../edge/clients/js/src/index.js";

globalThis.AI_SDK_LOG_WARNINGS = false;
const LIMITS = { spreadMs: 5, backoffMs: 20, backoffMsMax: 200, openAttempts: 200, idleMs: 6_000, pollMs: 50 };
const LOST = /edge_lost|edge died|log_unavailable|takes no records/;

const sdks = {
  openai: async ({ urls, key, body, fetch }, seen) => {
    const client = new OpenAI({ baseURL: `${urls[0]}/v1`, apiKey: key, maxRetries: 0, fetch });
    for await (const chunk of await client.chat.completions.create(body)) {
      const delta = chunk.choices[0]?.delta ?? {};
      seen.text += delta.content ?? "";
      for (const call of delta.tool_calls ?? []) seen.arguments += call.function?.arguments ?? "";
    }
  },
  anthropic: async ({ urls, key, body, fetch }, seen) => {
    const client = new Anthropic({ baseURL: urls[0], apiKey: key, maxRetries: 0, fetch });
    for await (const { delta } of await client.messages.create(body)) {
      seen.text += delta?.text ?? "";
      seen.arguments += delta?.partial_json ?? "";
    }
  },
  ai: async ({ urls, key, body, fetch }, seen) => {
    const { simulate, messages } = body;
    const asked = (input, init) => fetch(input, { ...init, body: JSON.stringify({ ...JSON.parse(init.body), simulate }) });
    const provider = createOpenAICompatible({ name: "edge", baseURL: `${urls[0]}/v1`, apiKey: key, fetch: asked });
    const result = streamText({ model: provider("sim"), messages, maxRetries: 0, onError: () => {} });
    for await (const part of result.fullStream) {
      if (part.type === "text-delta") seen.text += part.text;
      if (part.type === "tool-input-delta") seen.arguments += part.delta;
      if (part.type === "error") throw part.error;
    }
  },
};

async function read({ number, sdk, ...asked }) {
  const seen = { number, text: "", arguments: "" };
  const ours = tokentrail.fetch({ limits: LIMITS, edges: asked.urls });
  const fetch = async (...given) => {
    const response = await ours(...given);
    seen.generationId = response.headers.get("x-generation-id") ?? seen.generationId;
    return response;
  };
  try {
    await sdks[sdk]({ ...asked, fetch }, seen);
  } catch (error) {
    const status = error.status ?? error.statusCode;
    if (seen.generationId === undefined && status >= 500) seen.refused = status; // said so, and nothing began
    const said = `${error.name}: ${error.message} ${JSON.stringify(error.error ?? error.data ?? {})} ${error.code ?? ""}`;
    if (!seen.refused && !LOST.test(said)) seen.raised = said;
  }
  process.stdout.write(`${JSON.stringify(seen)}\n`);
}

for await (const line of createInterface({ input: process.stdin })) read(JSON.parse(line));
