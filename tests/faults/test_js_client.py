"""The JS client over two edge processes on a real Kafka, while the one that runs its generations dies or stands still."""

import asyncio
import json
import signal

import pytest
from httpx_sse import aconnect_sse

from tests.support.javascript import NODE_FOLDER, missing, node, run
from tests.support.processes import KEY
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))
LONG = {"tokens": 100_000, "ttft_ms": 0, "interval_ms": 10}
READERS = ("openai to the end", "iterator to the end")


async def held(client, url, generation_id):
    """Give the text of a generation, and the code of its end, as an edge's log has them."""
    text, code = "", None
    path = f"{url}/v1/generations/{generation_id}/events?dialect=openai.chat"
    async with aconnect_sse(client, "GET", path) as source:
        async for event in source.aiter_sse():
            said = json.loads(event.data) if event.data != "[DONE]" else {}
            code = said.get("error", {}).get("code")
            text += "".join(choice["delta"].get("content") or "" for choice in said.get("choices", ()))
    return text, code


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
async def test_an_edge_that_dies_or_stands_still_ends_its_streams_once(edges, provider, client, sent):
    """An SDK and our iterator get at the other edge what the log has, to the one end that it has there: none asks again."""
    first, second = edges
    asked = [
        {"sdk": sdk, "url": first.url, "edges": [second.url], "key": KEY, "simulate": LONG} for sdk in READERS
    ]
    asking = asyncio.ensure_future(run([*node(), "resumed.mjs"], NODE_FOLDER, json.dumps(asked).encode()))
    await until(lambda: sum(seen.chunks_sent > 100 for seen in provider.requests) == len(READERS), 60)
    first.signal(sent)
    outcomes = json.loads(await asking)
    for outcome in outcomes:
        got = outcome["got"]
        assert got["code"] == "edge_lost"
        assert (got["text"], got["code"]) == await held(client, second.url, got["generation_id"])
        assert len(got["text"]) > 30
        assert outcome["states"][-1] == "COMPLETED"
    assert len(provider.requests) == len(READERS)
