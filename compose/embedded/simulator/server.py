"""The simulator's sockets: reads a request, plays its steps on time, ends as scripted, remembers what it saw.

Invariants: an answer's times do not drift (a step is due relative to the one before it, not to when that was written),
and no long silence is the shorter for it; a client that goes away is noticed at once, also in silence, and is on record
as ``aborted_by_client``. The only file here that knows aiohttp, the clock and the network. Before it: ``chunks``.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol, Self

import orjson
from aiohttp import web

from compose.embedded.simulator import messages
from compose.embedded.simulator.chunks import ChunkRenderer, error_body
from compose.embedded.simulator.messages import MessagesRenderer
from compose.embedded.simulator.options import PRESETS, BadScript, SimulatorOptions, UnknownModel, options_of
from compose.embedded.simulator.plan import Step, prompt_tokens_of, seed_of, steps
from compose.embedded.simulator.responses import ResponsesRenderer
from compose.embedded.simulator.seen import LONG_S, SeenRequest
from compose.embedded.simulator.traits import Traits, draw
from compose.faults import reset_transport

REQUEST_BYTES_MAX: Final = 64 << 20  # long-context tests; beyond it 413
REMEMBERED_MAX: Final = 10_000  # requests on record; the oldest go first
SCRIPTS_MAX: Final = 10_000  # simulate_ids whose calls are counted
RESET_DELAY_S: Final = 0.1  # what was written before a reset shall have arrived
STREAM_HEADERS: Final = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
_SECRETS: Final = frozenset({"authorization", "x-api-key"})


class Renderer(Protocol):
    """Steps as a dialect's bytes, and all of them as its body; a step that a dialect does not show is no bytes."""

    def render(self, step: Step, sent_ns: int | None = None) -> bytes:
        """The bytes of a step that writes something."""

    def whole(self, played: Iterable[Step]) -> dict[str, Any]:
        """The body of a call that does not stream."""


class Dialect(NamedTuple):
    """What one path speaks."""

    renderer: type[ChunkRenderer] | type[MessagesRenderer] | type[ResponsesRenderer]
    error_body: Callable[..., dict[str, Any]]


DIALECTS: Final = {
    "/v1/chat/completions": Dialect(ChunkRenderer, error_body),
    "/v1/messages": Dialect(MessagesRenderer, messages.error_body),
    "/v1/responses": Dialect(ResponsesRenderer, error_body),
}


class Simulator:
    """The provider in this process: ``async with Simulator() as sim: sim.base_url``.

    Args:
        port: on 127.0.0.1; 0 picks a free one.
        seed: mixed into the text of answers whose request names none.
        first: the number in its first answer's id; ids of providers that share a log must differ, as real ones do.
        traits: how it answers what is neither a preset nor scripted, whatever the model is called; None: 404.

    """

    def __init__(
        self,
        port: int = 0,
        *,
        seed: int = 0,
        host: str = "127.0.0.1",
        first: int = 0,
        traits: Traits | None = None,
    ) -> None:
        self.host, self.port, self._seed, self._traits = host, port, seed, traits
        self._drawn = 0
        self.requests: deque[SeenRequest] = deque(maxlen=REMEMBERED_MAX)
        self._seen_count = first
        self._calls: OrderedDict[str, int] = OrderedDict()  # simulate_id → calls so far
        self._stopping = False
        self._runner: web.AppRunner | None = None

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as ``base_url``."""
        return f"http://{self.host}:{self.port}/v1"

    def release(self) -> None:
        """End the long silences (over a second) of what was asked up to now: a test has seen what it waited for."""
        for seen in self.requests:
            seen.released.set()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=REQUEST_BYTES_MAX)
        for path in DIALECTS:
            app.router.add_post(path, self._call)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/_sim/requests", self._seen)
        app.router.add_delete("/_sim/requests", self._forget)
        # handler_cancellation: a client that leaves cancels its handler, so that silence is interrupted as well.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self.host, self.port, backlog=1024).start()
        except OSError:
            await self._runner.cleanup()
            raise
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping = True
        if self._runner is not None:
            await self._runner.cleanup()

    async def _call(self, request: web.Request) -> web.StreamResponse:
        dialect = DIALECTS[request.path]
        try:
            body = orjson.loads(await request.read())
            if not isinstance(body, dict):
                raise BadScript("the body is a JSON object")
            options = options_of(body, self._nth_call(body), self._next_drawn)
        except UnknownModel as unknown:
            return _refusal(dialect, 404, message=f"The model `{unknown}` does not exist")
        except ValueError as error:  # no JSON, or a script that cannot be used
            return _refusal(dialect, 400, message=str(error))
        seen = self._remember(request, body, options)
        try:
            return await self._answer(request, dialect, body, options, seen)
        except (asyncio.CancelledError, ConnectionError):
            seen.aborted_by_client = not self._stopping
            seen.end = "stopped" if self._stopping else "aborted"
            raise
        finally:
            seen.finished_s = time.monotonic()

    async def _answer(
        self,
        request: web.Request,
        dialect: Dialect,
        body: dict[str, Any],
        options: SimulatorOptions,
        seen: SeenRequest,
    ) -> web.StreamResponse:
        if options.silent:
            await asyncio.Event().wait()
        if options.status is not None:
            seen.end = "error"
            return _refusal(dialect, options.status, options)
        asked = body.get("stream_options")
        usage_asked = isinstance(asked, dict) and bool(asked.get("include_usage"))
        renderer = dialect.renderer(
            answer_id=f"{dialect.renderer.prefix}sim-{seen.index:06d}",
            created_s=int(time.time()),
            model=seen.model,
            options=options,
            prompt_tokens=prompt_tokens_of(body),
            usage_asked=usage_asked,
        )
        script = steps(options, seed_of(options, body, self._seed), report_usage=usage_asked)
        if not seen.stream:
            return await _play_whole(request, dialect, script, renderer, options, seen)
        return await _play_stream(request, script, renderer, options, seen)

    def _next_drawn(self) -> SimulatorOptions | None:
        """The next answer by this provider's traits; None where it has none."""
        if self._traits is None:
            return None
        self._drawn += 1
        return draw(self._traits, self._seed, self._drawn - 1)

    def _nth_call(self, body: dict[str, Any]) -> int:
        """How many calls of this request's script came before."""
        script_id = body.get("simulate_id")
        if not isinstance(script_id, str):
            return 0
        before = self._calls.pop(script_id, 0)
        self._calls[script_id] = before + 1
        if len(self._calls) > SCRIPTS_MAX:
            self._calls.popitem(last=False)
        return before

    def _remember(self, request: web.Request, body: dict[str, Any], options: SimulatorOptions) -> SeenRequest:
        headers = {
            name.lower(): value for name, value in request.headers.items() if name.lower() not in _SECRETS
        }
        seen = SeenRequest(
            index=self._seen_count,
            model=str(body.get("model", "")),
            stream=bool(body.get("stream")),
            tag=options.tag,
            headers=headers,
            started_s=time.monotonic(),
        )
        self._seen_count += 1
        self.requests.append(seen)
        return seen

    async def _models(self, _: web.Request) -> web.Response:
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "simulator"} for name in PRESETS]
        return _json({"object": "list", "data": models})

    async def _health(self, _: web.Request) -> web.Response:
        return _json({"status": "ok"})

    async def _seen(self, _: web.Request) -> web.Response:
        return _json([seen.as_json() for seen in self.requests])

    async def _forget(self, _: web.Request) -> web.Response:
        self.requests.clear()
        return _json([])


