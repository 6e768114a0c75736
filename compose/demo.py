"""The whole path once, as proof: stream, cut in the middle, resume on the other edge, compare three copies, ask SQL.

A plain HTTP client, no library of ours: what it proves, any client has. Order:

  1. POST a streaming chat completion to the first edge; note every frame's id
  2. cut the connection in the middle
  3. resume with ``Last-Event-ID`` on the other edge, to the end
  4. read all of it again from the log by that edge: live + resumed must be the same frames, in the same order
  5. wait until ClickHouse has the finished generation: freshness; the same text again from ``events``
  6. what it cost, exactly

Before this file: ``run`` (a ready stack). After it: ``narration`` and ``commands/demo`` show what came out.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from compose.asking import message_of
from compose.client import EdgeClient, Frame
from compose.stack import SIMULATOR_MODEL
from compose.state import StackState
from compose.warehouse import Row, query
from schemas.errors import TokentrailError
from schemas.money import plain, total
from schemas.settings import ClickHouse

TOKENS_MAX = 160
"""A real model that rambles would hold the demo up for minutes."""
PROMPT = "Tell me how a stream survives a broken connection."
ROW_DEADLINE_S = 30.0
"""From the terminal to a row in ClickHouse it takes about a second; a busy machine may need some."""
CUT_AFTER_FRAMES = {SIMULATOR_MODEL: 30}
"""About the middle of the simulator's answer of 60 tokens, past its silence."""
CUT_AFTER_FRAMES_ELSE = 8
"""A real model may be short."""
_POLL_S = 0.05
_DONE = "[DONE]"

Tell = Callable[[str], None]


class DemoFailed(TokentrailError):
    """What the demo promises did not hold."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What came out; ``failures`` is empty if all of it held."""

    generation_id: str
    events: int
    cut_after_seq: int
    resumed_from_seq: int
    resumed_on_other_edge: bool
    text: str
    text_sha256_live: str
    text_sha256_resumed: str
    text_sha256_clickhouse: str
    terminal: str
    freshness_ms: float
    row: Row
    ledger: Sequence[Row]
    failures: tuple[str, ...]

    @property
    def provider_cost_usd(self) -> str:
        """The exact sum of the ledger's provider side; empty where a line has no amount."""
        amounts = [line["amount"] for line in self.ledger if line["side"] == "provider_cost"]
        return "" if None in amounts or not amounts else plain(total(amounts))

    def as_json(self, state: StackState) -> dict[str, Any]:
        """The summary for scripts."""
        row = self.row
        return {
            "ok": not self.failures,
            "failures": list(self.failures),
            "generation_id": self.generation_id,
            "events": self.events,
            "cut_after_seq": self.cut_after_seq,
            "resumed_from_seq": self.resumed_from_seq,
            "resumed_on_other_edge": self.resumed_on_other_edge,
            "text_sha256_live": self.text_sha256_live,
            "text_sha256_resumed": self.text_sha256_resumed,
            "text_sha256_clickhouse": self.text_sha256_clickhouse,
            "terminal": self.terminal,
            "ttft_ms": row.get("ttft_ms"),
            "stall_count": row.get("stall_count"),
            "stall_ms": row.get("stall_ms"),
            "attempts": len(row.get("attempts") or ()),
            "usage": {
                "input": row.get("usage_input"),
                "output": row.get("usage_output"),
                "source": row.get("usage_source"),
            },
            "provider_cost_usd": self.provider_cost_usd,
            "freshness_ms": round(self.freshness_ms, 1),
            "model": row.get("model"),
            "kafka": {"kind": state.kafka.kind, "version": state.kafka.version},
            "clickhouse": {"kind": state.clickhouse.kind, "version": state.clickhouse.version},
        }


@dataclass(slots=True)
class _Read:
    """What one client read."""

    frames: list[Frame] = field(default_factory=list)
    ended_s: float = 0.0

    @property
    def ended(self) -> bool:
        return bool(self.frames) and self.frames[-1].data == _DONE


