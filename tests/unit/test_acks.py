"""Acknowledgements: what is claimed, what is compared, and what is sent again, on the stream or at the next connect."""

import asyncio
import json
import zlib

import httpx
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from edge.dialects import BadRequest
from edge.dialects.native import native_frame
from edge.reading.acks import TURN_EVENTS, TooMuch, checksum, claims_in, claims_of, within
from edge.reading.acks import wanted as wanted_of
from edge.reading.frames import ACK_EVERY
from edge.sse import SseDecoder
from schemas.events import Kind, SeqRange
from schemas.limits import Limit
from tests.support.dialects import HEADERS, OTHER, QUICK, world
from tests.support.events import log_event
from tests.support.waiting import until

LIMIT = Limit()
EVENTS = [
    log_event(Kind.MESSAGE_START, 0),
    *(log_event(Kind.DELTA, seq, raw=f"{seq}") for seq in range(1, 40)),
]
ASKED = {"model": "sim-fast", "stream": True, "messages": [{"role": "user", "content": "go"}]}
ENDLESS = {"ttft_ms": 0, "interval_ms": 5, "tokens": 100_000}

live = pytest.mark.asyncio(loop_scope="module")


def crc_of(events):
    """Give the checksum that a client makes of the data that it has."""
    return f"{zlib.crc32(''.join(data for _, data in events).encode()):08x}"


def wanted(claims, delivered, limit):
    """Give what must be sent again."""
    return asyncio.run(wanted_of(claims, delivered, limit))


@given(st.integers(0, 39), st.integers(0, 39))
def test_what_is_stored_is_not_sent_again(one, other):
    """A range whose checksum is that of its data needs nothing; any other checksum has it sent again, whole."""
    first, last = sorted((one, other))
    crc = crc_of([native_frame(event) for event in EVENTS[first : last + 1]])
    assert wanted(claims_of({"ranges": [[first, last, crc]]}, LIMIT), EVENTS, LIMIT) == []
    wrong = f"{int(crc, 16) ^ 1:08x}"
    again = wanted(claims_of({"ranges": [[first, last, wrong]]}, LIMIT), EVENTS, LIMIT)
    assert again == EVENTS[first : last + 1]


def test_each_event_is_sent_again_once():
    """Ranges that overlap, doubtful and lacking, give each event once and in order."""
    claims = claims_of({"ranges": [[4, 9, "00000000"]], "missing": [[8, 12], [2, 2]]}, LIMIT)
    assert [event.seq for event in wanted(claims, EVENTS, LIMIT)] == [2, *range(4, 13)]


def test_a_header_says_the_same_as_a_body():
    """X-Resumption-Checksum and X-Resume-Nack are read as the body's ranges are."""
    in_body = claims_of({"ranges": [[0, 31, "0a1b2c3d"]], "missing": [[5, 7], [12, 12]]}, LIMIT)
    assert claims_in("0-31:0a1b2c3d", "5-7, 12", LIMIT) == in_body
    assert not claims_in(None, None, LIMIT)


@pytest.mark.parametrize(
    "body",
    [
        {"ranges": {}},
        {"ranges": [[0, 1]]},
        {"ranges": [[1, 0, "00000000"]]},
        {"ranges": [[0, 1, "0000000G"]]},
        {"ranges": [[0, 1, 7]]},
        {"ranges": [[True, 1, "00000000"]]},
        {"missing": [[-1, 1]]},
        {"missing": [[0, 10**16]]},
        {"missing": [[0, 1, "00000000"]]},
        {"missing": ["0-1"]},
        {"ranges": [[0, 9, "00000000"], [9, 12, "00000000"]]},
        {"ranges": [[0, 9, "00000000"]] * 2},
    ],
)
def test_a_body_that_makes_no_sense_is_refused(body):
    """Every malformed range is refused with what one looks like."""
    with pytest.raises(BadRequest, match="ranges"):
        claims_of(body, LIMIT)


