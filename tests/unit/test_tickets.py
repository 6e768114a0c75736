"""Tickets: one generation, for a while, without a key; two edges in memory, whose clocks a test moves."""

import contextlib

import httpx
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from edge.auth import Keys
from edge.clock import Clock, system_clock
from edge.tickets import TICKET_CHARS_MAX, Ticket, issue, read
from tests.support.dialects import HEADERS, OTHER, QUICK, world
from tests.support.waiting import until

ASKED = {"model": "sim-fast", "messages": [{"role": "user", "content": "go"}]}
ENDLESS = {"ttft_ms": 0, "interval_ms": 5, "tokens": 100_000}
TICKET_S, GRACE_S = 10, 30
SECRET = b"secret"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def two():
    async with world(resume={"ticket_s": TICKET_S}, disconnect={"grace_s": GRACE_S}) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def owner():
    async with httpx.AsyncClient(headers=HEADERS, timeout=20) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guest():
    """A client without a key."""
    async with httpx.AsyncClient(timeout=20) as client:
        yield client


async def begun(two, owner, script):
    """Begin a generation in the background: its id and its ticket."""
    asked = ASKED | {"simulate": script, "stream": True}
    answer = await owner.post(
        f"{two.urls[0]}/v1/chat/completions", json=asked, headers={"prefer": "respond-async"}
    )
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()["generation_id"], answer.json()["ticket"]


async def finished(two, owner):
    """Begin a short one and wait for its end."""
    generation_id, ticket = await begun(two, owner, QUICK | {"tokens": 3})
    await until(lambda: two.services[0].registry.get(generation_id).terminal is not None)
    return generation_id, ticket


@contextlib.contextmanager
def later(two, seconds):
    """Both edges' clocks are ahead for a while."""
    real = system_clock()
    ahead = Clock(real.now_us, lambda: real.wall_us() + int(seconds * 1e6), real.random_bits, real.jitter)
    before = [service.clock for service in two.services]
    try:
        for service in two.services:
            service.clock = ahead
        yield
    finally:
        for service, clock in zip(two.services, before, strict=True):
            service.clock = clock


def ids_of(text):
    """The ids in a stream."""
    return [line.removeprefix("id: ") for line in text.splitlines() if line.startswith("id: ")]


@pytest.mark.parametrize("edge", [0, 1])
async def test_a_ticket_opens_what_its_generation_says(two, owner, guest, edge):
    """Events, state and result, on any edge, without a key; asked for by the key, or given with the 202."""
    generation_id, given_with = await finished(two, owner)
    at = f"{two.urls[edge]}/v1/generations/{generation_id}"
    made = await owner.post(f"{at}/tickets")
    assert (made.status_code, made.json()["expires_in_s"]) == (httpx.codes.CREATED, TICKET_S)
    for ticket in (given_with, made.json()["ticket"]):
        params = {"ticket": ticket}
        events = await guest.get(f"{at}/events", params=params)
        assert (events.status_code, len(ids_of(events.text)) > 3) == (httpx.codes.OK, True)
        assert (await guest.get(at, params=params)).json()["state"] == "finalized"
        assert (await guest.get(f"{at}/result", params=params)).json()["object"] == "chat.completion"


async def test_a_ticket_ends_its_generation_softly_only(two, owner, guest):
    """It may cancel, but has no roles: a hard cancel is not its to ask for."""
    generation_id, ticket = await begun(two, owner, ENDLESS)
    at, params = f"{two.urls[1]}/v1/generations/{generation_id}/cancel", {"ticket": ticket}
    hard = await guest.post(at, json={"mode": "hard"}, params=params)
    assert hard.status_code == httpx.codes.FORBIDDEN
    soft = await guest.post(at, params=params)
    assert soft.json()["terminal"]["finish_reason"] == "cancelled"


async def test_a_ticket_is_for_one_generation(two, owner, guest):
    """Another generation, even of the same key, a forged, a garbled and an empty ticket: refused, all alike."""
    generation_id, ticket = await finished(two, owner)
    other, _ = await finished(two, owner)
    forged = ticket[:-1] + ("A" if ticket[-1] != "A" else "B")
    issued_s, rest = ticket.split(".", 1)
    for target, shown in (
        (other, ticket),
        (generation_id, forged),
        (generation_id, f"{int(issued_s) + 1}.{rest}"),
        (generation_id, "x"),
        (generation_id, ""),
        (generation_id, "9" * 5000),
    ):
        for call in ("", "/events", "/result"):
            at = f"{two.urls[1]}/v1/generations/{target}{call}"
            answer = await guest.get(at, params={"ticket": shown})
            assert answer.status_code == httpx.codes.UNAUTHORIZED, (call, shown)
            assert answer.json()["error"]["code"] == "unauthorized"
            assert ticket not in answer.text


