"""The supervisor keeps children alive, in order, and takes over from a dead one. Children are tiny real processes."""

import asyncio
import dataclasses
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from compose.embedded.kafka.process import start_mark
from compose.state import Folder, RunningProcess, ServerInfo, StackState, StateError
from compose.supervisor import Restarts, Service, StartFailed, Supervisor, stop_leftovers

OBEDIENT = (
    "import signal,sys,time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); {go}; time.sleep(60)"
)
STUBBORN = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); {go}; time.sleep(60)"
GO = "open('{file}','a').write('up\\n')"


def service(tmp_path: Path, name: str, *, tier=0, code=OBEDIENT, grace_s=5.0, env=None):
    """A child that says in a file that it is up; it is ready when the file has a line for this start."""
    file = tmp_path / f"{name}.up"
    starts = []

    async def is_ready():
        return file.exists() and len(file.read_text().splitlines()) >= len(starts)

    return Service(
        name=name,
        tier=tier,
        command=[sys.executable, "-S", "-c", code.format(go=GO.format(file=file))],
        cwd=tmp_path,
        env=env or (lambda _: os.environ),
        is_ready=is_ready,
        stop_grace_s=grace_s,
        on_started=starts.append,
    )


class Said(list):
    """Collects what the supervisor says."""

    def __call__(self, name, line):
        self.append(f"{name}: {line}")


@pytest.fixture
async def supervisor(tmp_path):
    said, changes = Said(), []
    made = Supervisor(tmp_path / "logs", said, lambda: changes.append(1))
    made.said, made.changes = said, changes
    yield made
    await made.stop()


async def until(condition, timeout_s=10):
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - the condition is of another process
            await asyncio.sleep(0.02)


def test_delay_doubles_and_is_bounded():
    """Deaths in a row double the delay from 0.2 s up to 10 s, and a long life starts the count again."""
    restarts, delays = Restarts(), []
    assert restarts.delay_s == 0
    for _ in range(8):
        restarts = restarts.after_death(lived_s=1)
        delays.append(restarts.delay_s)
    assert delays == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]
    assert restarts.after_death(lived_s=30).delay_s == 0.2


async def test_a_killed_child_comes_back(supervisor, tmp_path):
    """A child that is killed with -9 is started again, and the change is told."""
    await supervisor.start([service(tmp_path, "a")])
    (before,) = supervisor.running
    os.kill(before.pid, signal.SIGKILL)
    await until(lambda: [p.starts for p in supervisor.running] == [2])
    (after,) = supervisor.running
    assert after.pid != before.pid
    assert after.runs
    assert any("SIGKILL" in line for line in supervisor.said)
    assert len(supervisor.changes) == 2


async def test_start_waits_for_readiness(supervisor, tmp_path):
    """Start returns only when each child is ready."""
    await supervisor.start([service(tmp_path, "a"), service(tmp_path, "b")])
    assert (tmp_path / "a.up").exists()
    assert (tmp_path / "b.up").exists()


async def test_a_child_that_cannot_start_is_given_up_with_its_last_words(supervisor, tmp_path):
    """After three deaths before the first readiness the start fails, and the error shows the end of the log."""
    bad = service(tmp_path, "bad", code="raise SystemExit('no port left')")
    with pytest.raises(StartFailed, match=r"bad does not start \(exit code 1\)(.|\n)*no port left"):
        await supervisor.start([bad])


async def test_a_child_that_never_gets_ready_is_named(supervisor, tmp_path):
    """A child that runs but is not ready in time fails the start by name."""
    slow = service(tmp_path, "slow", code="import time; time.sleep(60)")
    with pytest.raises(StartFailed, match="Not ready after 0 s: slow"):
        await supervisor.start([slow], timeout_s=0.3)


async def test_stop_goes_from_the_highest_tier_down(supervisor, tmp_path):
    """Each tier is gone before the next lower one gets its signal."""
    order = tmp_path / "order"
    code = (
        "import signal,sys,time\n"
        "def stop(*_):\n  time.sleep(0.2); open({order!r},'a').write({name!r}+' '); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, stop)\n{{go}}\ntime.sleep(60)"
    )
    await supervisor.start(
        [
            service(tmp_path, name, tier=tier, code=code.format(order=str(order), name=name))
            for name, tier in (("log", 0), ("edge", 4), ("sink", 2))
        ]
    )
    await supervisor.stop()
    assert order.read_text().split() == ["edge", "sink", "log"]
    assert supervisor.running == []


