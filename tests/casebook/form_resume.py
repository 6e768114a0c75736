"""Form ``resume``: a log in whatever state, clients that come, leave and come back, on one edge or two.

Where a vector needs a running generation (a cancel, an upstream that may be aborted), a scripted provider is asked and
the edge itself writes the log; else the events are written by ``resume_log.Author``. Clients speak HTTP and read the
native dialect. Every key of ``expect`` has a check; a key without one fails the test.
"""

import asyncio
import contextlib
import json
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from urllib.parse import quote

from schemas.cursor import resumption_token, sign
from schemas.ids import uuid7

from . import wire
from .edges import CURSOR_SECRETS, authorized, running_edge, settings_of, wall_ms
from .resume_expect import check
from .resume_log import Author, ScriptedProvider, StagedLog, chunk_of, text_of, until
from .values import expand_text

RETIRED_SECRET = "a secret that is not in force any more"  # noqa: S105 - of a test
IDLE_HEARTBEAT_MS = 60
SIG_CHARS = 22
STEP_KEYS = {
    "append": {"seqs", "generation", "tenant", "hook", "client"},
    "connect": {"client", "last_event_id", "generation", "token", "via", "within_ms", "times", "edge"},
    "disconnect": {"client", "after_seq"},
    "idle": {"heartbeats"},
    "cancel": {"after_seq"},
    "redeliver": {"seqs", "hook", "client"},
    "drop": {"seqs", "how"},
    "restart_edge": set(),
}


def unsupported(vector):
    """Everything of this form is played."""


async def run(vector, tmp_path):
    """Perform the steps, then hold connections, log and provider to what the vector says."""
    twins = {twin["id"]: await _perform(twin) for twin in vector.get("twins", ())}
    check(await _perform(vector), vector, twins)


async def _perform(vector):
    play = Play(vector)
    async with play.provider, play.edges:
        for index, step in enumerate(vector["steps"]):
            unknown = step.keys() - STEP_KEYS[step["op"]] - {"op"}
            assert not unknown, f"a step's fields that nobody performs: {unknown}"
            play.ahead = vector["steps"][index + 1 :]
            if "hook" not in step:
                await getattr(play, step["op"])(**{k: v for k, v in step.items() if k != "op"})
        await play.settle()
    assert not play.log.hooks, "a moment inside a connect never came"
    return play


