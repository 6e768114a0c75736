// A fetch without any library of ours: it drops its connection behind so many events, asks another edge for what follows the
// last id, as a plain Last-Event-ID resumer does, and gives the reader above both as one body. With a mode the reader is
// given the second answer alone. Before it: resumed.mjs.

export function spliced({ there, key, cut, mode }) {
  return async (url, init) => {
    const abort = new AbortController();
    const response = await fetch(url, { ...init, signal: abort.signal });
    const { text, lastId } = await upTo(response.body, cut);
    abort.abort();
    const dialect = url.endsWith("/messages") ? "anthropic.messages" : "openai.chat";
    const headers = { authorization: `Bearer ${key}`, "last-event-id": lastId, ...(mode && { "x-resume-mode": mode }) };
    const events = `${there}/v1/generations/${response.headers.get("x-generation-id")}/events?dialect=${dialect}`;
    const resumed = await fetch(events, { headers });
    if (!resumed.ok) throw new Error(`the resume was answered ${resumed.status}`);
    const body = mode ? resumed.body : both(text, resumed.body);
    return new Response(body, { headers: { "content-type": "text/event-stream" } });
  };
}

/** The whole events of a body's beginning, so many of them, and the id of the last. */
async function upTo(body, cut) {
  const decoder = new TextDecoder();
  let text = "";
  for await (const piece of body) {
    text += decoder.decode(piece, { stream: true });
    const ids = [...text.matchAll(/^id: (\S+)$/gm)];
    if (ids.length <= cut) continue;
    const end = text.indexOf("\n\n", ids[cut - 1].index) + 2;
    return { text: text.slice(0, end), lastId: ids[cut - 1][1] };
  }
  throw new Error(`the stream has no ${cut} events`);
}

function both(text, rest) {
  const { readable, writable } = new TransformStream();
  const writer = writable.getWriter();
  writer.write(new TextEncoder().encode(text)).then(() => {
    writer.releaseLock();
    return rest.pipeTo(writable);
  }).catch(() => {});
  return readable;
}
