"""Clients that live in a process of their own: asked by a line of JSON each, they answer by one.

``{"id", "client", "url", "dialect", "model", "asked", "key"}`` → ``{"id", "outcomes": {way: outcome}}``, as the clients in
``sdk_python``. What a driver cannot do at all is ``{"id", "failed": text}``.
"""

import asyncio
import itertools
import json
import os
import sys
from pathlib import Path

from tests.support.javascript import NODE_FOLDER, node
from tests.support.sources import ROOT

LITELLM = ROOT / "tests/e2e/litellm_driver.py"
LINE_BYTES_MAX = 1 << 24
STOP_S = 5


def node_command():
    """How the Node clients are run, or None where they are not installed."""
    installed = node() is not None and (NODE_FOLDER / "node_modules" / "ai").is_dir()
    return [*node(), str(NODE_FOLDER / "driver.mjs")] if installed else None


def litellm_command():
    """How litellm is run, or None where its virtual environment is not made."""
    python = Path(sys.prefix) / "litellm" / "bin" / "python"
    return [str(python), str(LITELLM)] if python.exists() else None


class Driver:
    """``async with Driver(command, log) as driver: await driver.ask(client=…, url=…)``; its stderr goes to the log.

    It gets nothing of our environment: what runs there is other people's, and an SDK reads keys and addresses from it.
    """

    def __init__(self, command, log):
        self._command = command
        self._log = log
        self._ids = itertools.count()
        self._asked = {}

    async def __aenter__(self):
        with self._log.open("wb") as out:
            self._child = await asyncio.create_subprocess_exec(
                *self._command, stdin=-1, stdout=-1, stderr=out, limit=LINE_BYTES_MAX,
                cwd=self._log.parent, env={"PATH": os.defpath, "HOME": str(self._log.parent)},
            )  # fmt: skip
        self._reading = asyncio.ensure_future(self._read())
        return self

    async def __aexit__(self, *_):
        self._child.stdin.close()
        try:
            await asyncio.wait_for(self._child.wait(), STOP_S)
        except TimeoutError:
            self._child.kill()
            await self._child.wait()
        await self._reading

    async def ask(self, **question):
        """The outcomes of a question."""
        number = next(self._ids)
        self._asked[number] = answered = asyncio.get_running_loop().create_future()
        self._child.stdin.write(json.dumps({"id": number, **question}).encode() + b"\n")
        return await answered

    async def _read(self):
        try:
            async for line in self._child.stdout:
                answer = json.loads(line)
                answered = self._asked.pop(answer["id"])
                if "failed" in answer:
                    answered.set_exception(AssertionError(answer["failed"]))
                else:
                    answered.set_result(answer["outcomes"])
        finally:
            for answered in self._asked.values():
                answered.set_exception(AssertionError(f"the driver left: {self._log.read_text()[-3000:]}"))
