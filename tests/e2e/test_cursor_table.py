"""The cursor table over HTTP on a real Kafka: from the owner's memory and from the log on another edge, the same answers."""

import asyncio

import httpx
import pytest

from compose.forgetting import forget
from schemas.cursor import render, resumption_token, sign
from schemas.ids import uuid7
from tests.casebook.edges import wall_ms
from tests.support.dialects import HEADERS, OTHER
from tests.support.place import frames, ids_of, place, read, said
from tests.support.warehouse import empty_database

pytestmark = pytest.mark.services
SECRET = b"tokentrail-development-secret"
DIALECT = "openai.chat"
STRANGER = {"authorization": f"Bearer {OTHER}"}


@pytest.fixture
async def http():
    """Give a client of tenant acme."""
    async with httpx.AsyncClient(headers=HEADERS, timeout=30) as client:
        yield client


@pytest.fixture
def store(clickhouse):
    """Give a database of its own."""
    with empty_database(clickhouse) as made:
        yield made


def tampered(event_id, generation_id):
    """Give what a thief might send: each part changed, other secrets, seqs, keys, generations, and no signature at all."""
    seq, hint, sig = event_id.split("-", 2)
    head = f"{seq}-{hint}"
    other = uuid7(wall_ms(), 5)
    partition, offset = map(int, hint.split("."))

    def signed(secret=SECRET, generation=generation_id, at=int(seq), key="key-1"):
        return render(int(seq), partition, offset, sign(secret, generation, at, key))

    assert signed() == event_id
    return [
        f"{head}-{'A' if sig[0] != 'A' else 'B'}{sig[1:]}",
        f"{head}-{sig[:-1]}{'A' if sig[-1] != 'A' else 'B'}",
        f"{int(seq) + 1}-{hint}-{sig}",
        signed(secret=b"guessed"),
        signed(generation=other),
        signed(at=int(seq) + 1),
        signed(key="key-2"),
        seq,
    ]


async def test_every_row_of_the_table(topics, clickhouse, store, http):
    """In range, at the end, ahead, forged, garbled, foreign, unknown, unsigned, from the start, forgotten: as it says."""
    async with place(topics, clickhouse, store) as here:
        generation_id, live = await said(http, here, DIALECT)
        ids = ids_of(live)
        last_seq = int(ids[-1].split("-")[0])
        path = f"/v1/generations/{generation_id}/events"
        for edge in (here.owner, here.url):  # its memory; the log
            assert await read(http, edge, generation_id, DIALECT) == live
            for at in range(len(ids) - 1):
                assert await read(http, edge, generation_id, DIALECT, ids[at]) == live[at + 1 :]

            async def asked(headers=None, edge=edge, target=path, **query):
                return await http.get(
                    edge + target, headers=headers or {}, params={"dialect": DIALECT} | query
                )

            resumed = await asked({"last-event-id": ids[2]})
            assert resumed.headers["x-resumed-from"] == ids[2].split("-")[0]
            ended = await asked({"last-event-id": ids[-1]})
            assert (ended.status_code, ended.content) == (204, b"")
            for forged in tampered(ids[3], generation_id):
                assert refused(await asked({"last-event-id": forged})) == (401, "cursor_invalid")
            for garbled in ("", "abc", "-1", "1e1", "9" * 200):
                assert refused(await asked({"last-event-id": garbled})) == (400, "cursor_invalid")
            unknown = f"/v1/generations/{uuid7(wall_ms(), 77)}/events"
            answers = [await asked(STRANGER), await asked(STRANGER | {"last-event-id": ids[3]})]
            answers.append(await asked(target=unknown))
            assert {(a.status_code, a.content) for a in answers} == {(404, answers[0].content)}
            assert frames((await asked(after="3")).content) == live[seqs(ids).index(3) + 1 :]
            assert refused(await asked(after=str(last_seq + 9))) == (409, "cursor_ahead")
            token = resumption_token(generation_id, 3, sign(SECRET, generation_id, 3, "key-1"))
            by_token = await asked({"last-event-id": "3", "x-resumption-token": token})
            assert frames(by_token.content) == live[seqs(ids).index(3) + 1 :]
            again = await asked({"last-event-id": ids[-1], "x-resume-mode": "from-start"})
            assert frames(again.content) == live
            assert "x-resumed-from" not in again.headers
            assert refused(await asked({"x-resume-mode": "sideways"})) == (400, "bad_request")
        await forgotten(here, http, generation_id, ids)


def seqs(ids):
    """Give the seqs of ids."""
    return [int(event_id.split("-")[0]) for event_id in ids]


def refused(answer):
    """Give the status and the code of a refusal."""
    return answer.status_code, answer.json()["error"]["code"]


async def forgotten(here, http, generation_id, ids):
    """Forgotten on request: 410 on every edge within moments, for good; again is the same, and so is the archive.

    A stranger is answered as about an id that never was, also by the edge that cannot ask the archive.
    """
    for _ in range(2):
        receipt = await forget(here.target, generation_id, 5)
        assert (receipt.tenant, receipt.ended, receipt.warehouse) == ("acme", True, "none")
        assert receipt.log_copy_gone_by is not None
    await here.store_all()
    left = here.store.query(
        "SELECT kind, raw FROM events WHERE generation_id = {id:UUID}", {"id": generation_id}
    )
    assert {row["kind"] for row in left} == {"forgotten"}
    for edge in (here.owner, here.url, here.blind):
        url = f"{edge}/v1/generations/{generation_id}"

        async def is_erased(url=url):
            return (await http.get(f"{url}/events", params={"after": "1"})).status_code == 410

        await until_true(is_erased)
        for path in ("", "/result", "/events"):
            assert refused(await http.get(url + path, headers={"last-event-id": ids[2]})) == (410, "erased")
        nowhere = f"{edge}/v1/generations/{uuid7(wall_ms(), 78)}"
        told, as_if = [await http.get(f"{at}/events", headers=STRANGER) for at in (url, nowhere)]
        assert (told.status_code, told.content) == (as_if.status_code, as_if.content)
        assert told.status_code == (503 if edge == here.blind else 404)


async def until_true(ask):
    """Ask again until it is so; within the time that a word needs to every edge."""
    for _ in range(500):
        if await ask():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("no edge heard it in time")


async def test_a_running_generation_is_forgotten(topics, clickhouse, store, http):
    """It is ended, its readers on both edges are told so by an unnumbered frame, and nothing of it is given again."""
    body = {"model": "sim-chat", "stream": True, "messages": [{"role": "user", "content": "go"}]}
    body["simulate"] = {"ttft_ms": 0, "interval_ms": 20, "tokens": 3000}
    async with place(topics, clickhouse, store) as here:
        async with http.stream("POST", f"{here.owner}/v1/chat/completions", json=body) as owner:
            generation_id = owner.headers["x-generation-id"]
            url = f"{here.url}/v1/generations/{generation_id}/events"
            async with http.stream("GET", url, params={"dialect": DIALECT}) as reader:
                receipt, one, other = await asyncio.gather(
                    forget(here.target, generation_id, 10), owner.aread(), reader.aread()
                )
        assert receipt.ended
        for said_last in (one, other):
            last = said_last.rstrip().split(b"\n\n")[-1]
            assert b'"erased"' in last or b'"cancelled"' in last
            assert len(frames(said_last)) < 3000
        for edge in (here.owner, here.url, here.blind):
            answer = await http.get(f"{edge}/v1/generations/{generation_id}/events")
            assert refused(answer) == (410, "erased")
