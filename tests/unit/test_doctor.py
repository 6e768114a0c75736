"""The doctor: what cannot be looked at is skipped, what hangs is told soon, and each way out once.

Before this file: ``compose.doctor``. After it: nothing.
"""

import asyncio

import pytest
from pydantic import SecretStr

from compose.checks import Check, Verdict
from compose.commands import doctor
from compose.doctor import examine
from compose.logs import Terminal
from compose.target import Target, find_target
from schemas.settings import ClickHouse


def target_with(tmp_path, **more):
    found = find_target(tmp_path, tmp_path, {})
    fields = {name: getattr(found, name) for name in Target.__slots__}
    return Target(**(fields | more))


async def test_without_a_stack_only_what_stands_alone_is_looked_at(tmp_path):
    """Kafka, ClickHouse and edges are red, each with its way out; what needs them is skipped, and nothing is green for that."""
    told = []
    checks = await examine(target_with(tmp_path), tell=told.append)
    assert told == checks
    red = [check for check in checks if check.verdict is Verdict.RED]
    assert [check.name for check in red] == [
        "Kafka reachable, topics right",
        "ClickHouse reachable",
        "edges ready",
    ]
    assert all(check.remedy for check in red)
    skipped = {check.name: check.found for check in checks if check.verdict is Verdict.SKIPPED}
    assert skipped["migrations applied"] == "not without: ClickHouse reachable"
    assert skipped["cancel works"] == "not without: edges ready"


async def test_a_clickhouse_that_hangs_is_told_soon(tmp_path):
    """A server that takes the connection and says nothing is red by a probe of two seconds, not by a driver's minute."""

    async def hang(_reader, writer):
        await gone.wait()
        writer.close()

    gone = asyncio.Event()
    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        settings = ClickHouse(url=url, password=SecretStr(""))
        checks = await examine(target_with(tmp_path, clickhouse=settings))
        gone.set()
    (found,) = [check for check in checks if check.name == "ClickHouse reachable"]
    assert (found.verdict, found.found) == (Verdict.RED, f"{url} does not answer")


@pytest.mark.parametrize("columns", [80, 120])
def test_a_way_out_is_said_once(columns, monkeypatch, capsys):
    """Two rows with one reason have one arrow, and no line is wider than the terminal."""
    monkeypatch.setattr(doctor, "out", Terminal(highlight=False, width=columns))
    rows = doctor._Rows()
    for name in ("edges ready", "buffering, cache, compression off"):
        rows.add(
            Check(
                name,
                Verdict.RED,
                "nobody is [there]",
                "Start one with `tokentrail up`, or give another. " * 2,
            )
        )
    rows.add(Check("cancel works", Verdict.SKIPPED, "not without: edges ready"))
    said = capsys.readouterr().out
    assert said.count("→") == 1
    assert said.count("nobody is [there]") == 2
    assert max(map(len, said.splitlines())) <= columns
    assert (
        len(
            {
                line.index(word)
                for line in said.splitlines()
                for word in ("nobody", "not without")
                if word in line
            }
        )
        == 1
    )
