// Unmodified JavaScript clients, each asked by a line of JSON and answering by one: see tests/support/drivers.py.
// Before it: a line of stdin. After it: one file per client, whose exports are named after the dialects.

import { createInterface } from "node:readline";
import { messageOf, raised } from "./outcome.mjs";

const clients = {};

async function answer({ id, client, dialect, ...question }) {
  try {
    clients[client] ??= import(`./${client}`);
    const { [dialect.replace(".", "_")]: speak } = await clients[client];
    return { id, outcomes: await speak(question) };
  } catch (error) {
    return { id, failed: messageOf(error) };
  }
}

const asJson = (answered) => JSON.stringify(answered, (_, value) => (value instanceof Error ? raised(value) : value));

for await (const line of createInterface({ input: process.stdin })) {
  answer(JSON.parse(line)).then((answered) => process.stdout.write(asJson(answered) + "\n"));
}
