"""A cancel and a disconnect as clients meet them: two edges in memory, in front of the simulator."""

import asyncio
import hashlib

import httpx
import pytest
import pytest_asyncio

from edge.sse import SseDecoder
from schemas.codec import Codec
from schemas.ids import uuid7
from schemas.records import ConfigKind, ConfigRecord, ForgottenEntry, KeyEntry, KeyHash
from tests.support.dialects import HEADERS, OTHER, world
from tests.support.waiting import until

CHAT = "/v1/chat/completions"
ENDLESS = {
    "model": "sim-fast",
    "stream": True,
    "messages": [{"role": "user", "content": "go"}],
    "simulate": {"ttft_ms": 0, "interval_ms": 5, "tokens": 100_000},
}
OPERATOR = {"authorization": "Bearer operator"}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def two():
    async with world(admission={"tenant_generations": 50}) as running:
        operator = KeyHash(sha256=hashlib.sha256(b"operator").hexdigest())
        for service in running.services:
            service.keys.configure("key-op", KeyEntry(tenant="acme", roles=["operator"], hashes=[operator]))
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http():
    async with httpx.AsyncClient(headers=HEADERS, timeout=20) as client:
        yield client


class Streaming:
    """One call that streams, read in a task of its own until it is left or ends."""

    def __init__(self, http, url, headers=None, **body):
        self._http, self._url, self._headers, self._body = http, url, headers or {}, ENDLESS | body
        self.events = []
        self.generation_id = None
        self._enough = asyncio.Event()

    async def __aenter__(self):
        self.task = asyncio.ensure_future(self._read())
        await until(lambda: len(self.events) >= 5 or self.task.done())
        return self

    async def __aexit__(self, *_):
        self.leave()
        await asyncio.gather(self.task, return_exceptions=True)

    def leave(self):
        """Close the connection."""
        self.task.cancel()

    @property
    def last_seq(self):
        """Give the seq of the last event that came."""
        return int(self.events[-1].id.split("-")[0])

    async def _read(self):
        decoder = SseDecoder(1 << 20)
        async with self._http.stream(
            "POST", self._url + CHAT, json=self._body, headers=self._headers
        ) as answer:
            self.generation_id = answer.headers["x-generation-id"]
            async for piece in answer.aiter_raw():
                self.events += decoder.feed(piece)


async def state_of(http, two, generation_id):
    """Give what the other edge says of it, once it has ended."""
    while True:
        state = (await http.get(f"{two.urls[1]}/v1/generations/{generation_id}")).json()
        if state["state"] == "finalized":
            return state


@pytest.mark.parametrize("at", [0, 1], ids=["same edge", "other edge"])
@pytest.mark.parametrize("mode", ["soft", "hard"])
@pytest.mark.parametrize("reason", ["user_abort", "client_disconnect", "policy_violation"])
async def test_all_of_it_is_on_record(two, http, at, mode, reason):
    """The answer is the terminal with who, when and where, what had been sent, and when each thing was given back."""
    headers = {"idempotency-key": f"{at}-{mode}-{reason}"}
    async with Streaming(http, two.urls[0], headers) as running:
        seen = running.last_seq
        url = f"{two.urls[at]}/v1/cancel/{running.generation_id}"
        asked = {"mode": mode, "reason": reason, "source": "page"}
        answer = await http.post(url, json=asked, headers=OPERATOR)
        assert answer.status_code == httpx.codes.OK
        terminal = answer.json()["terminal"]
        again = await http.post(url, json={"mode": "soft"})
        assert again.json() == answer.json()
        await running.task
    cancel, released = terminal["cancel"], terminal["released"]
    assert (cancel.get("mode", "soft"), cancel.get("reason", "user_abort")) == (mode, reason)
    assert (cancel["source"], cancel["requested_by"]) == ("page", "key-op")
    assert (cancel["stage"], cancel["policy"]) == ("decode", "grace")
    assert seen <= cancel["last_seq"] < terminal["seq"]
    assert terminal["tokens_generated"] >= terminal["tokens_delivered"] > 0
    state = await state_of(http, two, running.generation_id)
    (attempt,) = state["attempts"]
    usage = attempt["usage"]
    assert terminal["billing"]["billable_units"] == usage["input"] + usage["output"] > 0
    assert state["cancel"]["at_us"] == cancel["at_us"]
    ended_us = state["terminal"]["at_us"]
    order = [cancel["at_us"], released["upstream_socket_us"], released["admission_slot_us"]]
    assert order == sorted(order)
    assert released["admission_slot_us"] == ended_us
    assert released["kv_cache_us"] == released["upstream_socket_us"]
    assert released["memory_window_us"] == ended_us + 30_000_000
    assert released["claim_us"] > 86_400_000_000 > ended_us
    assert "cancelled" in running.events[-1].data
    await until(lambda: two.simulator.requests[-1].end == "aborted")


