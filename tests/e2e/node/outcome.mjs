// What a call came to, as JSON: its value, or the error that the SDK raised. Used by every client's file.

const SAID = ["status", "statusCode", "code", "type", "param", "error", "responseBody", "isRetryable", "finishReason"];

export const messageOf = (error) => (error instanceof Error ? `${error.name}: ${error.message}` : JSON.stringify(error));

export function raised(error) {
  const said = SAID.filter((name) => error?.[name] !== undefined).map((name) => [name, error[name]]);
  return { raised: error?.constructor?.name ?? typeof error, text: messageOf(error), ...Object.fromEntries(said) };
}

export async function outcome(call) {
  try {
    return (await call()) ?? null;
  } catch (error) {
    return raised(error);
  }
}

// The items of a stream, and behind them what it raised.
export async function collected(stream) {
  const items = [];
  try {
    for await (const item of stream) items.push(structuredClone(item));
  } catch (error) {
    items.push(raised(error));
  }
  return items;
}

// All ways at once: {way: outcome}.
export async function ways(calls) {
  const found = Object.entries(calls).map(async ([way, call]) => [way, await outcome(call)]);
  return Object.fromEntries(await Promise.all(found));
}