async def test_only_who_may_see_it_may_give_tickets(two, owner, guest):
    """Another tenant finds nothing to make a ticket for, and a ticket makes no tickets."""
    generation_id, ticket = await finished(two, owner)
    at = f"{two.urls[0]}/v1/generations/{generation_id}/tickets"
    stranger = await owner.post(at, headers={"authorization": f"Bearer {OTHER}"})
    assert stranger.status_code == httpx.codes.NOT_FOUND
    assert (await guest.post(at, params={"ticket": ticket})).status_code == httpx.codes.UNAUTHORIZED
    gone = at.replace(generation_id, generation_id[:-4] + "0000")
    assert (await owner.post(gone)).status_code == httpx.codes.NOT_FOUND


async def test_a_header_is_stronger_than_a_ticket(two, owner, guest):
    """A wrong key is not saved by a good ticket."""
    generation_id, ticket = await finished(two, owner)
    at = f"{two.urls[0]}/v1/generations/{generation_id}"
    answer = await guest.get(at, params={"ticket": ticket}, headers={"authorization": "Bearer wrong"})
    assert answer.status_code == httpx.codes.UNAUTHORIZED


@pytest.mark.parametrize("edge", [0, 1])
async def test_its_age_counts_on_the_first_connect(two, owner, guest, edge):
    """Too old is refused without an id of the stream; with one it is carried on, while the generation runs."""
    generation_id, ticket = await begun(two, owner, ENDLESS)
    at, params = f"{two.urls[edge]}/v1/generations/{generation_id}", {"ticket": ticket}
    async with guest.stream("GET", f"{at}/events", params=params) as stream:
        lines = stream.aiter_lines()
        ids = []
        while len(ids) < 3:
            ids += ids_of(await anext(lines))
    with later(two, TICKET_S + 1):
        assert (await guest.get(f"{at}/events", params=params)).status_code == httpx.codes.UNAUTHORIZED
        assert (await guest.get(at, params=params)).status_code == httpx.codes.UNAUTHORIZED
        tampered = ids[2][:-1] + ("A" if ids[2][-1] != "A" else "B")
        for bad in (tampered, "2", "", "x"):
            answer = await guest.get(f"{at}/events", params=params, headers={"last-event-id": bad})
            assert answer.status_code == httpx.codes.UNAUTHORIZED, bad
        seen = {"last-event-id": ids[1]}
        async with guest.stream("GET", f"{at}/events", params=params, headers=seen) as stream:
            assert stream.status_code == httpx.codes.OK
            lines = stream.aiter_lines()
            while not (again := ids_of(await anext(lines))):
                continue
        assert again == [ids[2]]
        assert (await guest.post(f"{at}/cancel", params=params, headers=seen)).status_code == httpx.codes.OK


async def test_it_is_carried_until_the_end_plus_the_grace_time(two, owner, guest):
    """On an edge that did not run it: within the grace time behind the terminal, and no longer."""
    generation_id, ticket = await finished(two, owner)
    at, params = f"{two.urls[1]}/v1/generations/{generation_id}/events", {"ticket": ticket}
    ids = ids_of((await guest.get(at, params=params)).text)
    terminal_us = two.services[0].registry.get(generation_id).terminal.event.wall_us
    ended_ago_s = (system_clock().wall_us() - terminal_us) / 1e6
    seen = {"last-event-id": ids[1]}
    with later(two, GRACE_S - ended_ago_s - 5):
        assert ids_of((await guest.get(at, params=params, headers=seen)).text) == ids[2:]
    with later(two, GRACE_S + 1):
        refused = await guest.get(at, params=params, headers=seen)
        assert refused.status_code == httpx.codes.UNAUTHORIZED


async def test_a_revoked_keys_tickets_are_refused(two, owner, guest):
    """At the next connect, on each edge that knows of it, also with an id of the stream."""
    generation_id, ticket = await finished(two, owner)
    at, params = f"{two.urls[1]}/v1/generations/{generation_id}/events", {"ticket": ticket}
    ids = ids_of((await guest.get(at, params=params)).text)
    service = two.services[1]
    keys, service.keys = service.keys, Keys((), service.clock.wall_us)
    try:
        for headers in ({}, {"last-event-id": ids[0]}):
            answer = await guest.get(at, params=params, headers=headers)
            assert answer.status_code == httpx.codes.UNAUTHORIZED
    finally:
        service.keys = keys


@given(key_id=st.text(min_size=1, max_size=50), issued_s=st.integers(0, 10**12 - 1))
async def test_a_ticket_says_what_it_was_issued_for(key_id, issued_s):
    """Any key's id and time are read back under its secret, and under no other secret or generation."""
    with contextlib.suppress(UnicodeEncodeError):
        text = issue(SECRET, "g1", key_id, issued_s)
        assert len(text) <= TICKET_CHARS_MAX
        assert text.isascii()
        assert read(SECRET, "g1", text) == Ticket(key_id, issued_s)
        assert read(b"other", "g1", text) is None
        assert read(SECRET, "g2", text) is None


@given(st.text(alphabet="0123456789.AZaz_-é\n", max_size=60))
async def test_garbage_is_no_ticket(text):
    """Whatever is shown, it is refused without an error."""
    assert read(SECRET, "g1", text) is None