async def prove(state: StackState, key: str, clickhouse: ClickHouse, tell: Tell) -> Proof:
    """Run the whole path on a ready stack. Raises DemoFailed where it cannot even be walked to its end."""
    first, other = state.edges[0], state.edges[-1]
    tell(f"[bold]1.[/] A client streams from {first} (model {state.model}) …")
    generation_id, live = await _stream_and_cut(first, key, state.model)
    cut = live.frames[-1]
    tell(
        f"[bold]2.[/] … and loses its connection after {len(live.frames)} events. Its last id: [cyan]{cut.id}[/]"
    )
    resumed_from, resumed = await _resume(other, key, generation_id, cut.id)
    tell(f"[bold]3.[/] It resumes on {other}: {len(resumed.frames)} more events, from seq {resumed_from} on.")
    row_waits = asyncio.create_task(_wait_for_row(clickhouse, generation_id, resumed.ended_s))
    try:
        _, replay = await _resume(other, key, generation_id, None)
        tell(f"[bold]4.[/] A third client reads all of it again from the log: {len(replay.frames)} events.")
        row, freshness_ms = await row_waits
    finally:
        row_waits.cancel()
    tell(f"[bold]5.[/] ClickHouse had the finished generation {freshness_ms:,.0f} ms after its end.")
    stored = await asyncio.to_thread(_text_in_clickhouse, clickhouse, generation_id)
    ledger = await _wait_for_ledger(clickhouse, generation_id)
    seen = [*live.frames, *resumed.frames]
    text = _text(seen)
    proof = Proof(
        generation_id=generation_id,
        events=len(seen),
        cut_after_seq=_seq(cut),
        resumed_from_seq=resumed_from,
        resumed_on_other_edge=other != first,
        text=text,
        text_sha256_live=_sha256(text),
        text_sha256_resumed=_sha256(_text(replay.frames)),
        text_sha256_clickhouse=_sha256(stored),
        terminal=str(row.get("terminal")),
        freshness_ms=freshness_ms,
        row=row,
        ledger=ledger,
        failures=tuple(
            _failures(seen, replay.frames, stored, row, _seq(cut), resumed_from, first == other, ledger)
        ),
    )
    tell(f"[bold]6.[/] Its provider cost: {proof.provider_cost_usd or '(unpriced)'} USD, exactly.")
    return proof


async def _stream_and_cut(edge_url: str, key: str, model: str) -> tuple[str, _Read]:
    body = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": TOKENS_MAX,
    }
    read = _Read()
    cut_after = CUT_AFTER_FRAMES.get(model, CUT_AFTER_FRAMES_ELSE)
    async with (
        EdgeClient(edge_url, key) as edge,
        edge.stream("POST", "/v1/chat/completions", body) as stream,
    ):
        if stream.answer is not None:
            raise DemoFailed(f"{edge_url} answered {stream.status}: {message_of(stream.answer)}")
        generation_id = stream.headers.get("X-Generation-Id", "")
        async for frame in stream.frames:
            read.frames.append(frame)
            if len(read.frames) >= cut_after or frame.data == _DONE:
                break  # leaving the block closes the socket, as a lost connection does
    if read.ended or not read.frames:
        raise DemoFailed(f"The answer was too short to be cut in the middle: {len(read.frames)} events.")
    return generation_id, read


async def _resume(edge_url: str, key: str, generation_id: str, last_id: str | None) -> tuple[int, _Read]:
    path = f"/v1/generations/{generation_id}/events?dialect=openai.chat"
    headers = {"Last-Event-ID": last_id} if last_id is not None else {}
    read = _Read()
    async with EdgeClient(edge_url, key) as edge, edge.stream("GET", path, headers=headers) as stream:
        if stream.answer is not None:
            raise DemoFailed(
                f"{edge_url} refused to resume with {stream.status}: {message_of(stream.answer)}"
            )
        resumed_from = int(stream.headers.get("X-Resumed-From", "-1"))
        async for frame in stream.frames:
            read.frames.append(frame)
    read.ended_s = time.monotonic()
    if not read.ended:
        raise DemoFailed(f"The resumed stream ended without its terminal, after {len(read.frames)} events.")
    return resumed_from, read