async def test_a_child_that_ignores_the_signal_is_killed(supervisor, tmp_path):
    """A child that outlives its grace is killed, and that is said."""
    await supervisor.start([service(tmp_path, "deaf", code=STUBBORN, grace_s=0.2)])
    (child,) = supervisor.running
    await supervisor.stop()
    assert start_mark(child.pid) is None
    assert any("killed" in line for line in supervisor.said)


async def test_a_stop_wakes_who_is_frozen_before_anybody_is_asked_to_end(supervisor, tmp_path):
    """A worker ends only once the log under it answers, which was frozen: the log is woken first, and asked last."""
    log, worker = tmp_path / "log", tmp_path / "worker"
    beats = (
        "import signal,sys,time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); {go}\n"
        f"while True: open('{log}','a').write('.'); time.sleep(0.02)"
    )
    waits = (
        "import os,signal,sys,time\n"
        "def end(*_):\n"
        f"    size = os.path.getsize('{log}')\n"
        f"    while os.path.getsize('{log}') == size: time.sleep(0.01)\n"
        f"    open('{worker}','w').write('committed'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end); {go}; time.sleep(60)"
    )
    await supervisor.start([service(tmp_path, "log", tier=0, code=beats)])
    await supervisor.start([service(tmp_path, "worker", tier=1, code=waits, grace_s=30)])
    await until(log.exists)
    os.kill(next(p.pid for p in supervisor.running if p.name == "log"), signal.SIGSTOP)
    await supervisor.stop()
    assert worker.read_text() == "committed"
    assert not [line for line in supervisor.said if "killed" in line]


async def test_who_is_in_a_hurry_waits_for_nobody(tmp_path):
    """Children that take their time are killed once ``hurry`` is set, those too whose turn had not come."""
    said, hurry = Said(), asyncio.Event()
    supervisor = Supervisor(tmp_path / "logs", said, lambda: None, hurry)
    both = [service(tmp_path, name, tier=n, code=STUBBORN, grace_s=600) for n, name in enumerate("ab")]
    await supervisor.start(both)
    stopping = asyncio.create_task(supervisor.stop())
    await asyncio.sleep(0)
    hurry.set()
    await asyncio.wait_for(stopping, 60)
    assert supervisor.running == []
    assert [line for line in said if "no more waiting: killed" in line] == [
        "b: no more waiting: killed",
        "a: no more waiting: killed",
    ]


async def test_stop_during_the_delay_does_not_start_again(supervisor, tmp_path):
    """A stop that comes while a dead child waits for its next start ends at once and starts nothing."""
    await supervisor.start([service(tmp_path, "a")])
    os.kill(supervisor.running[0].pid, signal.SIGKILL)
    await until(lambda: any("started again" in line for line in supervisor.said))
    await asyncio.wait_for(supervisor.stop(), 3)
    assert supervisor.running == []


async def test_environment_counts_starts(supervisor, tmp_path):
    """The environment is made anew for each start, so that a name can be unique per process."""
    code = "import os,time; open('ids','a').write(os.environ['ID']+' '); {go}; time.sleep(60)"
    await supervisor.start([service(tmp_path, "a", code=code, env=lambda n: {"ID": f"edge-1.{n}"})])
    os.kill(supervisor.running[0].pid, signal.SIGKILL)
    await until(lambda: (tmp_path / "ids").read_text().split() == ["edge-1.1", "edge-1.2"])


async def test_leftovers_are_stopped_but_never_a_stranger():
    """What a dead supervisor left is stopped; a process that got the same pid since is not touched."""
    command = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    leftover, stranger = (subprocess.Popen(command) for _ in range(2))  # noqa: ASYNC220 - it only forks
    try:
        await stop_leftovers(
            [
                RunningProcess(
                    name="edge-1", pid=leftover.pid, mark=start_mark(leftover.pid), tier=4, stop_grace_s=2
                ),
                RunningProcess(name="sinks", pid=stranger.pid, mark="another life", tier=2, stop_grace_s=2),
            ]
        )
        assert leftover.wait(5) == -signal.SIGTERM
        assert stranger.poll() is None
    finally:
        for process in (leftover, stranger):
            process.kill()
            process.wait()


