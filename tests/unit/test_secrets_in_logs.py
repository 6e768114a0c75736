"""What an edge writes about a bug of its own: where it was, and no value of any variable."""

import asyncio
import io
import json
import logging

import pytest
import structlog

from edge.app import configure_logs
from tests.support.running import edge_with
from tests.support.upstream import Script
from tests.support.waiting import until

SECRETS = ("provider-key-text", "prompt-of-a-person", "ticket-text")


@pytest.fixture
def written():
    """What is written while a test runs; nothing of it stays configured."""
    root, stream = logging.getLogger(), io.StringIO()
    before = list(root.handlers)
    root.handlers = []
    configure_logs(stream)
    yield stream
    root.handlers = before
    structlog.reset_defaults()


async def test_a_bug_is_told_without_its_variables(written):
    """A driver that fails in the middle of a call: its frames are in the log, the key and the prompt in them are not."""
    bug = Script(RuntimeError("a bug of ours"))
    provider = {"one": {"base_url": "http://127.0.0.1:1/v1", "api_key": SECRETS[0]}}
    async with edge_with(bug, providers=provider, default_route=({"provider": "one"},)) as edge:
        asked = [{"role": "user", "content": SECRETS[1]}]
        headers = {"x-request-id": "r", "authorization": f"Bearer {SECRETS[2]}"}
        entry = await edge.begin(headers, messages=asked)
        await until(lambda: entry.finished and not edge.service._tasks)
        await asyncio.sleep(0)
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    (told,) = [line for line in lines if line["event"] == "a task of this edge failed"]
    frames = [frame for one in told["exception"] for frame in one["frames"]]
    assert any(frame["name"] == "read" for frame in frames)
    assert not [secret for secret in SECRETS if secret in written.getvalue()]
