"""A process to be killed: reads one long generation from a log of its own and writes down what it was handed.

``python crashing.py STORE OUTPUT KIND CALLS``: after so many calls and returns of functions it kills itself (SIGKILL), wherever
it is: between receiving and storing, within a transaction, between storing and handing over. Each line of the output is one ``write``: the cursor and the text of an item, so
that it is there whole or not at all. The log is played by a transport that cuts every answer after a few hundred bytes,
anywhere; it remembers nothing, so that each process finds the same one.
"""

import gc
import itertools
import os
import random
import signal
import sys
import threading
from pathlib import Path

import anyio
from scripted import GENERATION, HEADERS, Reply, Server, answer, chat, delta, done, native
from tokentrail_client import AsyncClient, Client, Store, Text, Times, http_client

EVENTS = 1000
TIMES = Times(backoff_s=0.0001, backoff_max_s=0.0001)


def word(seq):
    return f"{seq} "


NATIVE = [
    native(0, "message_start"),
    *(delta(seq, word(seq)) for seq in range(1, EVENTS + 1)),
    native(EVENTS + 1, "message_end", finish_reason="stop"),
]
CHAT = [b"", *(chat(seq, word(seq)) for seq in range(1, EVENTS + 1)), done(EVENTS + 1)]


class Log(Server):
    """Answers by what is asked for, from the log."""

    def reply(self, request, stream):
        self.replies = [self._play(request)]
        return super().reply(request, stream)

    def _play(self, request):
        if request.method == "POST" and "prefer" in request.headers:
            return answer({}, 202, x_generation_id=GENERATION)
        events = CHAT if request.method == "POST" or "dialect" in request.url.params else NATIVE
        behind = request.headers.get("last-event-id")
        stream = b"".join(events[0 if behind is None else int(behind.split("-")[0]) + 1 :])
        return Reply((stream[: random.randint(1, 2000)],), headers=HEADERS, then="ReadError")


def die_after(calls):
    """Kill this process in the middle of whatever it does then."""
    left = itertools.count(calls, -1)

    def counted(*_):
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    gc.disable()  # Python 3.11's collector crashes on frames that a profiler looks at
    threading.setprofile(counted)  # of the thread that writes beside an event loop, too
    sys.setprofile(counted)


async def on_a_loop(store, out, after, calls):
    """Read on an event loop, whose store is written by a thread."""
    async with AsyncClient(
        "http://edge.test", "k", store=Store(store), times=TIMES, transport=Log()
    ) as client:
        die_after(calls)
        async for item in client.stream("/chat/completions", {"model": "m"}, session="one", after=after):
            text = item.text if isinstance(item, Text) else "end"
            os.write(out, f"{item.cursor}\t{text}\n".encode())


def main(store, output, kind, calls):
    """Read from where the output ends."""
    out = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    lines = Path(output).read_text().splitlines()
    after = lines[-1].split("\t")[0] if lines else None
    if kind == "iterator":
        with Client("http://edge.test", "k", store=Store(store), times=TIMES, transport=Log()) as client:
            die_after(int(calls))
            for item in client.stream("/chat/completions", {"model": "m"}, session="one", after=after):
                text = item.text if isinstance(item, Text) else "end"
                os.write(out, f"{item.cursor}\t{text}\n".encode())
    elif kind == "async":
        anyio.run(on_a_loop, store, out, after, int(calls))
    else:
        client = http_client(store=Store(store), times=TIMES, transport=Log())
        die_after(int(calls))
        with client.stream("POST", "http://edge.test/v1/chat/completions", json={"stream": True}) as response:
            for line in response.iter_lines():
                if line.startswith("id: "):
                    os.write(out, f"{line[4:]}\t-\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