async def _play_stream(
    request: web.Request,
    script: Iterator[Step],
    renderer: Renderer,
    options: SimulatorOptions,
    seen: SeenRequest,
) -> web.StreamResponse:
    loop = asyncio.get_running_loop()
    response = web.StreamResponse(headers=STREAM_HEADERS)
    due_s = loop.time()
    await response.prepare(request)
    for step in script:
        if step.delay_ms >= 1000 * LONG_S:
            due_s = max(due_s, loop.time())
        due_s += step.delay_ms / 1000
        wait_s = due_s - loop.time()
        if wait_s > 0:
            await seen.wait(wait_s)
        if step.kind in {"cut", "reset", "hang"}:
            await _end_badly(request, step.kind, seen)
            return response
        await response.write(renderer.render(step, time.monotonic_ns() if options.stamp else None))
        seen.chunks_sent += 1
        seen.end = step.kind
    await response.write_eof()
    seen.end = "error" if seen.end == "error" else "done"
    return response


async def _play_whole(
    request: web.Request,
    dialect: Dialect,
    script: Iterator[Step],
    renderer: Renderer,
    options: SimulatorOptions,
    seen: SeenRequest,
) -> web.StreamResponse:
    """The same times and ends for a call that does not stream: it waits for all of it, then answers once."""
    played = list(script)
    await asyncio.sleep(sum(step.delay_ms for step in played) / 1000)
    last = played[-1].kind
    if last == "error":
        seen.end = "error"
        return _refusal(dialect, 500, options)
    if last in {"cut", "reset", "hang"}:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(orjson.dumps(renderer.whole(played))[:-1])
        await _end_badly(request, last, seen)
        return response
    seen.chunks_sent, seen.end = 1, "done"
    return _json(renderer.whole(played))


async def _end_badly(request: web.Request, how: str, seen: SeenRequest) -> None:
    """Leave the body without its end mark: silence, FIN, or RST."""
    if how == "hang":
        await asyncio.Event().wait()
    transport = request.transport
    if transport is None:
        raise ConnectionResetError("the client left first")
    seen.end = how
    if how == "cut":
        transport.close()
        return
    await asyncio.sleep(RESET_DELAY_S)
    reset_transport(transport)


def _refusal(
    dialect: Dialect, status: int, options: SimulatorOptions | None = None, message: str | None = None
) -> web.Response:
    headers = {}
    if options is not None and options.retry_after_s is not None:
        headers["Retry-After"] = str(options.retry_after_s)
    return _json(dialect.error_body(status, options, message), status=status, headers=headers)


def _json(value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        body=orjson.dumps(value), status=status, headers=headers, content_type="application/json"
    )
