"""Plays a script through our transports, and collects what a session tells of itself."""

import anyio
from scripted import GENERATION, chat, done
from tokentrail_client import Times, async_http_client, http_client

FAST = Times(backoff_s=0.001, backoff_max_s=0.002, poll_s=0.001)
URL = "http://edge-1.test/v1/chat/completions"
BODY = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
WHOLE = [chat(1, "one "), chat(2, "two "), chat(3, "three"), done(4)]
EVENTS = f"/v1/generations/{GENERATION}/events?dialect=openai.chat"
AUTH = {"authorization": "Bearer k"}


class Told:
    """Collects the moves of all sessions."""

    def __init__(self):
        self.moves = []

    def __call__(self, change):
        self.moves.append((change.old.value, change.new.value, change.reason))

    @property
    def states(self):
        return [new for _, new, _ in self.moves]


def play(server, *, blocking=True, url=URL, body=BODY, headers=AUTH, **options):
    """Post a call through our transport; the response with its whole body."""
    options = {"times": FAST, "transport": server, **options}
    if blocking:
        with http_client(**options) as client:
            return client.post(url, json=body, headers=headers)

    async def run():
        async with async_http_client(**options) as client:
            return await client.post(url, json=body, headers=headers)

    return anyio.run(run)
