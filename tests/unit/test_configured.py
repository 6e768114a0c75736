"""What an operator says on the config topic: erased generations and API keys, as every edge hears it."""

import asyncio
import hashlib

import pytest

from edge.auth import Keys, Unauthorized
from edge.configured import HELD_DAYS, Configured
from edge.follow import Erased
from edge.reading.resume import Opened
from schemas.events import Kind
from schemas.records import ConfigKind, ConfigRecord, ForgottenEntry, KeyEntry, KeyHash
from schemas.settings import ApiKey
from tests.support.desk import COLLEAGUE, OWNER, STRANGER, Scene
from tests.support.edge import CODEC, T0_US, Client, turns
from tests.support.running import edge_with
from tests.support.upstream import Script

DAY_US = 86_400_000_000


def sha256(text):
    """Give what is kept of a key's text."""
    return hashlib.sha256(text.encode()).hexdigest()


def forgotten(generation_id, tenant="acme", key_id="key-1"):
    """Give the record that says so."""
    entry = ForgottenEntry(tenant=tenant, key_id=key_id)
    return ConfigRecord(kind=ConfigKind.FORGOTTEN, name=generation_id, wall_us=T0_US, forgotten=entry)


def entry_of(*texts, tenant="acme", roles=("caller",)):
    """Give a key's entry with texts, each alone or with its end."""
    pairs = [text if isinstance(text, tuple) else (text, None) for text in texts]
    hashes = [KeyHash(sha256=sha256(text), until_us=until_us) for text, until_us in pairs]
    return KeyEntry(tenant=tenant, label="a product", roles=list(roles), hashes=hashes)


def refused(answer):
    """Give status and code of a refusal."""
    assert not isinstance(answer, Opened), "a stream was opened"
    return answer.status, answer.code


@pytest.fixture(params=["memory", "log"])
async def scene(request):
    """Give a scene whose desk hears the config topic."""
    scene = Scene(request.param)
    configured = Configured(scene.writer.clock.wall_ms, scene.registry.erase, lambda *_: None)
    scene.desk._configured = configured
    following = asyncio.ensure_future(configured.follow(scene.writer.log, CODEC))
    yield scene
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def forget(scene, **entry):
    """Say so on the topic; heard twice, it is the same."""
    for _ in range(2):
        scene.writer.log.put_config(CODEC.encode(forgotten(scene.id, **entry)))
    await turns()


async def test_what_is_forgotten_is_410_for_whoever_may_ask(scene):
    """Erased behind every good cursor and without one; forged ones and other tenants are told what they always are."""
    await scene.written()
    await forget(scene)
    for presented in (
        {},
        {"last_event_id": scene.cursor(2)},
        {"last_event_id": scene.cursor(4)},
        {"after": "1"},
    ):
        assert refused(await scene.ask(**presented)) == (410, "erased")
    assert refused(await scene.ask(last_event_id=scene.cursor(2), mode="from-start")) == (410, "erased")
    assert refused(await scene.ask(last_event_id=scene.cursor(2, secret=b"guessed"))) == (
        401,
        "cursor_invalid",
    )
    assert refused(await scene.ask(COLLEAGUE, after="1")) == (401, "cursor_invalid")
    assert refused(await scene.ask(STRANGER)) == (404, "not_found")
    assert refused(await scene.desk.history(OWNER, scene.id)) == (410, "erased")
    assert refused(await scene.desk.history(STRANGER, scene.id)) == (404, "not_found")


async def test_what_is_forgotten_while_it_waits_is_not_told(scene):
    """A history whose turn comes when its generation is forgotten is 410, whatever the log still holds."""
    await scene.written()
    async with scene.desk.readings.turn(OWNER.tenant, scene.id):
        waiting = asyncio.create_task(scene.desk.history(OWNER, scene.id))
        await turns()
        assert not waiting.done()
        await forget(scene)
    assert refused(await waiting) == (410, "erased")


async def test_a_reader_that_reads_is_given_nothing_more(scene):
    """Live, from memory or from the log: what was ready is dropped too, and the reading ends as erased."""
    await scene.written(end=None)
    opened = await scene.ask()
    client = Client(opened.follower)
    await turns()
    assert client.seqs == [0, 1, 2, 3]
    await forget_in_the_log(scene)
    await turns(20)
    scene.writer.text("said behind it")
    await client.done()
    assert isinstance(client.broke_off, Erased)
    assert client.seqs == [0, 1, 2, 3]


