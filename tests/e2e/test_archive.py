"""Past Kafka's retention, and on a topic that was made anew: edges on a real Kafka with a real ClickHouse behind them.

Every frame that a client was given comes again, byte for byte, from whichever of the two holds it.
"""

import asyncio

import httpx
import pytest

from compose.topics import apply
from schemas.partition import partition_of
from schemas.settings import Resume
from schemas.topics import EVENTS
from tests.support.dialects import HEADERS, OTHER
from tests.support.place import CALLS, ids_of, offset_of, place, read, said
from tests.support.warehouse import empty_database

pytestmark = pytest.mark.services


@pytest.fixture
async def http():
    """Give a client of tenant acme."""
    async with httpx.AsyncClient(headers=HEADERS, timeout=30) as client:
        yield client


@pytest.mark.parametrize("dialect", CALLS)
async def test_past_retention_every_frame_comes_again(topics, clickhouse, http, dialect):
    """Log and archive, then the archive alone: the same bytes in both dialects behind every cursor, result and state too."""
    with empty_database(clickhouse) as store:
        async with place(topics, clickhouse, store) as here:
            generation_id, live = await said(http, here, dialect)
            about = [f"{here.url}/v1/generations/{generation_id}{path}" for path in ("", "/result")]
            native = await read(http, here.url, generation_id, "native")
            before = [(await http.get(url)).json() for url in about]
            await here.store_all()
            partition = partition_of(generation_id.encode(), EVENTS.partitions)
            native_ids, ids = ids_of(native), ids_of(live)
            for cut in (offset_of(ids[3]), offset_of(ids[-1]) + 1):
                await here.backend.prune(partition, cut)
                assert await read(http, here.url, generation_id, dialect) == live
                assert await read(http, here.url, generation_id, "native") == native
                for place_in in (0, 2, 5, len(ids) - 2):
                    rest = await read(http, here.url, generation_id, dialect, ids[place_in])
                    assert rest == live[place_in + 1 :]
                assert await read(http, here.url, generation_id, "native", native_ids[1]) == native[2:]
                assert [(await http.get(url)).json() for url in about] == before
            await refusals(http, here, generation_id, ids)


async def refusals(http, here, generation_id, ids):
    """What is gone from the log is refused as ever, and what only the archive can know is not guessed without it."""
    url = f"/v1/generations/{generation_id}/events"
    forged = ids[2][:-1] + ("A" if ids[2][-1] != "A" else "B")
    rows_of_the_table = [
        (here.url, HEADERS | {"last-event-id": ids[-1]}, 204, None),
        (here.url, HEADERS | {"last-event-id": forged}, 401, "cursor_invalid"),
        (here.url, {"authorization": f"Bearer {OTHER}"}, 404, "not_found"),
        (here.blind, HEADERS, 503, "log_unavailable"),
        (here.blind, HEADERS | {"last-event-id": ids[2]}, 503, "log_unavailable"),
    ]
    for edge, headers, status, code in rows_of_the_table:
        answer = await http.get(edge + url, headers=headers)
        assert answer.status_code == status, answer.text
        if code is not None:
            assert answer.json()["error"]["code"] == code
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["x-should-retry"] == "true"
    for path in ("", "/result"):
        answer = await http.get(f"{here.blind}/v1/generations/{generation_id}{path}")
        assert answer.status_code == 503
    here.store.command("TRUNCATE TABLE events")
    answer = await http.get(here.url + url, headers={"last-event-id": ids[2]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (410, "resume_expired")
    assert (await http.get(here.url + url)).status_code == 404


async def test_on_a_topic_that_was_made_anew(clickhouse, tmp_path, http):
    """Hints that lead to another's record, or behind the end, are dropped; what the new log lacks the archive has."""
    broker = await asyncio.to_thread(_started, tmp_path)
    try:
        servers = broker.bootstrap_servers
        await apply(servers, window_days=Resume().window_days)
        with empty_database(clickhouse) as store:
            async with place(servers, clickhouse, store, alone=True) as here:
                old = [await said(http, here, dialect) for dialect in CALLS]
                await here.store_all()
            await _made_anew(servers)
            async with place(servers, clickhouse, store, alone=True) as here:
                for _ in range(2):  # first it is empty, then others lie where the hints point
                    for dialect, (generation_id, live) in zip(CALLS, old, strict=True):
                        ids = ids_of(live)
                        assert await read(http, here.url, generation_id, dialect) == live
                        assert await read(http, here.url, generation_id, dialect, ids[4]) == live[5:]
                        forged = ids[4][:-1] + ("A" if ids[4][-1] != "A" else "B")
                        answer = await http.get(
                            f"{here.url}/v1/generations/{generation_id}/events",
                            headers={"last-event-id": forged},
                        )
                        assert answer.status_code == 401
                    new = [await said(http, here, dialect) for dialect in CALLS]
                for dialect, (generation_id, live) in zip(CALLS, new, strict=True):
                    assert await read(http, here.url, generation_id, dialect, ids_of(live)[4]) == live[5:]
    finally:
        await asyncio.to_thread(broker.__exit__, None, None, None)


def _started(folder):
    from compose.embedded.kafka import EmbeddedKafka
    from tests.support.kafka import kafka_options

    broker = EmbeddedKafka(kafka_options(folder / "kafka"), die_with_parent=True)
    return broker.__enter__()


async def _made_anew(servers):
    from compose.kafka import admin

    async with admin(servers) as cluster:
        await cluster._client.delete_topics([EVENTS.name])
    async with asyncio.timeout(20):
        while True:
            async with admin(servers) as cluster:
                if not await cluster.topics([EVENTS.name]):
                    break
            await asyncio.sleep(0.1)
    await apply(servers, window_days=Resume().window_days)
