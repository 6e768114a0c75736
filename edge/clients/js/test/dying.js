/**
 * A reader that is killed at a named moment (see `crash.test.js`): it writes the seq of each item to its own ledger.
 *
 * Arguments: the gateway's address, a folder, a session, the moment, and at which event.
 */

import { appendFileSync, existsSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

import { generate, resume } from "../src/index.js";
import { fileStore } from "../src/node.js";

const [edge, folder, session, moment, event] = process.argv.slice(2);
const ledger = join(folder, "ledger");
const sessions = join(folder, "sessions");
const die = () => process.kill(process.pid, "SIGKILL");
const at = (name, seq) => name === moment && seq === Number(event) && die();

const real = fileStore(sessions);
const store = {
  ...real,
  async save(position, frames) {
    at("before it is stored", position.seq);
    if (moment === "while it is stored" && position.seq === Number(event)) {
      const [file] = readdirSync(sessions);
      appendFileSync(join(sessions, file), JSON.stringify({ frame: frames[0] }).slice(0, -9));
      die();
    }
    await real.save(position, frames);
    at("after it is stored", position.seq);
  },
};

/** Every event comes in a piece of its own, so that each is stored by itself. */
async function eventByEvent(...asked) {
  const response = await fetch(...asked);
  const pieces = new TransformStream({
    transform(bytes, to) {
      const text = new TextDecoder().decode(bytes);
      for (const piece of text.split(/(?<=\n\n)/)) to.enqueue(new TextEncoder().encode(piece));
    },
  });
  return new Response(response.body?.pipeThrough(pieces), response);
}

const written = existsSync(ledger) ? readFileSync(ledger, "utf8").trim().split("\n").map(Number) : [];
const options = { edge, store, fetch: eventByEvent, after: written.at(-1) ?? -1 };
const stream = (await resume(session, options)) ?? generate({ ...options, session, body: { model: "m" } });
let items = 0;
for await (const { seq } of stream) {
  items += 1;
  at("after it was handed over", seq);
  appendFileSync(ledger, `${seq}\n`);
  at("after it was dealt with", seq);
}
process.stdout.write(`${items} ${stream.text}`);