@pytest.mark.parametrize(
    ("checksums", "missing"),
    [
        ("0-1", None),
        ("0-1:xyz", None),
        ("1-0:00000000", None),
        ("", None),
        (None, "a"),
        (None, "3-1"),
        (None, "1,,2"),
        ("4-9:00000000,0-4:00000000", None),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(checksums, missing):
    """Every malformed header is refused."""
    with pytest.raises(BadRequest):
        claims_in(checksums, missing, LIMIT)


def test_the_limits_hold_at_their_edge():
    """So many ranges and so many events pass, and one more does not."""
    limit = Limit(ack_ranges=2, resent_events=3)
    assert len(claims_of({"missing": [[0, 0], [2, 2]]}, limit).missing) == 2
    with pytest.raises(BadRequest, match="ack_ranges"):
        claims_of({"missing": [[0, 0], [2, 2]], "ranges": [[4, 4, "00000000"]]}, limit)
    assert len(wanted(claims_of({"missing": [[1, 3]]}, limit), EVENTS, limit)) == 3
    with pytest.raises(TooMuch, match="resent_events"):
        wanted(claims_of({"missing": [[1, 4]]}, limit), EVENTS, limit)


def test_a_checksum_is_of_the_events_that_there_are():
    """A range without any event has the checksum of nothing."""
    assert asyncio.run(checksum(EVENTS, SeqRange(first=100, last=200))) == 0
    assert within(EVENTS, SeqRange(first=38, last=200)) == EVENTS[38:]


async def test_a_long_range_gives_way_to_the_streams():
    """While a long range is checked, the event loop serves others: once for every turn's events."""
    events = [log_event(Kind.DELTA, seq, raw=f"{seq}") for seq in range(20 * TURN_EVENTS)]
    checking = asyncio.create_task(checksum(events, SeqRange(first=0, last=len(events))))
    turns = 0
    while not checking.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 20


def test_a_range_that_is_too_much_alone_is_not_gathered():
    """Many wide ranges are refused at the first of them."""
    claims = claims_of({"missing": [[0, 39]] * 64}, LIMIT)
    with pytest.raises(TooMuch, match="resent_events"):
        wanted(claims, EVENTS, Limit(resent_events=39))
    assert wanted(claims, EVENTS, Limit(resent_events=40)) == EVENTS


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def two():
    async with world() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client():
    async with httpx.AsyncClient(headers=HEADERS, timeout=20) as made:
        yield made


async def begun(two, client, script):
    """Begin a generation in the background on the first edge; its id."""
    asked = ASKED | {"simulate": script}
    answer = await client.post(
        f"{two.urls[0]}/v1/chat/completions", json=asked, headers={"prefer": "respond-async"}
    )
    return answer.json()["generation_id"]


class Native:
    """A native reader: its events by seq, what it was sent again, its id."""

    def __init__(self, client, url, headers=None):
        self.events, self.again, self.wire = {}, {}, b""
        self.reader_id = None
        self.opened = asyncio.Event()
        self.task = asyncio.create_task(self._read(client, url, headers or {}))

    async def _read(self, client, url, headers):
        async with client.stream("GET", url, headers=headers) as response:
            self.status, self.reader_id = response.status_code, response.headers.get("x-reader-id")
            self.opened.set()
            decoder = SseDecoder(1 << 20)
            async for piece in response.aiter_bytes():
                self.wire += piece
                for event in decoder.feed(piece):
                    if event.event == "resent":
                        said = json.loads(event.data)
                        assert event.id is None
                        self.again[said["seq"]] = (said["event"], said["data"])
                    elif event.id:
                        self.events[int(event.id.partition("-")[0])] = (event.event, event.data)

    async def close(self):
        """Leave."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def ack(client, url, generation_id, **body):
    """Post an acknowledgement."""
    return client.post(f"{url}/v1/generations/{generation_id}/ack", json=body)


@pytest.mark.parametrize("edge", [0, 1])
@live
async def test_what_lacks_is_sent_again_on_the_open_stream(two, client, edge):
    """On either edge a running stream gets again what its reader lacks or has otherwise, equal and without an id."""
    generation_id = await begun(two, client, ENDLESS)
    url = two.urls[edge]
    reader = Native(client, f"{url}/v1/generations/{generation_id}/events")
    await until(lambda: len(reader.events) > 40)
    good = crc_of([reader.events[seq] for seq in range(32)])
    body = {
        "reader_id": reader.reader_id,
        "ranges": [[0, 31, good], [32, 33, "00000000"]],
        "missing": [[5, 7]],
    }
    answer = await ack(client, url, generation_id, **body)
    assert answer.json() == {"generation_id": generation_id, "resent": [[5, 7], [32, 33]], "nack": []}
    await until(lambda: len(reader.again) == 5)
    assert reader.again == {seq: reader.events[seq] for seq in (5, 6, 7, 32, 33)}
    await reader.close()
    await client.post(f"{url}/v1/cancel/{generation_id}")


@live
async def test_an_acknowledgement_is_on_record(two, client):
    """The edge that runs the generation records who stored what."""
    generation_id = await begun(two, client, ENDLESS)
    await until(lambda: len(two.services[0].registry.get(generation_id).window) > 4)
    answer = await ack(client, two.urls[0], generation_id, reader_id="r-1", ranges=[[0, 0, "00000000"]])
    assert answer.json()["nack"] == [
        [0, 0]
    ]  # no such stream is open here: it is asked for at the next connect
    await client.post(f"{two.urls[0]}/v1/cancel/{generation_id}")
    service = two.services[0]
    key = service.keys.of_id(service.registry.get(generation_id).identity.key_id)
    records = (await service.desk.history(key, generation_id)).records
    (noted,) = [record.client for record in records if record.kind is Kind.CLIENT_ACK]
    assert noted.reader_id == "r-1"
    assert noted.ranges == [SeqRange(first=0, last=0, crc32=0)]


@pytest.mark.parametrize("edge", [0, 1])
@live
async def test_a_resume_begins_with_what_lacks(two, client, edge):
    """X-Resume-Nack and X-Resumption-Checksum are answered before the rest, also by a stream that has nothing more."""
    generation_id = await begun(two, client, QUICK | {"tokens": 40})
    await until(lambda: two.services[0].registry.get(generation_id).terminal is not None)
    url = f"{two.urls[edge]}/v1/generations/{generation_id}/events"
    whole = Native(client, url)
    await whole.task
    last = max(whole.events)
    shown = {
        "x-resume-nack": "3",
        "x-resumption-checksum": f"8-9:{crc_of([whole.events[8], whole.events[9]])},10-11:00000000",
    }
    behind = Native(client, f"{url}?after={last - 5}", shown)
    await behind.task
    assert behind.again == {seq: whole.events[seq] for seq in (3, 10, 11)}
    assert behind.wire.index(b"event: resent") < behind.wire.index(f"id: {last - 4}-".encode())
    assert sorted(behind.events) == list(range(last - 4, last + 1))
    over = Native(client, f"{url}?after={last}", shown)
    await over.task
    assert (over.status, sorted(over.again), over.events) == (200, [3, 10, 11], {})
    nothing = await client.get(f"{url}?after={last}")
    assert nothing.status_code == 204


@live
async def test_native_frames_ask_for_acknowledgements(two, client):
    """Every 32nd native frame has an ack line, which no decoder shows; other dialects have none."""
    generation_id = await begun(two, client, QUICK | {"tokens": 40})
    await until(lambda: two.services[0].registry.get(generation_id).terminal is not None)
    url = f"{two.urls[0]}/v1/generations/{generation_id}/events"
    assert (await client.get(url)).content.count(b"\nack: ") == 1
    assert f"\nack: {ACK_EVERY - 1}\n".encode() in (await client.get(url)).content
    assert b"ack:" not in (await client.get(f"{url}?dialect=openai.chat")).content


@live
async def test_what_cannot_be_acknowledged_is_said(two, client):
    """Events that do not exist, another tenant's generation, another dialect's stream, bodies that are none."""
    generation_id = await begun(two, client, QUICK | {"tokens": 3})
    await until(lambda: two.services[0].registry.get(generation_id).terminal is not None)
    url = two.urls[0]
    ahead = await ack(client, url, generation_id, missing=[[0, 1_000]])
    assert (ahead.status_code, ahead.json()["error"]["code"]) == (409, "cursor_ahead")
    foreign = await client.post(
        f"{url}/v1/generations/{generation_id}/ack", json={}, headers={"authorization": f"Bearer {OTHER}"}
    )
    assert foreign.status_code == 404
    stream = f"{url}/v1/generations/{generation_id}/events"
    chat = await client.get(f"{stream}?dialect=openai.chat", headers={"x-resume-nack": "1"})
    assert chat.status_code == 400
    assert (await client.get(stream, headers={"x-resume-nack": "1000"})).status_code == 409
    assert (await ack(client, url, generation_id, reader_id=7)).status_code == 400
    assert (await ack(client, url, generation_id, reader_id="r" * 65)).status_code == 400
    assert (await ack(client, url, generation_id)).json()["nack"] == []


@live
async def test_no_stream_is_kept_behind_its_connection(two, client):
    """The edge forgets a stream that can be acknowledged when its connection is gone."""
    generation_id = await begun(two, client, ENDLESS)
    reader = Native(client, f"{two.urls[0]}/v1/generations/{generation_id}/events")
    await reader.opened.wait()
    await until(lambda: (generation_id, reader.reader_id) in two.services[0].registry.streams)
    await reader.close()
    await until(lambda: (generation_id, reader.reader_id) not in two.services[0].registry.streams)
    await client.post(f"{two.urls[0]}/v1/cancel/{generation_id}")
