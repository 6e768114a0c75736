"""A reader that takes nothing, on real sockets and Apache Kafka: it holds up neither the log nor anybody else."""

import asyncio
import socket
from urllib.parse import urlsplit

from tests.support.client import Reader, body
from tests.support.processes import HEADERS

TOKENS, MODEL = 6_000, "m" * 450
"""Some four megabytes of frames, each of which says the model's name: more than the sockets' buffers take of it."""


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


async def the_rest(sock):
    """What it takes at last: the ids, in order."""
    taken = b""
    while not taken.endswith(b"data: [DONE]\n\n"):
        piece = await asyncio.get_running_loop().sock_recv(sock, 1 << 20)
        assert piece, "it was cut off"
        taken = (taken + piece).replace(b"\r\n", b"\n")
        ended = taken.find(b"data: [DONE]\n\n")
        if ended >= 0:
            taken = taken[: ended + 14]
    return [line[4:].decode() for line in taken.split(b"\n") if line.startswith(b"id: ")]


async def test_a_stuck_reader_holds_up_nobody(edges, client):
    """Stuck ones on both edges: the generation ends, who reads gets all of it, and so does a stuck one that reads again."""
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
        for sock in sockets[:2]:
            assert await the_rest(sock) == [event.id for event in readers[0].events]
    finally:
        for sock in sockets:
            sock.close()
    assert await first.resume(edges[1].url)
    assert first.frames == readers[0].frames
