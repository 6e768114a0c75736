"""litellm as a client, in a virtual environment of its own: asked by a line of JSON each, answering by one.

See ``tests/support/drivers.py`` for the lines, and ``tests/support/sdk_python.py`` for what is asked. It imports nothing of
this project, whose libraries are of other versions.
"""

import asyncio
import json
import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else its import asks the network for prices
import litellm

ASKED = [{"role": "user", "content": "What is the weather in Zürich?"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
          "required": ["city", "days"], "additionalProperties": False}  # fmt: skip
ABOUT = {"name": "get_weather", "description": "The weather of a place.", "parameters": SCHEMA}


async def outcome(call):
    """What a call came to, as JSON: also where it raised."""
    try:
        return await call()
    except Exception as error:  # noqa: BLE001 - whatever litellm raises is what it makes of the answer
        status = getattr(error, "status_code", None)
        return {"raised": type(error).__name__, "status_code": status, "text": str(error)}


async def completion(url, dialect, model, asked, key):
    """``litellm.acompletion``: in one piece, chunk by chunk, and what its own builder makes of the chunks."""
    messages = dialect == "anthropic.messages"
    named = {"model": f"{'anthropic' if messages else 'openai'}/{model}", "messages": ASKED, "api_key": key,
             "api_base": url if messages else f"{url}/v1", "max_retries": 0, "max_tokens": 100}  # fmt: skip
    if asked == "tools":
        named["tools"] = [{"type": "function", "function": ABOUT}]
    if asked == "json" and not messages:
        shape = {"name": "weather", "schema": SCHEMA, "strict": True}
        named["response_format"] = {"type": "json_schema", "json_schema": shape}

    async def whole():
        return (await litellm.acompletion(**named)).model_dump()

    async def chunks():
        stream = await litellm.acompletion(**named, stream=True, stream_options={"include_usage": True})
        found = []

        async def run():
            async for chunk in stream:
                found.append(chunk)  # noqa: PERF401 - a comprehension would lose what came before an error

        raised = await outcome(run)
        built = litellm.stream_chunk_builder(found, messages=ASKED) if found and not raised else None
        return [[chunk.model_dump() for chunk in found], built and built.model_dump(), raised]

    return {"whole": await outcome(whole), "events": await outcome(chunks)}


async def responses(url, dialect, model, asked, key):
    """``litellm.aresponses``: in one piece, and event by event."""
    del dialect
    known = {"litellm_provider": "openai", "mode": "chat", "supports_native_streaming": True}
    litellm.register_model({model: known})  # else it asks for the whole answer and makes a stream of that
    named = {"model": f"openai/{model}", "input": ASKED, "api_base": f"{url}/v1", "api_key": key,
             "max_retries": 0}  # fmt: skip
    if asked == "tools":
        named["tools"] = [{"type": "function", "strict": False, **ABOUT}]

    async def whole():
        return (await litellm.aresponses(**named)).model_dump()

    async def events():
        found = []

        async def run():
            async for event in await litellm.aresponses(**named, stream=True):
                found.append(event.model_dump())  # noqa: PERF401 - as above

        return [found, await outcome(run)]

    return {"whole": await outcome(whole), "events": await outcome(events)}


async def answer(question):
    """One line's answer."""
    number, client = question.pop("id"), question.pop("client")
    speak = responses if question["dialect"] == "openai.responses" else completion
    try:
        said = {"id": number, "outcomes": await speak(**question)}
    except Exception as error:  # noqa: BLE001 - a driver that cannot ask says so, and goes on
        said = {"id": number, "failed": f"{client}: {error!r}"}
    sys.stdout.write(json.dumps(said, default=str) + "\n")
    sys.stdout.flush()


async def main():
    """Answer until stdin ends."""
    litellm.suppress_debug_info = True
    litellm.drop_params = True
    loop, running = asyncio.get_running_loop(), set()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        task = loop.create_task(answer(json.loads(line)))
        running.add(task)
        task.add_done_callback(running.discard)


if __name__ == "__main__":
    asyncio.run(main())
