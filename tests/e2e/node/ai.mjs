// The Vercel AI SDK with its OpenAI-compatible and its Anthropic provider: text, streams, tools, objects, and agents.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, Output, streamText, tool } from "ai";
import { DESCRIPTION, NAME, QUESTION, Weather } from "./asked.mjs";
import { collected, outcome, ways } from "./outcome.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;

const FINAL = ["text", "reasoningText", "toolCalls", "toolResults", "finishReason", "rawFinishReason", "usage", "sources"];

export function openai_chat({ url, key, model, asked }) {
  const provider = createOpenAICompatible({
    name: "edge", baseURL: `${url}/v1`, apiKey: key, includeUsage: true, supportsStructuredOutputs: true,
  });
  return speak(provider(model), asked);
}

export function anthropic_messages({ url, key, model, asked }) {
  return speak(createAnthropic({ baseURL: `${url}/v1`, apiKey: key })(model), asked);
}

function speak(model, asked) {
  if (asked === "retry") return ways({ whole: async () => finals(await generateText({ model, messages: QUESTION })) });
  const names = asked === "json" ? [...FINAL, "output"] : FINAL;
  return ways({
    whole: async () => {
      const ran = [];
      return [await finals(await generateText(said(model, asked, ran)), names), ran];
    },
    stream: async () => {
      const ran = [];
      const result = streamText({ ...said(model, asked, ran), onError: () => {} });
      const parts = await collected(result.fullStream);
      return [parts.map(bare), await finals(result, names), ran];
    },
  });
}

function said(model, asked, ran) {
  const call = { model, messages: QUESTION, maxRetries: 0 };
  const execute = asked === "agent" ? { execute: (given) => (ran.push(given), "Sunny.") } : {};
  const tools = { [NAME]: tool({ description: DESCRIPTION, inputSchema: Weather, ...execute }) };
  if (asked === "tools") return { ...call, tools };
  if (asked === "agent") return { ...call, tools, stopWhen: isStepCount(3) };
  return asked === "json" ? { ...call, output: Output.object({ schema: Weather }) } : call;
}

async function finals(result, names = FINAL) {
  const found = names.map(async (name) => [name, await outcome(async () => result[name])]);
  return Object.fromEntries(await Promise.all(found));
}

// A part of a stream without what the SDK itself draws or measures anew each time.
function bare(part) {
  const { response, request, performance, ...rest } = part;
  return rest;
}