async def test_the_word_alone_ends_a_reading(scene):
    """Before the mark lies in the log, a reader on any edge is given no more than what it had."""
    await scene.written(end=None)
    if scene.where == "memory":
        scene.registry._entries[scene.id].finished = True
    client = Client((await scene.ask()).follower)
    await turns()
    await forget(scene)
    scene.writer.text("still on its way")
    await client.done()
    assert isinstance(client.broke_off, Erased)
    assert client.seqs == [0, 1, 2, 3]


async def test_a_slow_reader_is_told_nothing_of_it_later(scene):
    """What was read for a client that took nothing meanwhile is dropped, and a caller's own stream goes no further either."""
    await scene.written(texts=600)
    readers = [(await scene.ask()).follower]
    if scene.where == "memory":
        scene.registry._entries[scene.id].finished = True
        readers.append(scene.desk.begun_here(scene.writer.generation))
    for reader in readers:
        await reader.read()
        await reader.preload(1)
    scene.writer.generation.release()  # the rest would come from the log
    await forget(scene)
    for reader in readers:
        with pytest.raises(Erased):
            await reader.read()


async def forget_in_the_log(scene):
    """What `tokentrail forget` appends: the decision under the generation's key, and the word to all edges."""
    if scene.where == "memory":
        scene.registry._entries[scene.id].finished = True  # nothing of a driver here
    scene.writer.recorder.trace(Kind.FORGOTTEN)
    await forget(scene)


def test_ids_that_nothing_can_be_held_of_are_not_remembered():
    """An erasure older than log and archive hold anything takes no memory."""
    scene_ms = T0_US // 1000
    told = []
    configured = Configured(lambda: scene_ms + (HELD_DAYS + 1) * 86_400_000, told.append, lambda *_: None)
    old = "019f0000-0000-7000-8000-000000000001"
    configured.take(forgotten(old))
    assert configured.forgotten(old) is None
    assert told == []


async def test_a_record_that_cannot_be_read_stops_nothing():
    """Poison on the topic is said and passed over."""
    scene = Scene("log")
    configured = Configured(scene.writer.clock.wall_ms, lambda _: None, lambda *_: None)
    following = asyncio.ensure_future(configured.follow(scene.writer.log, CODEC))
    scene.writer.log.put_config(b"no record")
    scene.writer.log.put_config(CODEC.encode(forgotten(scene.id)))
    await turns()
    assert configured.forgotten(scene.id) == ForgottenEntry(tenant="acme", key_id="key-1")
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_an_edge_that_hears_nothing_any_more_is_not_ready():
    """A revocation that cannot reach it must not be waited for: a failed reading of config takes it out of service."""
    async with edge_with(Script()) as edge:
        await turns()
        assert await edge.service.ready() is None
        for task in edge.service._following:
            task.cancel()
        await turns()
        assert "restart" in await edge.service.ready()


class TestKeys:
    """A key's texts change, its id stays."""

    now_us = T0_US

    def keys(self, *known):
        """Give keys whose clock this class holds."""
        keys = [ApiKey(id=i, tenant=t, sha256=sha256(text)) for i, t, text in known]
        return Keys(keys, lambda: self.now_us)

    def test_rotation_keeps_the_id(self):
        """Old and new text are one key until the old one runs out; from then on it is unknown."""
        keys = self.keys(("k", "acme", "old"))
        keys.configure("k", entry_of("new", ("old", T0_US + DAY_US)))
        assert {who(keys, "old").id, who(keys, "new").id} == {"k"}
        self.now_us += DAY_US
        assert who(keys, "old") is None
        assert who(keys, "new").id == "k"

    def test_revocation_closes_every_text(self):
        """A key without any text is nobody's, also where the settings still name it; others stay."""
        keys = self.keys(("k", "acme", "a"), ("k", "acme", "b"), ("other", "acme", "c"))
        assert {who(keys, text).id for text in "ab"} == {"k"}
        keys.configure("k", entry_of())
        assert [who(keys, text) for text in "ab"] == [None, None]
        assert who(keys, "c").id == "other"

    def test_a_new_key_has_its_tenant_and_roles(self):
        """What is created on the topic is a key like those of the settings."""
        keys = self.keys()
        keys.configure("fresh", entry_of("text", tenant="globex", roles=("caller", "operator")))
        found = who(keys, "text")
        assert (found.id, found.tenant, found.roles) == ("fresh", "globex", ("caller", "operator"))

    def test_an_entry_that_cannot_be_closes_its_key(self):
        """A hash that is none opens nothing and leaves nothing open."""
        keys = self.keys(("k", "acme", "a"))
        keys.configure("k", KeyEntry(tenant="acme", hashes=[KeyHash(sha256="no hash")]))
        assert who(keys, "a") is None


def who(keys, text):
    """Give the key that a text is of, None for none."""
    try:
        return keys.identify({"authorization": f"Bearer {text}"})
    except Unauthorized:
        return None
