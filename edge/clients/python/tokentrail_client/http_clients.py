"""HTTP clients for the SDKs: what an application builds to go under one. Before: ``transport``. After: ``clients``."""

from collections.abc import Sequence
from typing import Any

from tokentrail_client.call import Times
from tokentrail_client.states import OnState
from tokentrail_client.store import Store
from tokentrail_client.transport import AsyncTransport, Transport
from tokentrail_client.vendor import Flavour, Name


def http_client(
    *,
    store: Store | None = None,
    edges: Sequence[str] = (),
    times: Times | None = None,
    on_state: OnState | None = None,
    cancel_on_close: bool = True,
    transport: Any = None,
    library: Name | None = None,
    **options: Any,
) -> Any:
    """An HTTP client for ``OpenAI(http_client=…)`` or ``Anthropic(http_client=…)``.

    Args:
        store: where positions are kept; nowhere by default.
        edges: addresses of more edges, asked in turn after a cut.
        times: the time-outs.
        on_state: told every move, for a "resuming…" hint.
        cancel_on_close: whether closing a stream before its end cancels its generation.
        transport: what really sends, where the library's own transport is not enough (proxies, certificates).
        library: ``httpx`` for SDKs of before ``httpx2``.
        options: of the library's ``Client``.

    """
    flavour = Flavour(library)
    ours = Transport(
        transport,
        store=store,
        edges=edges,
        times=times,
        on_state=on_state,
        cancel_on_close=cancel_on_close,
        flavour=flavour,
    )
    return flavour.http.Client(transport=ours, **{**flavour.defaults((times or Times()).read_s), **options})


def async_http_client(
    *,
    store: Store | None = None,
    edges: Sequence[str] = (),
    times: Times | None = None,
    on_state: OnState | None = None,
    cancel_on_close: bool = True,
    transport: Any = None,
    library: Name | None = None,
    **options: Any,
) -> Any:
    """An HTTP client for ``AsyncOpenAI(http_client=…)`` or ``AsyncAnthropic(http_client=…)``; see http_client."""
    flavour = Flavour(library)
    ours = AsyncTransport(
        transport,
        store=store,
        edges=edges,
        times=times,
        on_state=on_state,
        cancel_on_close=cancel_on_close,
        flavour=flavour,
    )
    return flavour.http.AsyncClient(
        transport=ours, **{**flavour.defaults((times or Times()).read_s), **options}
    )
