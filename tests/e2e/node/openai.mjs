// The openai SDK: plain calls, event by event, the streaming helper, parse, and the runner that calls tools itself.

import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { DESCRIPTION, NAME, QUESTION, SCHEMA, Weather } from "./asked.mjs";
import { collected, outcome, ways } from "./outcome.mjs";

const USAGE = { stream_options: { include_usage: true } };

const connected = ({ url, key, asked }) =>
  new OpenAI({ baseURL: `${url}/v1`, apiKey: key, ...(asked === "retry" ? {} : { maxRetries: 0 }) });

export async function openai_chat(question) {
  const client = connected(question);
  const { model, asked } = question;
  const api = client.chat.completions;
  const said = { model, messages: QUESTION };
  if (asked === "retry") return ways({ whole: () => api.create(said) });
  if (asked === "agent") return ways({ loop: () => loop(api, said) });
  const described = { name: NAME, description: DESCRIPTION, parameters: SCHEMA };
  if (asked === "tools") said.tools = [{ type: "function", function: described }];
  if (asked === "json") said.response_format = zodResponseFormat(Weather, "weather");
  return ways({
    whole: () => (asked === "json" ? api.parse(said) : api.create(said)),
    events: async () => collected(await api.create({ ...said, stream: true, ...USAGE })),
    helper: async () => {
      const stream = api.stream({ ...said, ...USAGE });
      const chunks = await collected(stream);
      return [chunks, await outcome(() => stream.finalChatCompletion()), await outcome(() => stream.finalContent())];
    },
  });
}

async function loop(api, said) {
  const ran = [];
  const weather = (given) => (ran.push(given), "Sunny.");
  const described = { name: NAME, description: DESCRIPTION, parameters: SCHEMA, function: weather, parse: JSON.parse };
  const runner = api.runTools({ ...said, stream: true, tools: [{ type: "function", function: described }] });
  return [await runner.finalContent(), ran, runner.messages];
}

export async function openai_responses(question) {
  const client = connected(question);
  const { model, asked } = question;
  const api = client.responses;
  const said = { model, input: QUESTION };
  if (asked === "retry") return ways({ whole: () => api.create(said) });
  if (asked === "background") return ways({ found: () => background(api, said) });
  const described = { name: NAME, description: DESCRIPTION, parameters: SCHEMA, strict: false };
  if (asked === "tools") said.tools = [{ type: "function", ...described }];
  if (asked === "json") said.text = { format: zodTextFormat(Weather, "weather") };
  return ways({
    whole: () => (asked === "json" ? api.parse(said) : api.create(said)),
    events: async () => collected(await api.create({ ...said, stream: true })),
    helper: async () => {
      const stream = api.stream(said);
      return [await collected(stream), await outcome(() => stream.finalResponse())];
    },
  });
}

// A call that runs on by itself: left behind an event and taken up there, then what it came to, all found by its id.
async function background(api, said) {
  const begun = await api.create({ ...said, background: true });
  for await (const event of await api.retrieve(begun.id, { stream: true })) if (event.sequence_number >= 2) break;
  const events = await collected(await api.retrieve(begun.id, { stream: true, starting_after: 2 }));
  return { begun: begun.status, numbers: events.map((event) => event.sequence_number), ended: await api.retrieve(begun.id) };
}
