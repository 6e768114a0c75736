// The @anthropic-ai/sdk: plain calls, event by event, messages.stream, parse, and the runner that calls tools itself.

import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { DESCRIPTION, NAME, QUESTION, SCHEMA, Weather } from "./asked.mjs";
import { collected, outcome, ways } from "./outcome.mjs";

export async function anthropic_messages({ url, key, model, asked }) {
  const retries = asked === "retry" ? {} : { maxRetries: 0 };
  const client = new Anthropic({ baseURL: url, apiKey: key, ...retries });
  const api = client.messages;
  const said = { model, max_tokens: 100, messages: QUESTION };
  if (asked === "retry") return ways({ whole: () => api.create(said) });
  if (asked === "agent") return ways({ loop: () => loop(client, said) });
  if (asked === "tools") said.tools = [{ name: NAME, description: DESCRIPTION, input_schema: SCHEMA }];
  if (asked === "json") said.output_config = { format: zodOutputFormat(Weather) };
  return ways({
    whole: () => (asked === "json" ? api.parse(said) : api.create(said)),
    events: async () => collected(await api.create({ ...said, stream: true })),
    helper: async () => {
      const stream = api.stream(said);
      const events = await collected(stream);
      return [events.length, events, await outcome(() => stream.finalMessage())];
    },
  });
}

async function loop(client, said) {
  const ran = [];
  const run = (given) => (ran.push(given), "Sunny.");
  const tool = betaZodTool({ name: NAME, description: DESCRIPTION, inputSchema: Weather, run });
  const runner = client.beta.messages.toolRunner({ ...said, tools: [tool] });
  return [await collected(runner), ran];
}