async def test_who_may_not_and_what_is_no_cancel(two, http):
    """A foreign key learns nothing, a hard one needs an operator, words that are none are refused: it runs on."""
    async with Streaming(http, two.urls[0]) as running:
        unknown = uuid7(two.services[0].clock.wall_us() // 1000, 7)
        bodies = {}
        for url in two.urls:
            for name, generation_id in (("its", running.generation_id), ("none", unknown)):
                answer = await http.post(
                    f"{url}/v1/cancel/{generation_id}", headers={"authorization": f"Bearer {OTHER}"}
                )
                assert answer.status_code == httpx.codes.NOT_FOUND
                bodies[url, name] = answer.text
            at = f"{url}/v1/generations/{running.generation_id}/cancel"
            nobody = {"authorization": ""}
            assert (await http.post(at, headers=nobody)).status_code == httpx.codes.UNAUTHORIZED
            for body, status in (
                ({"mode": "hard"}, httpx.codes.FORBIDDEN),
                ({"mode": "gently"}, httpx.codes.BAD_REQUEST),
                ({"mode": ["soft"]}, httpx.codes.BAD_REQUEST),
                ({"reason": "boredom"}, httpx.codes.BAD_REQUEST),
                ({"reason": None}, httpx.codes.BAD_REQUEST),
                ({"source": "edge"}, httpx.codes.BAD_REQUEST),
                ([], httpx.codes.BAD_REQUEST),
                ({"reason": "x" * 5000}, httpx.codes.REQUEST_ENTITY_TOO_LARGE),
            ):
                assert (await http.post(at, json=body)).status_code == status, body
            assert (await http.post(at, content=b"{")).status_code == httpx.codes.BAD_REQUEST
        assert len(set(bodies.values())) == 1
        before = running.last_seq
        await until(lambda: running.last_seq > before + 5)
        end = await http.post(f"{two.urls[1]}/v1/cancel/{running.generation_id}")
        assert end.json()["terminal"]["cancel"]["requested_by"] == "key-1"


async def test_what_has_ended_is_told_and_what_never_was_is_not(two, http, monkeypatch):
    """The end that it had, from either edge, however often and in whatever mode; no other edge is told for it."""
    short = ENDLESS | {"stream": False, "simulate": {"ttft_ms": 0, "tokens": 3}}
    generation_id = (await http.post(two.urls[0] + CHAT, json=short)).headers["x-generation-id"]
    told = []
    monkeypatch.setattr(two.services[0].log, "tell", lambda *said: told.append(said))
    answers = [
        (await http.post(f"{url}/v1/cancel/{generation_id}", json={"mode": mode}, headers=OPERATOR)).json()
        for url in two.urls
        for mode in ("soft", "hard")
    ]
    assert all(answer == answers[0] for answer in answers)
    assert answers[0]["terminal"]["finish_reason"] == "stop"
    assert "cancel" not in answers[0]["terminal"]
    for never in ("x", uuid7(1_000, 1)):
        assert (await http.post(f"{two.urls[0]}/v1/cancel/{never}")).status_code == httpx.codes.NOT_FOUND
    assert told == []


async def test_what_is_forgotten_cannot_be_cancelled(two, http):
    """It ends when it is forgotten, and is gone from then on."""
    async with Streaming(http, two.urls[0]) as running:
        entry = ForgottenEntry(tenant="acme", key_id="key-1")
        said = ConfigRecord(kind=ConfigKind.FORGOTTEN, name=running.generation_id, wall_us=1, forgotten=entry)
        two.services[0].log.put_config(Codec().encode(said))
        await until(lambda: two.simulator.requests[-1].end == "aborted")
        for url in two.urls:
            answer = await http.post(f"{url}/v1/cancel/{running.generation_id}")
            assert answer.status_code == httpx.codes.GONE


async def test_a_disconnect_says_how_far_its_reader_was(two, http):
    """``cancel``: the connection was lost behind an event, and the record of the cancel says so."""
    async with Streaming(http, two.urls[0], {"x-tokentrail-on-disconnect": "cancel"}) as running:
        seen = running.last_seq
        running.leave()
        end = (await state_of(http, two, running.generation_id))["end"]
    cancel = end["cancel"]
    assert (cancel["mode"], cancel["reason"], cancel["source"]) == ("hard", "client_disconnect", "edge")
    assert cancel["disconnect_reason"] in {
        "client_abort",
        "network_reset",
    }  # with bytes unread its close is a reset
    assert cancel["policy"] == "cancel"
    assert cancel["last_seq"] >= seen
    assert end["released"]["admission_slot_us"] > cancel["at_us"]


@pytest.mark.parametrize("left", [False, True], ids=["cancelled", "left"])
async def test_a_call_for_the_whole_answer(two, http, left):
    """Who waits for it is answered 409 when it is cancelled, and is a reader whose leaving counts."""
    registry = two.services[0].registry
    before = {entry.generation.id for entry in registry.newest()}
    headers = {"x-tokentrail-on-disconnect": "cancel"}
    asked = ENDLESS | {"stream": False}
    waiting = asyncio.ensure_future(http.post(two.urls[0] + CHAT, json=asked, headers=headers))
    await until(lambda: registry.newest()[0].generation.id not in before)
    entry = registry.newest()[0]
    await until(lambda: entry.generation.readers and entry.generation.stage == "decode")
    if left:
        waiting.cancel()
    else:
        await http.post(f"{two.urls[1]}/v1/cancel/{entry.generation.id}")
        answer = await waiting
        assert (answer.status_code, answer.json()["error"]["code"]) == (httpx.codes.CONFLICT, "cancelled")
    end = (await state_of(http, two, entry.generation.id))["end"]
    assert end["cancel"].get("reason", "user_abort") == ("client_disconnect" if left else "user_abort")
    await until(lambda: two.simulator.requests[-1].end == "aborted")
