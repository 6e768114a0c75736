// The calls to this edge. The key is given by a function, at each call: nothing here keeps it, and no URL holds it.
// Before: main. After: the edge's own routes.

const CALLS = {
  "openai.chat": ["v1/chat/completions", (text) => ({ messages: [{ role: "user", content: text }] })],
  "openai.responses": ["v1/responses", (text) => ({ input: text })],
  "anthropic.messages": ["v1/messages", (text) => ({ max_tokens: 2048, messages: [{ role: "user", content: text }] })],
};

/** The edge's own no: a status, a code, a text for people, and what it advises. */
export class Refused extends Error {
  constructor(status, code, message, again, afterMs) {
    super(message);
    this.status = status;
    this.code = code;
    this.again = again;
    this.afterMs = afterMs;
  }
}

export class Api {
  #key;

  constructor(key) {
    this.#key = key;
  }

  /** The models that are listed here, each with its dialect. */
  async models() {
    return (await this.#json("v1/models")).data;
  }

  /** What runs, or ran lately, on this edge. */
  running() {
    return this.#json("v1/generations?state=any");
  }

  /** One generation's state. */
  generation(id) {
    return this.#json(`v1/generations/${encodeURIComponent(id)}`);
  }

  /** Begin a generation; it runs on its own, and whoever likes may read it. */
  begin({ model, dialect, prompt, extra, onDisconnect }) {
    const [path, asked] = CALLS[dialect];
    const body = JSON.stringify({ model, ...asked(prompt), ...extra, stream: true });
    return this.#json(path, {
      method: "POST",
      body,
      headers: { "content-type": "application/json", prefer: "respond-async", "x-tokentrail-on-disconnect": onDisconnect },
    });
  }

  /** End a generation, wherever it runs. */
  cancel(id) {
    return this.#json(`v1/generations/${encodeURIComponent(id)}/cancel`, { method: "POST" });
  }

  /** The response whose body is the generation's events behind an id. */
  async events(id, lastId, signal) {
    const headers = lastId === null ? {} : { "last-event-id": lastId };
    return this.#call(`v1/generations/${encodeURIComponent(id)}/events`, { headers, signal });
  }

  async #json(path, options = {}) {
    return (await this.#call(path, options)).json();
  }

  async #call(path, { headers = {}, ...options }) {
    const response = await fetch(path, {
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      headers: { authorization: `Bearer ${this.#key()}`, ...headers },
      ...options,
    });
    if (!response.ok) throw await refusal(response);
    return response;
  }
}

async function refusal(response) {
  const said = await response.json().then((body) => body.error, () => null);
  const again = response.headers.get("x-should-retry");
  const afterS = Number.parseFloat(response.headers.get("retry-after") ?? "");
  return new Refused(
    response.status,
    said?.code ?? "unknown",
    said?.message ?? `the edge answered ${response.status}`,
    again === null ? response.status >= 500 || response.status === 429 : again === "true",
    Number.isFinite(afterS) ? afterS * 1000 : null,
  );
}
