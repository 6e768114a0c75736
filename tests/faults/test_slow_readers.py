"""A reader that takes nothing, on real sockets and Apache Kafka: it holds up neither the log nor anybody else."""

import asyncio
import socket
from urllib.parse import urlsplit

from tests.support.client import Reader, body
from tests.support.processes import HEADERS

TOKENS, MODEL = 4_000, "m" * 500
"""Some three megabytes of frames, each of which says the model's name: more than the sockets' buffers take of it."""


async def stuck(url, path):
    """A connection that asks for a stream, and whose socket takes a few kilobytes of it."""
    parts = urlsplit(url)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (parts.hostname, parts.port))
    head = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    sock.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\n{head}\r\n".encode())
    await asyncio.get_running_loop().sock_recv(sock, 1)  # it is served
    return sock


async def test_a_stuck_reader_holds_up_nobody(edges, client):
    """Stuck ones on both edges: the generation ends, who reads gets all of it, and who left can come back."""
    first = Reader(client)
    asked = body(tokens=TOKENS, interval_ms=0, ttft_ms=1_000) | {"model": MODEL}
    await first.post(edges[0].url, asked, cut_after=1)
    path = f"/v1/generations/{first.generation_id}/events?dialect=openai.chat"
    sockets = [await stuck(edge.url, path) for edge in (*edges, *edges)]
    try:
        readers = [Reader(client), Reader(client)]
        for reader in readers:
            reader.generation_id = first.generation_id
        whole = await asyncio.gather(*(r.resume(e.url) for r, e in zip(readers, edges, strict=True)))
        assert whole == [True, True]
        assert readers[0].frames == readers[1].frames
        assert len(readers[0].events) > TOKENS
        assert MODEL in readers[0].events[0].data
    finally:
        for sock in sockets:
            sock.close()
    assert await first.resume(edges[1].url)
    assert first.frames == readers[0].frames
