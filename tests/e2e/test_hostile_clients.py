"""Clients that send what nobody should: each has an answer of its own, and none is a bug in the edge's log."""

import asyncio
import logging

import httpx
import pytest

from tests.support.dialects import HEADERS, KEY, QUICK, world
from tests.support.waiting import until

CHAT = {"model": "sim-chat", "stream": True, "messages": [{"role": "user", "content": "go"}]}
SHORT = CHAT | {"simulate": QUICK | {"tokens": 3}}


@pytest.fixture
async def two():
    async with world(limit={"body_idle_s": 0.3}) as running:
        yield running


@pytest.fixture
async def http():
    async with httpx.AsyncClient(headers=HEADERS, timeout=20) as client:
        yield client


@pytest.fixture(autouse=True)
def no_bug(caplog):
    """The edge's server wrote no error: neither an exception of ours nor a response without end."""
    yield
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("name", ["x-deadline-ms", "x-context-ms"])
@pytest.mark.parametrize("value", ["9" * 5000, "0", "000", "-1", "1e3", "²", "9" * 13])
async def test_a_number_that_is_none_is_refused(two, http, name, value):
    """Also one with more digits than Python reads."""
    answered = await http.post(
        f"{two.urls[0]}/v1/chat/completions", json=SHORT, headers={name: value.encode("latin-1")}
    )
    assert (answered.status_code, answered.json()["error"]["code"]) == (400, "bad_request")


@pytest.mark.parametrize("value", ["1", "007", "9" * 12])
async def test_a_number_that_is_one_is_taken(two, http, value):
    """Leading zeros included; and obeyed: what cannot be answered within a few milliseconds is a time-out."""
    headers = {"x-deadline-ms": value}
    answered = await http.post(f"{two.urls[0]}/v1/chat/completions", json=SHORT, headers=headers)
    assert answered.status_code == 200 if int(value) > 1_000 else answered.status_code in (200, 504)


@pytest.mark.parametrize("sig", ["é" * 22, "ÿþ", "", "A" * 22])
async def test_a_signature_that_is_none_is_forged(two, http, sig):
    """Beside a plain seq, whatever its bytes."""
    begun = await http.post(f"{two.urls[0]}/v1/chat/completions", json=SHORT)
    token = f"seq=1&sig={sig}".encode("latin-1")
    for url in two.urls:
        answered = await http.get(
            f"{url}/v1/generations/{begun.headers['x-generation-id']}/events",
            headers={"last-event-id": "1", "x-resumption-token": token},
        )
        assert (answered.status_code, answered.json()["error"]["code"]) == (401, "cursor_invalid")


async def half_a_body(two):
    """A connection that has sent a head and half of the body that it announces."""
    host, port = two.urls[0].removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n"
        'content-length: 99\r\n\r\n{"model": '.encode()
    )
    await writer.drain()
    return reader, writer


async def test_half_a_body_and_gone(two):
    """A client that leaves while it sends is no bug, and no generation."""
    _, writer = await half_a_body(two)
    seats = two.services[0].desk.seats
    await until(lambda: len(seats) == 1)
    writer.close()
    await writer.wait_closed()
    await until(lambda: len(seats) == 0)
    assert len(two.services[0].registry) == 0


async def test_half_a_body_and_silent(two):
    """A client that stops sending is told so, and holds nothing."""
    reader, writer = await half_a_body(two)
    async with asyncio.timeout(5):
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
    writer.close()


async def test_names_of_models_make_no_series(two, http):
    """A default route serves any name; the metrics do not keep each of them."""
    names = [f"made-up-{number}" for number in range(5)]
    for name in names:
        await http.post(f"{two.urls[0]}/v1/chat/completions", json=SHORT | {"model": name})
    await http.post(f"{two.urls[0]}/v1/chat/completions", json=SHORT)
    await until(lambda: two.services[0].metrics.render().count(b"first_token_latency_ms_count") == 2)
    text = two.services[0].metrics.render().decode()
    assert 'model="sim-chat"' in text
    assert 'sse_first_token_latency_ms_count{model="other"} 5.0' in text
    assert not [name for name in names if name in text]
