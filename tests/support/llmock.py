"""A peer's mock provider as a child process: ``llmock``, an upstream that nobody here wrote, told what to do by HTTP."""

import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.support.processes import free_port

READY_S = 30


class LlMock:
    """A running llmock; ``base_url`` is what an OpenAI client takes."""

    def __init__(self, port):
        self._root = f"http://127.0.0.1:{port}"
        self.base_url = f"{self._root}/v1"

    def script(self, **behavior):
        """Queue what upcoming requests get, such as ``type="fail", status=429``; ``times=None``: until ``reset``."""
        answer = httpx.post(f"{self._root}/_llmock/scenario", json={"behaviors": [behavior]})
        assert answer.status_code == httpx.codes.CREATED, answer.text

    def reset(self):
        """Forget what was queued and what was seen."""
        httpx.post(f"{self._root}/_llmock/reset").raise_for_status()

    def seen(self):
        """Give the requests that it served."""
        return httpx.get(f"{self._root}/_llmock/requests").json()["requests"]


@contextmanager
def running_llmock(folder):
    """Run llmock on a free port until the block ends; its words go to a file in the folder."""
    port = free_port()
    command = [Path(sys.executable).with_name("llmock"), "serve", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "llmock.log").open("wb") as out:
        child = subprocess.Popen(
            [*command, "--log-level", "warning", "--response-style", "echo"],
            stdout=out,
            stderr=out,
            cwd=folder,
        )
        try:
            _wait_ready(port, child)
            yield LlMock(port)
        finally:
            child.terminate()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _wait_ready(port, child):
    deadline = time.monotonic() + READY_S
    while True:
        assert child.poll() is None, f"llmock left with {child.returncode}"
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health").status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            assert time.monotonic() < deadline, "llmock does not answer"
        time.sleep(0.05)
