"""Every metric of the catalogue exists with its labels, and moves when what it counts happens."""

import re
from pathlib import Path

from prometheus_client import Counter

from edge.asgi.parting import REASONS
from tests.support.running import ONE_ROUTE, SHORT, edge_with
from tests.support.upstream import CUT, DONE, OK, Script, chunk, finish
from tests.support.waiting import until

DOC = Path(__file__).parents[2] / "docs/metrics.md"
ROW = re.compile(r"^\| `((?:sse|tokentrail)_\w+)` \|([^|]*)\|", re.MULTILINE)


def of_document():
    """Give the labels of each metric of the table, by its name."""
    section = DOC.read_text().partition("## What an edge counts")[2].partition("\n## ")[0]
    return {name: tuple(re.findall(r"`(\w+)`", labels)) for name, labels in ROW.findall(section)}


def of_edge(metrics):
    """Give the labels of each metric of a registry, by the name that Prometheus is told."""
    found = {}
    for collector in set(metrics.registry._collector_to_names):
        name = collector._name + ("_total" if isinstance(collector, Counter) else "")
        found[name] = tuple(collector._labelnames)
    return found


async def test_the_catalogue_is_the_edges():
    """The document's table has every metric with its labels, and no other; the promised buckets are there."""
    async with edge_with(OK) as edge:
        assert of_document() == of_edge(edge.service.metrics)
        for histogram in (edge.service.metrics.first_token_ms, edge.service.metrics.last_token_ms):
            assert {100.0, 500.0, 2000.0} <= set(histogram._upper_bounds)


async def test_every_reason_is_there_before_it_happened():
    """An alert can be written on a reason that never came: each model has all of them at 0 from the start."""
    async with edge_with(OK, models={"m": ONE_ROUTE}) as edge:
        value = edge.service.metrics.registry.get_sample_value
        for name in ("sse_aborts_total", "sse_abort_rate_permille"):
            assert {
                value(name, {"reason": reason, "model": model})
                for reason in REASONS
                for model in ("m", "other")
            } == {0.0}


async def test_a_generation_moves_what_it_should():
    """A retry costs its budget, a stall is counted at its provider, and what the log has taken is measured."""
    slow = Script(chunk("a"), 0.1, chunk("b"), finish(), DONE)
    stream = SHORT | {"stall_threshold_ms": 20}
    async with edge_with(Script(CUT), slow, default_route=ONE_ROUTE, stream=stream) as edge:
        value = edge.service.metrics.registry.get_sample_value
        retries = {"purpose": "retry", "provider": "one"}
        before = value("tokentrail_budget_tokens", retries)
        hedges = value("tokentrail_budget_tokens", {"purpose": "hedge", "provider": "all"})
        assert before > 1
        assert hedges > 1
        edge.log.hold()
        entry = edge.service._spawn(edge.begin())
        await until(lambda: value("tokentrail_log_lag_ms") > 0)
        edge.log.release()
        await until(
            lambda: value("tokentrail_generations_total", {"terminal": "message_end", "code": "none"})
        )
        assert entry is None
        assert value("tokentrail_budget_tokens", retries) == before - 1 + edge.settings.retry.budget_share
        assert value("tokentrail_stalls_total", {"provider": "one", "ended_by": "content"}) == 1
        for reason, outcome in (("first", "failed"), ("retry", "ok")):
            labels = {"provider": "one", "reason": reason, "outcome": outcome}
            assert value("tokentrail_attempts_total", labels) == 1
        assert value("tokentrail_publish_latency_ms_count") == 1
        assert value("tokentrail_log_lag_ms") == 0
