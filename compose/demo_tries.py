"""The demo's second half: a provider that fails before it says anything, and one that falls silent.

The first answer is tried again, the second is hedged; in both the client sees one answer, and the row in ClickHouse says
what was tried and which try supplied it. Only the simulator can be told to fail, so it is asked. Before: ``demo``. After:
``commands/demo`` shows what came out.
"""

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from compose.client import EdgeClient
from compose.demo import PROMPT, DemoFailed, Tell, wait_for_rows
from compose.state import StackState
from schemas.settings import ClickHouse

HEDGE_AFTER_S = 1.5
"""The demo's own setting: a provider that has said nothing for so long gets company."""
HEDGING: Mapping[str, str] = {"TOKENTRAIL_HEDGE__AFTER_S": str(HEDGE_AFTER_S)}
"""The environment of a stack whose demo hedges."""
TOKENS = 12
_GOOD = {"tokens": TOKENS, "ttft_ms": 20, "interval_ms": 5}
_SCRIPTS: Mapping[str, list[dict[str, Any]]] = {
    "retry": [{"error_after": 0}, _GOOD],
    "hedge": [{"hang_after": 0}, _GOOD],
}
_ATTEMPTS = "SELECT attempts FROM generations_final WHERE generation_id = {id:UUID}"


class Tried(NamedTuple):
    """What was tried for one answer: ``reasons`` in the order of the tries, ``committed`` the one that supplied it."""

    generation_id: str
    reasons: tuple[str, ...]
    outcomes: tuple[str, ...]
    committed: int | None
    tokens: int

    def failures(self, name: str) -> list[str]:
        """What did not hold, in words."""
        second = self.reasons[1] if len(self.reasons) > 1 else "nothing"
        checks = (
            (second.startswith(name), f"the second try of the {name} is {second}"),
            (self.committed == 1, f"the try that supplied the {name}'s answer is {self.committed}, not 1"),
            (self.tokens == TOKENS, f"the {name}'s answer has {self.tokens} tokens instead of {TOKENS}"),
        )
        return [said for holds, said in checks if not holds]

    def as_json(self) -> dict[str, Any]:
        """The summary for scripts."""
        return self._asdict()


async def second_tries(state: StackState, key: str, clickhouse: ClickHouse, tell: Tell) -> dict[str, Tried]:
    """Have one answer tried again and one hedged, at the same time. Raises DemoFailed where one does not end."""
    tell("[bold]7.[/] A provider fails before it has said anything; another one falls silent …")
    found = await asyncio.gather(
        *(_tried(state.edges[0], key, state.model, script, clickhouse) for script in _SCRIPTS.values())
    )
    tried = dict(zip(_SCRIPTS, found, strict=True))
    for name, one in tried.items():
        ends = ", ".join(f"{why}: {end}" for why, end in zip(one.reasons, one.outcomes, strict=True))
        tell(f"   … its client saw one answer of {one.tokens} tokens. {name.capitalize()}: {ends}.")
    return tried


async def _tried(
    edge_url: str, key: str, model: str, script: list[dict[str, Any]], clickhouse: ClickHouse
) -> Tried:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": PROMPT}],
        "simulate": script,
        "simulate_id": uuid.uuid4().hex,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    async with EdgeClient(edge_url, key) as edge, edge.stream("POST", "/v1/chat/completions", body) as stream:
        if stream.answer is not None:
            raise DemoFailed(f"{edge_url} answered {stream.status}: {stream.answer.text}")
        generation_id = stream.headers.get("X-Generation-Id", "")
        frames = [frame async for frame in stream.frames]
    rows = await wait_for_rows(clickhouse, _ATTEMPTS, generation_id, "generation")
    attempts = sorted(rows[0]["attempts"], key=lambda attempt: int(attempt["attempt"]))
    return Tried(
        generation_id,
        tuple(str(attempt["reason"]) for attempt in attempts),
        tuple(str(attempt["outcome"]) for attempt in attempts),
        next((int(attempt["attempt"]) for attempt in attempts if attempt["committed"]), None),
        sum('"content":"' in frame.data and '"content":""' not in frame.data for frame in frames),
    )
