"""A ClickHouse that takes connections and says nothing: whoever waits for it waits once, not one behind the other."""

import asyncio

import pytest

from edge.reading import archive as module
from edge.reading.archive import Archive, ArchiveAway
from schemas.ids import uuid7
from schemas.settings import Settings


async def test_those_who_wait_for_a_silent_archive_are_told_together(monkeypatch):
    """The first question's silence is the answer to all that wait for the connection."""
    monkeypatch.setattr(module, "ANSWER_S", 0.6)
    monkeypatch.setattr(module, "CONNECT_S", 0.3)
    over, asked = asyncio.Event(), []

    async def silent(_, writer):
        asked.append(1)
        await over.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    archive = Archive(Settings(clickhouse={"url": f"http://127.0.0.1:{port}"}).clickhouse)
    asking = [archive.find("acme", uuid7(1_000, n)) for n in range(4)]
    answers = await asyncio.gather(*asking, return_exceptions=True)
    over.set()
    server.close()
    assert [type(answer) for answer in answers] == [ArchiveAway] * 4
    assert len(asked) == 1
    with pytest.raises(ArchiveAway):
        await archive.find("acme", uuid7(1_000, 9))
    await archive.close()
