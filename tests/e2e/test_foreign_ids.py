"""Another tenant's generation is nobody's: on every route, edge and state one answer, and one way through the log to it."""

import contextlib

import httpx
import pytest
import pytest_asyncio

import edge.registry
from schemas.codec import Codec
from schemas.ids import start_ms, uuid7
from schemas.partition import partition_of
from schemas.records import ConfigKind, ConfigRecord, ForgottenEntry
from tests.support.dialects import HEADERS, OTHER, QUICK, world
from tests.support.waiting import until

STRANGER = {"authorization": f"Bearer {OTHER}"}
ENDLESS = {"ttft_ms": 0, "interval_ms": 50, "tokens": 1_000_000}
BY_GENERATION = (
    ("GET", "/v1/generations/{}/events", {}),
    ("GET", "/v1/generations/{}/events?after=1", {}),
    ("GET", "/v1/generations/{}/events?dialect=openai.responses", {}),
    ("GET", "/v1/generations/{}/events", {"x-resume-nack": "0-1"}),
    ("GET", "/v1/generations/{}/events", {"x-resume-mode": "from-start"}),
    ("GET", "/v1/generations/{}/events", "signed"),
    ("GET", "/v1/generations/{}", {}),
    ("GET", "/v1/generations/{}/result", {}),
    ("POST", "/v1/generations/{}/cancel", {}),
    ("POST", "/v1/cancel/{}", {}),
    ("POST", "/v1/generations/{}/tickets", {}),
    ("POST", "/v1/generations/{}/ack", {}),
    ("POST", "/v1/generations/{}/tools/call_1", {}),
)
BY_ANSWER = (
    ("GET", "/v1/responses/{}", {}),
    ("GET", "/v1/responses/{}?stream=true&starting_after=1", {}),
    ("POST", "/v1/responses/{}/cancel", {}),
)
STATES = ("running", "finished", "forgotten")

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Steps:
    """What is asked of a log, in order, as far as it takes time."""

    def __init__(self, log):
        self.taken = []
        for name in ("bounds", "offset_at", "reader"):
            setattr(log, name, self._counted(name, getattr(log, name)))

    def _counted(self, name, asked):
        def call(*args, **named):
            self.taken.append((name, args[1] if name == "offset_at" else None))
            found = asked(*args, **named)
            if name == "reader":
                found.read = self._counted("read", found.read)
            return found

        return call

    @contextlib.contextmanager
    def of_one_call(self):
        """Give the steps that are taken within the block."""
        before = len(self.taken)
        found = []
        yield found
        found.extend(self.taken[before:])


class Victim:
    """A generation of one tenant, and an id like it that is nobody's."""

    def __init__(self, begun, answer_id, cursor):
        self.id, self.answer_id, self.cursor = begun, answer_id, cursor
        self.nobodys = next(
            text
            for text in (uuid7(start_ms(begun), number) for number in range(10_000))
            if partition_of(text.encode(), 32) == partition_of(begun.encode(), 32)
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene():
    """Two edges, a stranger, a victim in each state, and the steps that the log is asked for; nothing else runs."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(edge.registry, "ALIAS_WAIT_S", 0.01)
        async with world() as two, httpx.AsyncClient(headers=STRANGER, timeout=20) as http:
            victims = {state: await victim(two, state) for state in STATES}
            forgotten = victims["forgotten"]
            entry = ForgottenEntry(tenant="acme", key_id="key-1")
            said = ConfigRecord(kind=ConfigKind.FORGOTTEN, name=forgotten.id, wall_us=1, forgotten=entry)
            two.services[0].log.put_config(Codec().encode(said))
            for service in two.services:
                await until(lambda service=service: service.configured.forgotten(forgotten.id))
            yield two, http, victims, Steps(two.services[0].log)


async def victim(two, state):
    """Begin a generation as its owner, over all of its life or still in it."""
    script = ENDLESS if state == "running" else QUICK | {"tokens": 3}
    asked = {"model": "m", "input": "hi", "background": True, "stream": False, "simulate": script}
    async with httpx.AsyncClient(headers=HEADERS, timeout=20) as owner:
        begun = await owner.post(f"{two.urls[0]}/v1/responses", json=asked)
        generation_id = begun.headers["x-generation-id"]
        generation = two.services[0].registry.get(generation_id)
        await until(lambda: len(generation.window) > 2 and (generation.terminal or state == "running"))
        async with owner.stream("GET", f"{two.urls[0]}/v1/generations/{generation_id}/events") as events:
            cursor = await anext(line async for line in events.aiter_lines() if line.startswith("id: "))
        return Victim(generation_id, begun.json()["id"], cursor.removeprefix("id: "))


def shown(answer, *ids):
    """Give what an answer says, but for its time and for the id that was asked for."""
    text = answer.text
    for one in ids:
        text = text.replace(one, "ID")
    return answer.status_code, {k: v for k, v in answer.headers.items() if k != "date"}, text


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(("method", "path", "headers"), [*BY_GENERATION, *BY_ANSWER])
async def test_a_stranger_learns_nothing(scene, state, at, method, path, headers):
    """Status, head, body and the steps to them are those of an id that nobody has, whatever the stranger shows."""
    two, http, victims, steps = scene
    victim = victims[state]
    by_answer = "/responses/" in path
    asked = {"json": {"status": "succeeded", "missing": [[0, 1]]}} if method == "POST" else {}
    told = {}
    for name, one in (("foreign", victim.answer_id if by_answer else victim.id),
                      ("nobody's", "resp_" + "0" * (len(victim.answer_id) - 5) if by_answer else victim.nobodys)):  # fmt: skip
        sent = {"last-event-id": victim.cursor} if headers == "signed" else headers
        with steps.of_one_call() as taken:
            answer = await http.request(method, two.urls[at] + path.format(one), headers=sent, **asked)
        told[name] = shown(answer, one), [step for step in taken if step[0] != "read"]
    assert told["foreign"] == told["nobody's"]
    assert told["foreign"][0][0] == httpx.codes.NOT_FOUND