async def _wait_for_row(clickhouse: ClickHouse, generation_id: str, ended_s: float) -> tuple[Row, float]:
    rows = await wait_for_rows(
        clickhouse,
        "SELECT * FROM generations_final WHERE generation_id = {id:UUID}",
        generation_id,
        "generation",
    )
    return rows[0], (time.monotonic() - ended_s) * 1000


async def _wait_for_ledger(clickhouse: ClickHouse, generation_id: str) -> list[Row]:
    return await wait_for_rows(
        clickhouse,
        "SELECT * FROM ledger_current WHERE generation_id = {id:UUID} ORDER BY attempt, side, bucket",
        generation_id,
        "ledger lines",
    )


async def wait_for_rows(clickhouse: ClickHouse, sql: str, generation_id: str, what: str) -> list[Row]:
    """The rows of a query about a generation, once there are any; DemoFailed where none come in time."""
    deadline_s = time.monotonic() + ROW_DEADLINE_S
    while True:
        rows = await asyncio.to_thread(query, clickhouse, sql, {"id": generation_id})
        if rows:
            return rows
        if time.monotonic() > deadline_s:
            raise DemoFailed(
                f"ClickHouse has no {what} of {generation_id} after {ROW_DEADLINE_S:.0f} s. See the logs of pipeline "
                "and sinks."
            )
        await asyncio.sleep(_POLL_S)


def _text_in_clickhouse(clickhouse: ClickHouse, generation_id: str) -> str:
    rows = query(
        clickhouse,
        "SELECT text FROM events FINAL WHERE generation_id = {id:UUID} AND kind = 'delta' ORDER BY seq",
        {"id": generation_id},
    )
    return "".join(str(row["text"]) for row in rows)


def _failures(
    seen: Sequence[Frame],
    replay: Sequence[Frame],
    stored: str,
    row: Row,
    cut_seq: int,
    resumed_from: int,
    same_edge: bool,  # noqa: FBT001 - one caller
    ledger: Sequence[Row],
) -> list[str]:
    """What did not hold, in words."""
    text, seqs = _text(seen), [_seq(frame) for frame in seen]
    checks = (
        (list(seen) == list(replay), "the frames of live + resumed differ from those of the replay"),
        (
            seqs == list(range(seqs[0], seqs[0] + len(seqs))),
            "the seqs of live + resumed have a hole or a repeat",
        ),
        (resumed_from == cut_seq, f"cut after seq {cut_seq}, resumed from {resumed_from}"),
        (not same_edge, "there is only one edge: it was resumed on the same one"),
        (bool(text), "there was no text"),
        (stored == text, "the text in ClickHouse differs from what the client read"),
        (row.get("terminal") == "message_end", f"the terminal is {row.get('terminal')}, not message_end"),
        (row.get("status") == "complete", f"the generation's row says {row.get('status')}, not complete"),
        (row.get("ttft_ms") is not None, "there is no time to first token"),
        (bool(ledger), "there are no ledger lines"),
    )
    return [said for holds, said in checks if not holds]


def _seq(frame: Frame) -> int:
    head = frame.id.partition("-")[0]
    if not head.isdigit():
        raise DemoFailed(f"A frame has no id that a client could resume from: {frame.id!r}.")
    return int(head)


def _text(frames: Sequence[Frame]) -> str:
    """The text that an OpenAI client joins from these frames."""
    chunks = (json.loads(frame.data) for frame in frames if frame.data != _DONE)
    choices = (choice for chunk in chunks for choice in chunk.get("choices") or ())
    return "".join((choice.get("delta") or {}).get("content") or "" for choice in choices)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
