// `node durable_streams.mjs PORT FOLDER`: the Durable Streams server, file-backed, until it is told to end.
import { DurableStreamTestServer } from "@durable-streams/server";

const [port, dataDir] = process.argv.slice(2);
const server = new DurableStreamTestServer({ port: Number(port), host: "127.0.0.1", dataDir });
await server.start();
process.on("SIGTERM", () => server.stop().then(() => process.exit(0)));
