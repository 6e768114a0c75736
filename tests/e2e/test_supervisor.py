"""`tokentrail up`, really started: every process killed, the supervisor killed, nothing lost, everything found again."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from compose.client import EdgeClient, answers_ok
from compose.config import load_settings
from compose.embedded.kafka.process import start_mark
from compose.state import Folder
from compose.supervisor import stop_leftovers
from compose.warehouse import query
from tests.support.stack import ready_state, supervised

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]
RECOVERY_TIMEOUT_S = 60
BODY = {"model": "sim-fast", "stream": True, "messages": [{"role": "user", "content": "hello"}]}


async def until(condition, timeout_s=RECOVERY_TIMEOUT_S, what="it"):
    deadline_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"{what} did not come within {timeout_s} s"
        await asyncio.sleep(0.1)
    return found


async def stream_whole(state, key):
    """Stream one answer to its end by whichever edge is there; the generation's id."""
    async with asyncio.timeout(RECOVERY_TIMEOUT_S):
        while True:
            for url in state.edges:
                if not await answers_ok(f"{url}/readyz"):
                    continue
                async with (
                    EdgeClient(url, key) as edge,
                    edge.stream("POST", "/v1/chat/completions", BODY) as stream,
                ):
                    if stream.answer is None:
                        frames = [frame async for frame in stream.frames]
                        assert frames[-1].data == "[DONE]"
                        return stream.headers["X-Generation-Id"]
            await asyncio.sleep(0.2)


def warehouse_of(state):
    return load_settings(state.config).clickhouse.model_copy(update={"url": state.clickhouse.address})


async def rows_of(state, generation_ids):
    """Wait until each generation has its row and its ledger; then how often each stands in the views."""
    settings = warehouse_of(state)

    def count():
        with contextlib.suppress(Exception):  # ClickHouse may be on its way back
            rows = query(
                settings,
                "SELECT toString(generation_id) AS id, count() AS n FROM generations_final "
                "WHERE generation_id IN (SELECT generation_id FROM ledger_current) GROUP BY 1",
            )
            found = {row["id"]: row["n"] for row in rows}
            return found if set(generation_ids) <= set(found) else None

    return await until(count, what="the rows")


async def test_every_process_may_be_killed(tmp_path):
    """Each process killed with -9 comes back on its port, a second `up` only tells, a killed supervisor is replaced.

    A stop while the log is frozen is a stop in order.
    """
    folder = Folder(tmp_path / "stack")
    with supervised(folder) as first:
        state = await asyncio.to_thread(ready_state, folder, first)
        key = folder.read_keys()["acme"]
        generations = [await stream_whole(state, key)]
        await rows_of(state, generations)

        names = {process.name for process in state.processes}
        assert names == {"kafka", "clickhouse", "simulator", "sinks", "pipeline", "edge-1", "edge-2"}
        for name in sorted(names):
            victim = next(p for p in folder.read_state().processes if p.name == name)
            os.kill(victim.pid, signal.SIGKILL)
            back = await until(
                lambda name=name: next(
                    (p for p in folder.read_state().processes if p.name == name and p.starts == 2), None
                ),
                what=name,
            )
            assert back.url == victim.url
            generations.append(await stream_whole(state, key))
        counted = await rows_of(state, generations)
        assert {counted[generation] for generation in generations} == {1}

        second = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "compose.cli", "up", "--dir", str(folder.path), "--json"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert second.returncode == 0
        assert json.loads(second.stdout)["supervisor_pid"] == first.pid

        before = folder.read_state()
        first.kill()
        first.wait(10)
        assert all(process.runs for process in before.processes)  # they outlive their supervisor
        try:
            with supervised(folder) as heir:
                after = await asyncio.to_thread(ready_state, folder, heir)
                assert not any(process.runs for process in before.processes)
                assert (after.edges, after.kafka, after.clickhouse.address) == (
                    before.edges,
                    before.kafka,
                    before.clickhouse.address,
                )
                generations.append(await stream_whole(after, key))
                counted = await rows_of(after, generations)
                assert {counted[generation] for generation in generations} == {1}
                os.kill(next(p.pid for p in after.processes if p.name == "kafka"), signal.SIGSTOP)
                heir.send_signal(signal.SIGINT)
                assert await asyncio.to_thread(heir.wait, 60) == 0
                said = (tmp_path / "up.txt").read_text()
                assert (
                    "killed" not in said[said.rindex("stopping") :]
                )  # the frozen log was woken, and took the commits
                assert folder.read_state() is None
                assert [p.name for p in after.processes if start_mark(p.pid) == p.mark] == []
        finally:
            await stop_leftovers([process for process in before.processes if process.runs])
