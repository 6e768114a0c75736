"""No secret is in a log or on a topic: two edges and a worker on Apache Kafka, and then a look at all that they wrote."""

import asyncio
import socket
import time

import httpx
import pytest
from aiokafka import AIOKafkaProducer

from compose.embedded.simulator import Simulator
from schemas.topics import CLAIMS, TOPICS
from tests.support.client import body, new_client
from tests.support.processes import KEY, Edge, Process, environment, write_config
from tests.support.sinks import log_of
from tests.support.waiting import until

ENDLESS = {"tokens": 100_000, "interval_ms": 20}
PROVIDER_KEY, SIGNING = "key-of-the-provider-7f3a", "signing-secret-7f3a"


@pytest.fixture
async def watched(topics, tmp_path):
    """A provider, two edges and a worker, with secrets whose texts can be told; (edges, processes, provider)."""
    async with Simulator(port=0) as simulator:
        write_config(tmp_path, simulator.base_url)
        config = tmp_path / "tokentrail.toml"
        text = config.read_text().replace(
            "[providers.sim]\n", f'[providers.sim]\napi_key = "{PROVIDER_KEY}"\n'
        )
        config.write_text(text + f'[secrets]\ncursor = ["{SIGNING}"]\n')
        edges = [Edge(tmp_path, environment(topics), f"edge-{i}-{tmp_path.name}") for i in (1, 2)]
        worker = Process("pipeline", tmp_path, environment(topics), "pipeline")
        try:
            for process in (*edges, worker):
                process.start()
            for edge in edges:
                await edge.until_ready()
            yield edges, [*edges, worker], simulator
        finally:
            for process in (*edges, worker):
                process.stop()


async def _garbled(port, line):
    """Send a request line that is no HTTP."""

    def send():
        with socket.create_connection(("127.0.0.1", port), 5) as sock:
            sock.sendall(line.encode() + b"\r\n\r\n")
            return sock.recv(1000)

    return await asyncio.to_thread(send)


async def _broken_claim(topics, secret):
    """Put a record onto the claims topic that is none, with a secret in it."""
    producer = AIOKafkaProducer(bootstrap_servers=topics)
    await producer.start()
    try:
        await producer.send_and_wait(CLAIMS.name, secret.encode(), key=b"k")
    finally:
        await producer.stop()


async def _kept(kafka, since_ms, broken):
    """Everything that lies on any topic since then, but for the record that is none."""
    records = [r for topic in TOPICS for r in await log_of(kafka, topic) if r.timestamp >= since_ms]
    return b"\n".join((r.key or b"") + b" " + (r.value or b"") for r in records if r.value != broken)


async def test_no_secret_is_in_a_log(watched, topics):
    """Calls that succeed and fail in many ways, a kill, a broken record: no key, ticket, id or prompt is ever written."""
    (first, second), processes, simulator = watched
    began_ms = time.time_ns() // 1_000_000
    said = {"prompt": "what-a-person-asked-7f3a", "wrong": "a-wrong-key-7f3a", "idempotency": "idem-7f3a"}
    asked = body(tokens=5) | {"messages": [{"role": "user", "content": said["prompt"]}]}
    chat = f"{first.url}/v1/chat/completions"
    async with new_client() as client:
        once = {"idempotency-key": said["idempotency"]}
        for url in (first.url, second.url):
            await client.post(f"{url}/v1/chat/completions", json=asked, headers=once)
        await client.post(chat, json=asked | {"n": 1}, headers=once)
        await client.post(chat, json=asked, headers={"authorization": f"Bearer {said['wrong']}"})
        echo = {"status": 401, "error": {"message": f"Incorrect API key provided: {PROVIDER_KEY}"}}
        for simulate in ({"status": 500}, {"status": 429}, {"tokens": 3, "cut_after": 1}, echo):
            answer = await client.post(chat, json=asked | {"simulate": simulate})
        assert "Incorrect API key provided: [key]" in answer.text
        begun = (await client.post(chat, json=asked, headers={"prefer": "respond-async"})).json()
        said["ticket"] = begun["ticket"]
        async with httpx.AsyncClient(timeout=20) as guest:
            for edge in (first, second):
                at = f"{edge.url}{begun['events_url']}?ticket={said['ticket']}"
                events = await guest.get(at)
                await guest.get(at + "x")
                await guest.get(at, headers={"last-event-id": "garbled"})
                await guest.options(
                    at, headers={"origin": "https://x", "access-control-request-method": "GET"}
                )
        said["cursor"] = events.text.split("id: ")[1].split("\n")[0]
        one = f"{first.url}/v1/generations/{begun['generation_id']}"
        native = {"last-event-id": said["cursor"], "x-resume-nack": "0-1"}
        assert (await client.get(f"{one}/events", headers=native)).status_code == httpx.codes.OK
        for path, told in (("/ack", {"missing": [[0, 1]]}), ("/tickets", {}), ("/cancel", {})):
            assert (await client.post(one + path, json=told)).is_success
        await _garbled(first.port, f"GET {begun['events_url']}?ticket={said['ticket']} HTTP/9.9 what")
        await _garbled(first.port, f"\x00{said['ticket']}")
        await _broken_claim(topics, said["wrong"])
        await first.until_said("a record cannot be read")
        running = asyncio.create_task(client.post(chat, json=asked | {"simulate": ENDLESS, "stream": True}))
        before = len(simulator.requests)
        await until(lambda: len(simulator.requests) > before)
        second.kill()
        await simulator.__aexit__(None, None, None)
        await asyncio.gather(running, return_exceptions=True)
        await client.post(chat, json=asked)
    assert await asyncio.to_thread(first.stop) is not None
    logs = "".join(process.said() for process in processes)
    assert "a record cannot be read" in logs
    broken = said.pop("wrong").encode()
    signed = said.pop("cursor").split("-", 2)[2]  # its hint is in the log by its nature
    secrets = {**said, "signature": signed, "key": KEY, "provider": PROVIDER_KEY, "signing": SIGNING}
    assert broken.decode() not in logs
    kept = await _kept(topics, began_ms, broken)
    assert begun["generation_id"].encode() in kept
    assert broken not in kept
    for name, secret in secrets.items():
        assert secret not in logs, name
        assert secret.encode() not in kept, name
