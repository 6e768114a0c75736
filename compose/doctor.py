"""Checks of a running stack: what must hold before anybody relies on it. Each red one says what to do.

Invariants: a check looks from outside, as a client or an operator would, and leaves nothing running; one that cannot be
made because an earlier one failed is *skipped*, never green. Before this file: ``commands/doctor``. After it:
``client``, ``kafka``, ``warehouse``.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import pairwise

from compose import topics
from compose.checks import Check, Red, Skipped, Verdict
from compose.client import answers_ok
from compose.doctor_streams import StreamProbe, cancels, metrics
from compose.target import Target
from compose.warehouse import pending_migrations, version_of
from schemas.errors import TokentrailError
from schemas.topics import TOPICS

HEARTBEAT_MIN_S, HEARTBEAT_MAX_S = 15, 30
"""Below the shortest idle time-out on the way (many proxies: 60 s), above what wakes a phone needlessly."""
CHECK_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class _Step:
    """One row to be: what is looked at, and whose green it needs to be looked at at all."""

    name: str
    look: Callable[[], Awaitable[str]]
    needs: tuple[str, ...] = ()


async def examine(
    target: Target, model: str | None = None, tell: Callable[[Check], None] = lambda _: None
) -> list[Check]:
    """All checks, in the order of the table; ``tell`` has each as soon as it is made.

    ``model``: a cheap one to stream from; default: the simulator's.
    """
    made: dict[str, Check] = {}
    for step in _steps(target, model):
        lacking = [name for name in step.needs if made[name].verdict is not Verdict.OK]
        if lacking:
            check = Check(step.name, Verdict.SKIPPED, f"not without: {lacking[0]}")
        else:
            check = await _judge(step.name, step.look)
        made[step.name] = check
        tell(check)
    return list(made.values())


def _steps(target: Target, model: str | None) -> list[_Step]:
    probe = StreamProbe(target, model)
    kafka, clickhouse, edges = "Kafka reachable, topics right", "ClickHouse reachable", "edges ready"
    return [
        _Step(kafka, lambda: _topics(target)),
        _Step(clickhouse, lambda: _clickhouse(target)),
        _Step("migrations applied", lambda: _migrations(target), (clickhouse,)),
        _Step(edges, lambda: _edges(target)),
        _Step("heartbeats 15-30 s", lambda: _heartbeats(target)),
        _Step("time-outs distinct", lambda: _timeouts(target)),
        _Step("an id on every frame", probe.ids, (edges,)),
        _Step("buffering, cache, compression off", probe.headers, (edges,)),
        _Step("forged token refused", probe.forged, (edges,)),
        _Step("its rows in ClickHouse", probe.stored, (clickhouse, edges)),
        _Step("the three metrics", lambda: metrics(target), (edges,)),
        _Step("cancel works", lambda: cancels(target, model), (edges,)),
    ]


async def _judge(name: str, check: Callable[[], Awaitable[str]]) -> Check:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            return Check(name, Verdict.OK, await check())
    except Red as red:
        return Check(name, Verdict.RED, str(red), red.remedy)
    except Skipped as skipped:
        return Check(name, Verdict.SKIPPED, str(skipped))
    except TimeoutError:
        return Check(
            name, Verdict.RED, f"no answer within {CHECK_TIMEOUT_S:.0f} s", "See the logs of the edges."
        )
    except TokentrailError as error:
        found, _, remedy = str(error).partition(". ")
        return Check(name, Verdict.RED, found, remedy)


async def _topics(target: Target) -> str:
    todo = await topics.inspect(target.kafka, window_days=target.settings.resume.window_days)
    if todo.refuse:
        raise Red(f"{todo.refuse[0].name}: {todo.refuse[0].reason}", todo.refuse[0].remedy)
    if not todo.is_clean:
        names = [c.name for c in todo.create] + [a.name for a in todo.alter]
        raise Red(f"missing or different: {', '.join(names)}", "Run `tokentrail topics apply`.")
    return f"{target.kafka}, {len(TOPICS)} topics"


async def _clickhouse(target: Target) -> str:
    url = target.warehouse.url
    if not await answers_ok(f"{url.rstrip('/')}/ping"):  # soon: a driver waits a minute for one that hangs
        raise Red(
            f"{url} does not answer",
            "See logs/clickhouse.log; `tokentrail up` starts one, TOKENTRAIL_CLICKHOUSE__URL names another.",
        )
    version = await asyncio.to_thread(version_of, target.warehouse)
    return f"{target.warehouse.url}, version {version}"


async def _migrations(target: Target) -> str:
    pending = await asyncio.to_thread(pending_migrations, target.warehouse)
    if pending:
        raise Red(
            f"not applied: {', '.join(pending)}",
            "Start the stack again with `tokentrail up`, which applies them.",
        )
    return "all of them"


async def _edges(target: Target) -> str:
    if not target.edges:
        _ = target.edge  # raises NoStack with what to do
    states = await asyncio.gather(*(answers_ok(f"{url}/readyz") for url in target.edges))
    down = [url for url, ready in zip(target.edges, states, strict=True) if not ready]
    if down:
        raise Red(
            f"not ready: {', '.join(down)}", "See logs/edge-*.log; `GET /readyz` says what it waits for."
        )
    return ", ".join(target.edges)


async def _heartbeats(target: Target) -> str:
    heartbeat_s = target.settings.stream.heartbeat_s
    if not HEARTBEAT_MIN_S <= heartbeat_s <= HEARTBEAT_MAX_S:
        raise Red(
            f"stream.heartbeat_s is {heartbeat_s:g}",
            f"Set it between {HEARTBEAT_MIN_S} and {HEARTBEAT_MAX_S}: proxies cut silent connections after 60 s.",
        )
    return f"every {heartbeat_s:g} s"


async def _timeouts(target: Target) -> str:
    settings = target.settings
    layers = (
        ("stream.heartbeat_s", settings.stream.heartbeat_s),
        ("stream.stall_timeout_s", settings.stream.stall_timeout_s),
        ("timeout.decode_s", settings.timeout.decode_s),
        ("timeout.request_s", settings.timeout.request_s),
    )
    for (shorter, shorter_s), (longer, longer_s) in pairwise(layers):
        if shorter_s >= longer_s:
            raise Red(
                f"{shorter} ({shorter_s:g}) is not below {longer} ({longer_s:g})",
                "Each layer must give up before the one around it does, else the reason is lost.",
            )
    return " < ".join(f"{seconds:g} s" for _, seconds in layers)
