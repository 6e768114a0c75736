"""A client that stays and takes nothing, on a real socket: after a while it is disconnected, and can come back."""

import asyncio
import contextlib
import hashlib
import json
import socket
import sys

import httpx
import pytest
import uvicorn

import edge.app
from schemas.settings import ApiKey
from tests.support.running import BODY, edge_with
from tests.support.upstream import HANG, Script, chunk
from tests.support.waiting import until

KEY, PATH = "a client's key", "/v1/chat/completions"
AUTH = {"authorization": f"Bearer {KEY}"}
KEYS = (ApiKey(id="key-1", tenant="acme", sha256=hashlib.sha256(KEY.encode()).hexdigest()),)
CHUNKS = [chunk("x" * 60_000)] * 100
"""Six megabytes: more than the sockets' buffers take."""


@contextlib.asynccontextmanager
async def serving(service):
    """Serve on the edge's own kind of socket; where it listens."""
    listening = edge.app.listen("127.0.0.1", 0)
    config = uvicorn.Config(edge.app.build_app(service), log_config=None, access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    running = asyncio.ensure_future(server.serve(sockets=[listening]))
    try:
        await until(lambda: server.started)
        yield listening.getsockname()
    finally:
        server.should_exit = True
        await running
        listening.close()


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_USER_TIMEOUT is Linux's")
async def test_who_takes_nothing_is_disconnected_with_his_place(monkeypatch):
    """It holds neither its seat nor the generation; with the id of the first event it gets everything behind it."""
    monkeypatch.setattr(edge.app, "VANISHED_MS", 300)
    loop = asyncio.get_running_loop()
    async with edge_with(Script(*CHUNKS, HANG), keys=KEYS) as running, serving(running.service) as address:
        with socket.socket() as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            stuck.setblocking(False)
            await loop.sock_connect(stuck, address)
            asked = json.dumps(BODY).encode()
            head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(asked)}\r\n\r\n"
            await loop.sock_sendall(stuck, head.encode() + asked)
            await until(lambda: len(running.service.registry.running()) == 1)
            (entry,) = running.service.registry.running()
            await until(lambda: len(entry.generation.window) == len(CHUNKS) + 1)
            await until(lambda: len(running.service.desk.seats) == 0)
        assert entry.generation.readers == 0
        assert not entry.finished
        url = f"http://{address[0]}:{address[1]}/v1/generations/{entry.generation.id}/events"
        async with (
            httpx.AsyncClient(headers=AUTH) as client,
            client.stream("GET", url, params={"after": "1"}) as again,
        ):
            seen = []
            async for line in again.aiter_lines():
                seen += [int(line[4:].split("-")[0])] if line.startswith("id: ") else []
                if seen and seen[-1] == len(CHUNKS):
                    break
        assert seen == list(range(2, len(CHUNKS) + 1))
        entry.driver.interrupt("cancelled")
        await running.over(entry)
