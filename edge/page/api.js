// The calls to this edge. The key is given by a function, at each call: nothing here keeps it, and no URL holds it.
// Before: main. After: the edge's own routes.

const CALLS = {
  "openai.chat": ["v1/chat/completions", (text) => ({ messages: [{ role: "user", content: text }] })],
  "openai.responses": ["v1/responses", (text) => ({ input: text })],
  "anthropic.messages": ["v1/messages", (text) => ({ max_tokens: 2048, messages: [{ role: "user", content: text }] })],
};

const AGAIN_MS = [500, 1500];

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

  /** Begin a generation; it runs on its own, and whoever likes may read it. An answer that was lost is asked for again
   * under the same key, which begins nothing twice; `again` is told so. */
  async begin({ model, dialect, prompt, extra, onDisconnect }, again) {
    const [path, asked] = CALLS[dialect];
    const headers = {
      "content-type": "application/json",
      "idempotency-key": randomName(),
      prefer: "respond-async",
      "x-tokentrail-on-disconnect": onDisconnect,
    };
    const call = { method: "POST", headers, body: JSON.stringify({ model, ...asked(prompt), ...extra, stream: true }) };
    for (const waitMs of AGAIN_MS) {
      try {
        return await this.#json(path, call);
      } catch (error) {
        if (error instanceof Refused && !error.again) throw error;
        again();
        await new Promise((resolve) => setTimeout(resolve, Math.max(waitMs, error.afterMs ?? 0)));
      }
    }
    return this.#json(path, call);
  }

  /** End a generation, wherever it runs. */
  cancel(id) {
    const call = {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ source: "page" }),
    };
    return this.#json(`v1/generations/${encodeURIComponent(id)}/cancel`, call);
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

/** 128 random bits; `randomUUID` is not there where the page came without TLS. */
function randomName() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
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