class Connection:
    """One connection of a client: what it was answered, and what it took of it."""

    def __init__(self, client, held_id):
        self.client = client
        self.held_id = held_id  # what it presented, for as long as it has received no other
        self.stream = None
        self.task = None
        self.cut_at = None  # it left after so many events

    @property
    def events(self):
        """The numbered events that it took."""
        numbered = [event for event in self.stream.events if event.id is not None]
        return numbered if self.cut_at is None else numbered[: self.cut_at]

    @property
    def seqs(self):
        """Their seqs."""
        return [int(event.id.partition("-")[0]) for event in self.events]

    @property
    def holds_id(self):
        """What a WHATWG client would send now."""
        return self.events[-1].id if self.events else self.held_id

    @property
    def heartbeats(self):
        """Heartbeats so far; none has an id."""
        beats = [event for event in self.stream.events if event.name == "heartbeat"]
        assert all(event.id is None for event in beats)
        return len(beats)

    async def read(self):
        """To the end that the server gives it."""
        await self.stream.head()
        await self.stream.rest()

    async def leave(self):
        """Close the connection."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.stream.close()


class Play:
    """The state of one vector's performance."""

    def __init__(self, vector):
        self.vector = vector
        ops = {step["op"] for step in vector["steps"]}
        self.running = "cancel" in ops or "upstream_aborted" in vector["expect"]
        self.log = StagedLog()
        self.provider = ScriptedProvider()
        self.edges = contextlib.AsyncExitStack()
        self.authors = {}
        self.connections = []  # one list per connect step
        self.ahead = []
        self.staged = False
        self.calls_before = 0
        self.records_added = 0
        self.cancelled_s = None
        self.generation_id = None
        self.heartbeat_ms = IDLE_HEARTBEAT_MS if "idle" in ops else 500
        self._edges = {}
        self._starter = None

    async def append(self, seqs, generation="g1", tenant="A"):
        """These events appear."""
        if self.running:
            await self._speak(seqs)
            return
        if generation not in self.authors:
            terminal_seq = self.vector["terminal_seq"]
            self.authors[generation] = Author(self.log, generation, tenant, terminal_seq)
        for seq in seqs:
            self.authors[generation].append(seq)

    async def connect(self, client, last_event_id, **how):
        """A client connects; the steps that belong inside its connect are handed to the log."""
        generation = how.get("generation", "g1")
        port = (await self._edge(how.get("edge", 1))).port
        self._stage(client)
        shown, headers = self._presented(last_event_id, generation, how.get("token", "own"))
        target = f"/v1/generations/{self._id(generation)}/events"
        if shown is not None and how.get("via") == "query":
            target += f"?after={quote(shown)}"
        elif shown is not None:
            headers["last-event-id"] = shown.encode()
        before = len(self.log.all_records())
        group = [Connection(client, shown) for _ in range(how.get("times", 1))]
        self.connections.append(group)
        for connection in group:
            connection.stream = await wire.send(port, "GET", target, headers)
            connection.task = asyncio.create_task(connection.read())
        if self.ahead and "within_ms" in self.ahead[0]:
            return  # the next one comes at the same time
        for connection in group:
            await until(lambda c=connection: c.stream.status or c.task.done(), "a response head")
        if not (self.running or self.staged):
            self.records_added += len(self.log.all_records()) - before
        await self._starter_leaves()

    def _stage(self, client):
        """The next reader of the log does these steps at their moments inside its reading."""
        for step in self.ahead:
            if step["op"] == "connect":
                break
            if step.get("hook") and step["client"] == client:
                self.staged = True
                self.log.hooks[step["hook"]] = lambda step=step: self._inside(step)

    async def _starter_leaves(self):
        if self._starter is not None:
            await self._starter.leave()
            self._starter = None

    def _inside(self, step):
        author = self.authors[step.get("generation", "g1")]
        for seq in step["seqs"]:
            getattr(author, step["op"])(seq)

    def _presented(self, last_event_id, generation, token):
        """(what stands for the last event's id, the other headers)."""
        headers = authorized("A")
        if last_event_id is None:
            return None, headers
        if "as_client" in last_event_id:
            last = [g[0] for g in self.connections if g[0].client == last_event_id["as_client"]][-1]
            return last.holds_id, headers
        if "raw" in last_event_id:
            author = self.authors[generation]
            sig = sign(CURSOR_SECRETS[0].encode(), author.id, 3, author.key_id)
            headers["x-resumption-token"] = resumption_token(author.id, 3, sig)
            return expand_text(last_event_id["raw"]), headers
        secret = RETIRED_SECRET if token == "expired" else CURSOR_SECRETS[0]  # noqa: S105
        if self.running:
            return self._taken_id(last_event_id["seq"]), headers
        shown = self.authors[last_event_id.get("generation", generation)].cursor(last_event_id["seq"], secret)
        return _bit_flipped(shown) if token == "bit_flipped" else shown, headers  # noqa: S105

    def _taken_id(self, seq):
        """The id of an event as a client of a running generation received it."""
        events = [e for group in self.connections for c in group for e in c.events]
        return next(event.id for event in events if event.id.startswith(f"{seq}-"))

    async def disconnect(self, client, after_seq=None):
        """Its latest connection is gone, once it has received that."""
        connection = [g[0] for g in self.connections if g[0].client == client][-1]
        if after_seq is not None:
            await until(lambda: after_seq in connection.seqs, f"seq {after_seq} at the client")
            connection.cut_at = connection.seqs.index(after_seq) + 1
        await connection.leave()

    async def idle(self, heartbeats):
        """So many heartbeats pass at the latest connection."""
        connection = self.connections[-1][0]
        wanted = connection.heartbeats + heartbeats
        await until(lambda: connection.heartbeats >= wanted, f"{heartbeats} heartbeats")

    async def cancel(self, after_seq):
        """An explicit cancel, once the latest connection has received that."""
        connection = self.connections[-1][0]
        await until(lambda: after_seq in connection.seqs, f"seq {after_seq} at the client")
        self.cancelled_s = time.monotonic()
        port = (await self._edge(1)).port
        answer = await wire.fetch(port, "POST", f"/v1/cancel/{self.generation_id}", authorized("A"))
        assert answer.status == 200, answer.body

    async def redeliver(self, seqs):
        """The log holds these a second time."""
        for seq in seqs:
            self.authors["g1"].redeliver(seq)

    async def drop(self, seqs, how):
        """These leave the log; there is no archive here."""
        self.authors["g1"].drop(set(seqs), how)

    async def restart_edge(self):
        """Edge 1 ends, and another process takes its place on the same log."""
        await self._edges.pop(1)[1].aclose()

    async def settle(self):
        """Wait for what is to end by itself; close the rest, which has received all that is coming to it."""
        for group, wanted in zip(self.connections, self.vector["expect"]["connections"], strict=True):
            for connection in group:
                if wanted.get("ended"):
                    await asyncio.wait_for(connection.task, wire.READ_WITHIN_S)
                elif connection.cut_at is None:
                    await connection.leave()
                await connection.stream.close()

    async def _speak(self, seqs):
        """The running generation's provider says these; the edge numbers them."""
        for seq in seqs:
            if seq == 0:
                await self._begin()
                continue
            last = seq == self.vector["terminal_seq"]
            await self.provider.say("[DONE]" if last else chunk_of(text_of("g1", seq)))
            if self.generation_id is None:
                await until(lambda: self._starter.stream.status, "the response head")
                self.generation_id = self._starter.stream.headers["x-generation-id"]
                self.calls_before = self.provider.calls
            await until(lambda seq=seq: self.log.has(self.generation_id, seq), f"seq {seq} in the log")

    async def _begin(self):
        asked = {"model": "alpha", "messages": [{"role": "user", "content": "go"}], "stream": True}
        port = (await self._edge(1)).port
        self._starter = Connection("starter", None)
        body = json.dumps(asked).encode()
        self._starter.stream = await wire.send(port, "POST", "/v1/chat/completions", authorized("A"), body)
        self._starter.task = asyncio.create_task(self._starter.read())

    async def _edge(self, number):
        if number not in self._edges:
            given = {"heartbeat_ms": self.heartbeat_ms} | self.vector["settings"]
            settings = settings_of({"settings": given}, self.provider.base_url, f"edge-{number}")
            stack = contextlib.AsyncExitStack()
            await self.edges.enter_async_context(stack)
            edge = await stack.enter_async_context(running_edge(settings, self.log))
            self._edges[number] = edge, stack
        return self._edges[number][0]

    def _id(self, generation):
        if self.running:
            return self.generation_id
        if generation not in self.authors:
            return uuid7(wall_ms(), 7)
        return self.authors[generation].id


def _bit_flipped(cursor):
    """The same id with one bit of its signature turned."""
    head, sig = cursor[:-SIG_CHARS], cursor[-SIG_CHARS:]
    mac = bytearray(urlsafe_b64decode(sig + "=="))
    mac[0] ^= 1
    return head + urlsafe_b64encode(mac)[:SIG_CHARS].decode()
