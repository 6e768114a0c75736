"""A scripted provider of three dialects: deterministic tokens, and every way in which a provider goes wrong.

It serves ``POST /v1/chat/completions``, ``/v1/messages`` and ``/v1/responses`` (streaming and not), ``GET /v1/models`` and
``GET /healthz``, and remembers what it saw (``GET /_sim/requests``), so that a test can prove that its socket was closed.
The model name chooses a behaviour, the same in each dialect:

=============  ======================================================================
sim-fast       40 tokens, 5 ms apart
sim-steady     100 tokens, 20 ms apart: the load of the benchmarks
sim-stall      60 tokens, silence of 2.3 s after the twentieth
sim-error      an error object in band after ten tokens
sim-cut        the connection ends after twenty tokens without the body's end
sim-long       2000 tokens, 40 s
sim-tool       one tool call in fragments
sim-reason     20 reasoning tokens, then 40 of text
sim-markdown   a short text of headings, a list, code and a table
=============  ======================================================================

A request field ``"simulate": {…}`` overrides any of it, and allows any model name: see ``SimulatorOptions``. A list
``"simulate": [{…}, {…}]`` scripts successive calls with the same ``"simulate_id"`` (the attempts of a retry).

Reading order: ``options`` (what) → ``plan`` (when) → ``chunks``, ``messages``, ``responses`` (bytes) → ``server``
(sockets).
"""

import sys

from compose.embedded.simulator.options import PRESETS, SimulatorOptions, ToolCall
from compose.embedded.simulator.seen import SeenRequest
from compose.embedded.simulator.server import Simulator

__all__ = ["PRESETS", "SeenRequest", "Simulator", "SimulatorOptions", "ToolCall", "command"]


def command(port: int, *, seed: int = 0) -> list[str]:
    """The argument list that runs the simulator as a process of its own on 127.0.0.1:``port``."""
    return [sys.executable, "-m", "compose.embedded.simulator", "--port", str(port), "--seed", str(seed)]
