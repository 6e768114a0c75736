"""Our own processes as children of a test: edges and workers, with the times of lease, finder and grace at a twentieth.

What is started is ended by its pid; a child that leaves before its time fails the wait for it with its own words.
"""

import asyncio
import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import sys

import httpx

KEY = "test-key"
HEADERS = {"authorization": f"Bearer {KEY}"}
TWENTIETH = {
    "TOKENTRAIL_PIPELINE__ORPHAN_AFTER_S": "3",
    "TOKENTRAIL_STREAM__HEARTBEAT_S": "0.75",
    "TOKENTRAIL_LOG__DELIVERY_S": "1.4",
    "TOKENTRAIL_DISCONNECT__GRACE_S": "1.5",
    "TOKENTRAIL_EDGE__DRAIN_S": "1",
    "TOKENTRAIL_PIPELINE__COMMIT_INTERVAL_S": "0.2",
    "TOKENTRAIL_SINK__BATCH_AGE_S": "0.1",
}
UNHURRIED = {"TOKENTRAIL_PIPELINE__ORPHAN_AFTER_S": "60", "TOKENTRAIL_LOG__DELIVERY_S": "20"}
"""The real times of log and finder, for tests about something else: a busy machine is no log that is away."""
READY_S = 90  # that of a machine with other work; a child that leaves is told at once


def free_port():
    """Give a port that nobody listens on at the moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Process:
    """One child process with its own log file."""

    def __init__(self, module, folder, environ, name):
        self.module = module
        self.folder = folder
        self.environ = environ
        self.name = name
        self.log = folder / f"{name}.log"
        self.child = None

    def start(self):
        """Start it (again)."""
        with self.log.open("ab") as out:
            self.child = subprocess.Popen(
                [sys.executable, "-m", self.module], cwd=self.folder, env=self.environ, stdout=out, stderr=out
            )

    def signal(self, number):
        """Send a signal by pid."""
        os.kill(self.child.pid, number)

    def kill(self):
        """Kill -9, and reap."""
        if self.child.poll() is None:
            self.signal(signal.SIGKILL)
        self.child.wait()

    def stop(self, within_s=15):
        """SIGTERM, and its exit code; killed where it does not end in time."""
        if self.child is None:
            return None
        if self.child.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            try:
                self.child.wait(within_s)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.child.returncode

    def said(self):
        """Give what it has written."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    async def until_said(self, text, within_s=READY_S):
        """Wait until it has written a text since its last start."""
        before = getattr(self, "_read", 0)
        async with asyncio.timeout(within_s):
            while text not in self.said()[before:]:
                assert self.child.poll() is None, (
                    f"{self.name} left with {self.child.returncode}: {self.said()[-3000:]}"
                )
                await asyncio.sleep(0.02)
        self._read = len(self.said())


class Edge(Process):
    """An edge process."""

    def __init__(self, folder, environ, name):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        super().__init__(
            "edge",
            folder,
            {**environ, "TOKENTRAIL_EDGE__ID": name, "TOKENTRAIL_EDGE__PORT": str(self.port)},
            name,
        )

    async def until_ready(self, within_s=READY_S):
        """Wait for /readyz."""
        async with asyncio.timeout(within_s), httpx.AsyncClient() as client:
            while True:
                assert self.child.poll() is None, (
                    f"{self.name} left with {self.child.returncode}: {self.said()[-3000:]}"
                )
                try:
                    if (await client.get(f"{self.url}/readyz")).status_code == httpx.codes.OK:
                        return
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.05)


def environment(kafka, extra=None):
    """Give the environment of a child: the test's Kafka, scaled times, and nothing of tokentrail from outside."""
    outside = {k: v for k, v in os.environ.items() if not k.startswith("TOKENTRAIL_")}
    return {**outside, **TWENTIETH, "TOKENTRAIL_KAFKA__BOOTSTRAP_SERVERS": kafka, **(extra or {})}


def write_config(folder, provider_url):
    """Write the tokentrail.toml of a test stack: one provider for every model, one key."""
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    other = hashlib.sha256(b"other-key").hexdigest()
    (folder / "tokentrail.toml").write_text(
        f'default_route = [{{provider = "sim"}}]\n'
        f'[providers.sim]\nbase_url = "{provider_url}"\n'
        f'[[keys]]\nid = "k1"\ntenant = "acme"\nsha256 = "{digest}"\nroles = ["caller", "operator"]\n'
        f'[[keys]]\nid = "k2"\ntenant = "rival"\nsha256 = "{other}"\n'
    )


@contextlib.asynccontextmanager
async def two_edges(kafka, provider, folder, extra=None):
    """Two edges on one log before one provider, ready; whatever is left of them is ended."""
    write_config(folder, provider.base_url)
    environ = environment(kafka, extra)
    started = [Edge(folder, environ, f"edge-{i}-{folder.name}") for i in (1, 2)]
    try:
        for edge in started:
            edge.start()
        for edge in started:
            await edge.until_ready()
        yield started
    finally:
        for edge in started:
            edge.stop()
