// What an application in TypeScript writes; only its types are checked (tests/e2e/test_js_client.py).

import Anthropic from "@anthropic-ai/sdk";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import OpenAI from "openai";
import * as tokentrail from "tokentrail-client";
import { fileStore } from "tokentrail-client/node";

const store: tokentrail.Store = fileStore("sessions");
const fetch = tokentrail.fetch({ store, onState: ({ state, reason }) => console.log(state, reason), limits: { idleMs: 30_000 } });

export const openai = new OpenAI({ baseURL: "https://gateway.example/v1", apiKey: "key", fetch });
export const anthropic = new Anthropic({ baseURL: "https://gateway.example", apiKey: "key", fetch });
export const compatible = createOpenAICompatible({ name: "gateway", baseURL: "https://gateway.example/v1", fetch });
export const claude = createAnthropic({ baseURL: "https://gateway.example/v1", fetch });

export async function read(): Promise<string> {
  const stream = tokentrail.generate({ edge: "https://gateway.example", apiKey: "key", body: {}, store });
  for await (const item of stream) {
    if (item.type === "delta") console.log(item.seq, item.text, item.parts[0]?.choice_index);
    else if (item.type === "end") console.log(item.toolCalls.map((call) => call.input));
    // @ts-expect-error a delta has no finish reason
    if (item.type === "delta") console.log(item.finishReason);
  }
  const again = await tokentrail.resume(stream.session, { store, after: 3 });
  return (await again?.result())?.text ?? "";
}

// @ts-expect-error a limit that is misspelt
tokentrail.fetch({ limits: { idleMS: 1 } });
// @ts-expect-error a generation needs an edge
tokentrail.generate({ body: {} });