def test_the_folder_is_held_by_one(tmp_path):
    """While one holds the folder's lock another does not get it, and gets it afterwards."""
    folder = Folder(tmp_path / "stack")
    with folder.lock() as first:
        assert first
        with Folder(tmp_path / "stack").lock() as second:
            assert not second
    with folder.lock() as third:
        assert third


def test_ports_are_kept(tmp_path):
    """A port once chosen is chosen again, a preferred one is taken when it is free, and none is given twice."""
    folder = Folder(tmp_path)
    first = folder.ports({"edge-1": 0, "edge-2": 0})
    assert len(set(first.values())) == 2
    assert folder.ports({"edge-1": 0, "edge-2": 0}) == first


def test_a_port_that_is_asked_for_comes_before_that_of_the_last_time(tmp_path):
    """`--port` is obeyed on a folder that has had other ports; where it is taken those of the last time come again."""
    folder = Folder(tmp_path)
    first = folder.ports({"edge-1": 0})
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        wanted = other.getsockname()[1]
        other.listen()
        assert folder.ports({"edge-1": wanted}) == first
    assert folder.ports({"edge-1": wanted}) == {"edge-1": wanted}


def test_a_demanded_port_is_had_or_refused(tmp_path):
    """A port that the caller named is taken before one of the last time, and in use it is an error that says whose."""
    folder = Folder(tmp_path)
    kept = folder.ports({"edge-1": 0})
    with socket.create_server(("127.0.0.1", 0)) as listening:
        busy = listening.getsockname()[1]
        with pytest.raises(StateError, match=rf"port {busy}, wanted for edge-1, is in use"):
            folder.ports({"edge-1": busy}, {"edge-1"})
        assert folder.ports({"edge-1": busy}) == kept
    assert folder.ports({"edge-1": busy}, {"edge-1"}) == {"edge-1": busy}
    with pytest.raises(StateError, match="no port 65536 for edge-2"):
        folder.ports({"edge-2": 65_536}, {"edge-2"})


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    """No room, no right, a file in its place: one sentence with the path and the reason; no half-written file stays."""
    (tmp_path / "file").write_text("")
    (tmp_path / "stack.json").mkdir()
    (tmp_path / "stack.json" / "in the way").write_text("")
    state = StackState(
        supervisor_pid=1,
        supervisor_mark="",
        started_us=0,
        config="",
        kafka=ServerInfo(address="", kind="embedded"),
        clickhouse=ServerInfo(address="", kind="embedded"),
    )
    with pytest.raises(StateError, match=r"file cannot be written \(File exists\).*--dir"):
        Folder(tmp_path / "file").lock().__enter__()
    with pytest.raises(StateError, match=r"stack\.json cannot be written \(Is a directory\)"):
        Folder(tmp_path).write_state(state)
    with pytest.raises(StateError, match=r"stack\.json cannot be written"):
        Folder(tmp_path).forget_state()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "stack.json"]


def test_an_unreadable_state_says_what_to_do(tmp_path):
    """A damaged stack.json is an error that names the file and the way out."""
    (tmp_path / "stack.json").write_text("{")
    with pytest.raises(StateError, match=r"stack\.json cannot be read .*tokentrail up"):
        Folder(tmp_path).read_state()


async def test_a_start_that_cannot_be_noted_keeps_the_child(tmp_path):
    """Where the state cannot be written (a full disk), that is said, and the child is kept alive and stopped all the same."""
    said = Said()

    def no_space():
        raise OSError(28, "No space left on device")

    supervisor = Supervisor(tmp_path / "logs", said, no_space)
    await supervisor.start([service(tmp_path, "a")])
    (child,) = supervisor.running
    assert any("No space left" in line for line in said)
    await supervisor.stop()
    assert start_mark(child.pid) is None


async def test_a_program_that_is_not_there_is_given_up(supervisor, tmp_path):
    """A command that cannot be run at all fails the start with its reason."""
    missing = dataclasses.replace(service(tmp_path, "none"), command=[str(tmp_path / "none")])
    with pytest.raises(StartFailed, match=r"none does not start .cannot be run: .*No such file"):
        await supervisor.start([missing])
