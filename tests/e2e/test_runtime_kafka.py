"""Retries, hedges and what follows a broken answer, on real edges and a real Kafka: one text, whoever reads it where."""

import asyncio
import json

import httpx
import pytest
import pytest_asyncio

from compose.embedded.simulator import Simulator
from compose.embedded.simulator.chunks import TOOL_CALL_ID
from tests.support.processes import HEADERS, UNHURRIED, two_edges
from tests.support.waiting import until

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module")]
QUICK = {"tokens": 8, "ttft_ms": 20, "interval_ms": 5}
RUNTIME = UNHURRIED | {
    "TOKENTRAIL_HEDGE__AFTER_S": "0.4",
    "TOKENTRAIL_HEDGE__STALL_AFTER_S": "0.5",
    "TOKENTRAIL_RETRY__BACKOFF_MS": "20",
    "TOKENTRAIL_TIMEOUT__TOOL_S": "1",
    "TOKENTRAIL_ADMISSION__TENANT_GENERATIONS": "1",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def simulator():
    """Give a provider in this process."""
    async with Simulator(port=0) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def edges(topics, simulator, tmp_path_factory):
    """Give two edges that race what is silent; no test of the file ends one."""
    async with two_edges(topics, simulator, tmp_path_factory.mktemp("edges"), RUNTIME) as started:
        yield started


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
    before = len(simulator.requests)
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
    await until(lambda: sum(request.aborted_by_client for request in [*simulator.requests][before:]) == 2)


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


async def test_tools_on_the_log(edges):
    """A tool reported on another edge is on record once and no longer awaited; an answer nobody speaks of gets a time-out."""
    here, there = edges
    body = asked("tools", QUICK) | {"model": "sim-tool"}
    deed = {"status": "succeeded", "side_effect_committed": True}

    async def traced(client, url):
        state = (await client.get(url, headers=HEADERS)).json()
        return [one["status"] for one in state["trace"] if one["kind"] == "tool_status"]

    async with httpx.AsyncClient(timeout=30) as client:
        urls = []
        for report in (True, False):
            answer = await called(client, here, body)
            urls.append(f"{there.url}/v1/generations/{answer.headers['x-generation-id']}")
            if report:
                told = await client.post(f"{urls[0]}/tools/{TOOL_CALL_ID}", headers=HEADERS, json=deed)
                assert (told.status_code, told.json()["may_retry"]) == (200, False)
        silent = []
        async with asyncio.timeout(15):
            while not silent:
                silent = await traced(client, urls[1])
        assert silent == ["timeout"]
        assert await traced(client, urls[0]) == ["succeeded"]


async def test_calls_take_turns_on_a_real_edge(edges):
    """Three calls of a tenant that may have one at a time are answered one after the other, and say how long they waited."""
    here, _ = edges
    async with httpx.AsyncClient(timeout=30) as client:
        answers = await asyncio.gather(*(called(client, here, asked(f"turn-{i}", QUICK)) for i in range(3)))
        assert [answer.status_code for answer in answers] == [200] * 3
        urls = [f"{here.url}/v1/generations/{answer.headers['x-generation-id']}" for answer in answers]
        states = [(await client.get(url, headers=HEADERS)).json() for url in urls]
    waited_us = sorted(state["end"]["latency"]["queue_us"] for state in states)
    assert waited_us[0] < waited_us[1] < waited_us[2]
    assert waited_us[1] > 20_000, "the first answer's own time to its first token"
