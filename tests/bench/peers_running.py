"""The peers of `row_peers`: installed from their locks into a temporary folder, started on free ports, stopped with the row.

A peer that cannot be installed or started here is skipped by name; it is never a reason for the row to fail.
Before: `row_peers`. After: `tests/bench/peers/`, `requirements/peers.lock`.
"""

import asyncio
import os
import re
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import orjson

from compose.stack import HOST
from tests.bench.client import exchange, request_of
from tests.bench.stack import ROOT, BenchFailed, Child, end_process
from tests.support.javascript import node

FILES = ROOT / "tests/bench/peers"
LOCK = ROOT / "requirements/peers.lock"
INSTALL_S = 180
READY_S = 30
_NEXT_OFFSET = re.compile(rb"\r\nstream-next-offset: (\S+)\r\n", re.IGNORECASE)


class Peer(NamedTuple):
    """A server with the same events in it."""

    name: str
    port: int
    mark: bytes  # how an event begins
    fill: Callable[
        [str, Sequence[bytes]], Awaitable[bytes]
    ]  # (stream, events) → the request for all but the first


@asynccontextmanager
async def peers(folder: Path, tell: Callable[[str], None]) -> AsyncIterator[list[Peer]]:
    """Those that run here."""
    async with AsyncExitStack() as stack:
        found = []
        for name, started in (("durable_streams", _durable_streams), ("resumable_stream", _resumable_stream)):
            try:
                place = folder / name
                place.mkdir()
                found.append(await stack.enter_async_context(started(place)))
            except (BenchFailed, OSError, TimeoutError) as error:
                tell(f"peers: {name} is left out: {error}")
        yield found


@asynccontextmanager
async def _durable_streams(folder: Path) -> AsyncIterator[Peer]:
    if (command := node()) is None or (npm := shutil.which("npm")) is None:
        raise BenchFailed("Node or npm is not installed here")
    for file in FILES.iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    await _done([npm, "ci", "--loglevel=error"], folder)
    port, data = free_port(), folder / "data"
    data.mkdir()
    words = [*command, "durable_streams.mjs", str(port), str(data)]

    async def fill(name: str, events: Sequence[bytes]) -> bytes:
        path = f"/streams/{name}"
        await _ask(port, request_of("PUT", path, "-", headers={"content-type": "application/json"}))
        heads = await _appended(port, path, events)
        offset = _NEXT_OFFSET.search(heads[0])
        if offset is None:
            raise BenchFailed(f"Durable Streams names no offset: {heads[0][:400]!r}")
        await _ask(port, _posted(path, b"", {"stream-closed": "true"}))
        return request_of("GET", f"{path}?offset={offset[1].decode()}&live=sse", "-")

    async with _serving("durable_streams", words, folder, port):
        yield Peer("durable_streams", port, b"event: data\n", fill)


@asynccontextmanager
async def _resumable_stream(folder: Path) -> AsyncIterator[Peer]:
    redis = shutil.which("redis-server")
    if redis is None:
        raise BenchFailed("redis-server is not installed here (Debian: apt-get install redis-server)")
    python = folder / "venv/bin/python"
    await _done([sys.executable, "-m", "venv", str(folder / "venv")], folder)
    install = ["install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", str(LOCK)]
    await _done([str(python), "-m", "pip", *install], folder)
    redis_port, port = free_port(), free_port()
    kept = ["--bind", HOST, "--port", str(redis_port), "--dir", str(folder), "--appendonly", "yes"]

    async def fill(name: str, events: Sequence[bytes]) -> bytes:
        await _ask(port, _posted(f"/streams/{name}", orjson.dumps([event.decode() for event in events])))
        return request_of("GET", f"/streams/{name}?after=1", "-")

    app = [str(python), str(FILES / "resumable.py"), str(port), str(redis_port)]
    async with (
        _serving("redis", [redis, *kept], folder, redis_port),
        _serving("resumable_stream", app, folder, port),
    ):
        yield Peer("resumable_stream", port, b"data: ", fill)


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


def _posted(path: str, body: bytes, headers: dict[str, str] | None = None) -> bytes:
    more = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    return request_of("POST", path, "-", headers=more) + body


async def _appended(port: int, path: str, events: Sequence[bytes]) -> list[bytes]:
    """One append for each event, as they come from a model: all on one connection; the answers' heads."""
    reader, writer = await asyncio.open_connection(HOST, port)
    heads = []
    try:
        for event in events:
            asked = _posted(path, event).replace(b"connection: close", b"connection: keep-alive", 1)
            writer.write(asked)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 20") or b"transfer-encoding" in head.lower():
                raise BenchFailed(f"a peer refused: {head!r}")
            heads.append(head)
    finally:
        writer.close()
    return heads


async def _ask(port: int, request: bytes) -> bytes:
    asked = await exchange(port, request)
    async with asyncio.timeout(READY_S):
        await asked.closed
    if not re.match(rb"HTTP/1\.1 20[0-9] ", asked.whole):
        raise BenchFailed(f"a peer refused: {asked.whole[:400]!r}")
    return asked.whole


async def _done(command: Sequence[str], folder: Path) -> None:
    """Run a command to its end; where we are stopped meanwhile, what it started is ended with it."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(INSTALL_S):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(
                process.pid, signal.SIGKILL
            )  # the group is its own: venv's and npm's children write, too
            await process.wait()
    if process.returncode != 0:
        raise BenchFailed(f"{Path(command[0]).name} left with {process.returncode}: {said[-400:]!r}")


@asynccontextmanager
async def _serving(name: str, command: Sequence[str], folder: Path, port: int) -> AsyncIterator[None]:
    log = folder / f"{name}.log"
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, env=environ, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    child = Child(name, process, log)
    try:
        async with asyncio.timeout(READY_S):
            while not await _listens(port):
                child.check()
                await asyncio.sleep(0.05)
        yield
        child.check()
    finally:
        await end_process(process, READY_S)


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    writer.close()
    return True
