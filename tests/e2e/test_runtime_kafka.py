"""Retries, hedges and what follows a broken answer, on real edges and a real Kafka: one text, whoever reads it where."""

import json

import httpx
import pytest

from compose.embedded.simulator import Simulator
from tests.support.processes import HEADERS, Edge, environment, write_config
from tests.support.waiting import until

pytestmark = pytest.mark.services
QUICK = {"tokens": 8, "ttft_ms": 20, "interval_ms": 5}
RUNTIME = {
    "TOKENTRAIL_HEDGE__AFTER_S": "0.4",
    "TOKENTRAIL_HEDGE__STALL_AFTER_S": "0.5",
    "TOKENTRAIL_RETRY__BACKOFF_MS": "20",
}


@pytest.fixture
async def simulator():
    """Give a provider in this process."""
    async with Simulator(port=0) as running:
        yield running


@pytest.fixture
async def edges(topics, simulator, tmp_path):
    """Give two edges that race what is silent."""
    write_config(tmp_path, simulator.base_url)
    environ = environment(topics, RUNTIME)
    started = [Edge(tmp_path, environ, name) for name in ("edge-1", "edge-2")]
    try:
        for edge in started:
            edge.start()
        for edge in started:
            await edge.until_ready()
        yield started
    finally:
        for edge in started:
            edge.stop()


def asked(name, *attempts, stream=True):
    """Give a call whose i-th attempt gets the i-th script."""
    return {
        "model": "sim-fast",
        "stream": stream,
        "messages": [{"role": "user", "content": "go"}],
        "simulate": list(attempts),
        "simulate_id": name,
    }


async def called(client, edge, body, **headers):
    """Call an edge; its answer, whole."""
    return await client.post(f"{edge.url}/v1/chat/completions", headers=HEADERS | headers, json=body)


def text_of(answer):
    """Give the text of a stream or a whole answer."""
    if answer.headers["content-type"].startswith("application/json"):
        return answer.json()["choices"][0]["message"]["content"]
    chunks = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    return "".join(c["delta"].get("content") or "" for chunk in chunks for c in chunk.get("choices", ()))


async def replayed(client, edge, answer):
    """The text as another edge reads it from the log."""
    url = f"{edge.url}/v1/generations/{answer.headers['x-generation-id']}"
    stream = await client.get(f"{url}/events?dialect=openai.chat", headers=HEADERS)
    state = await client.get(url, headers=HEADERS)
    return text_of(stream), state.json()["attempts"]


async def test_attempts_on_the_log(edges, simulator):
    """An error before content is tried again, a silence is raced, a held answer that stalls too: one text each, everywhere."""
    here, there = edges
    silent, stalls = {"silent": True}, QUICK | {"text": "never shown", "hang_after": 1}
    cases = {
        "retry": (asked("retry", {"status": 503}, QUICK), [("first", False), ("retry", True)]),
        "hedge": (asked("hedge", silent, QUICK), [("first", False), ("hedge_ttft", True)]),
        "held": (asked("held", stalls, QUICK, stream=False), [("first", False), ("hedge_stall", True)]),
    }
    async with httpx.AsyncClient(timeout=30) as client:
        for name, (body, wanted) in cases.items():
            answer = await called(client, here, body)
            assert answer.status_code == 200, (name, answer.text)
            text, attempts = await replayed(client, there, answer)
            assert text == text_of(answer) != ""
            assert "never" not in text
            assert [(a["reason"], a.get("committed", False)) for a in attempts] == wanted, name
            assert {a["outcome"] for a in attempts} <= {"ok", "failed", "cancelled"}
    await until(lambda: sum(request.aborted_by_client for request in simulator.requests) == 2)


async def test_a_broken_answer_goes_on_on_any_edge(edges):
    """The error names the next generation before anybody can ask for it; another edge plays it, with no text twice."""
    here, there = edges
    body = asked("goes-on", QUICK | {"text": "one two three ", "cut_after": 2}, QUICK | {"text": "and four"})
    async with httpx.AsyncClient(timeout=30) as client:
        answer = await called(client, here, body, **{"x-tokentrail-on-break": "continue"})
        errors = [json.loads(line[6:]) for line in answer.text.splitlines() if '"error"' in line]
        successor = errors[-1]["error"]["successor"]
        url = f"{there.url}/v1/generations/{successor}"
        rest = await client.get(f"{url}/events?dialect=openai.chat", headers=HEADERS)
        assert text_of(rest) == "and four"
        state = (await client.get(url, headers=HEADERS)).json()
    assert "one two three and four".startswith(text_of(answer))
    assert state["attempts"][0]["continuation_point"] > 0
    assert answer.headers["x-generation-id"] in json.dumps(state)
