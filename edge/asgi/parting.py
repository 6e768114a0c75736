"""Why a stream ended before its time: one mapping from what the socket says and from what the terminal says.

====================  ================================================================================================
``client_abort``      the client closed its side (FIN), or asked for the end by a cancel call
``network_reset``     the connection broke: RST, or another error of the socket
``timeout``           the client's machine answered nothing any more (``TCP_USER_TIMEOUT``, keepalive), or a time-out of any
                      layer ended the generation
``server_cancel``     we ended it: an operator, a policy, an erasure, a stop of this edge, a log that went away
====================  ================================================================================================

A client that closes while it has bytes unread sends RST and no FIN: that is ``network_reset``, since nothing tells it from a
broken network. A proxy in front says FIN for all of its clients. A failure of the provider is no abort: the client has its
error. Pure, but for the memory of one connection. Before: ``connection`` tells it. After: ``emit``, ``result``.
"""

import errno
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from schemas.events import CancelRequested, LogEvent
from schemas.outcomes import ERRORS

if TYPE_CHECKING:
    import asyncio

CLIENT_ABORT, NETWORK_RESET, SERVER_CANCEL, TIMEOUT = (
    "client_abort",
    "network_reset",
    "server_cancel",
    "timeout",
)
REASONS = (CLIENT_ABORT, NETWORK_RESET, SERVER_CANCEL, TIMEOUT)
_KEY = "tokentrail.parting"
_BY_CLIENTS = ("api", "page")
_OURS = ("edge_lost", "log_unavailable", "erased", "resume_expired", "cancelled")
"""The last one where nobody tells whose cancel it was."""


class Parting:
    """One connection: None while the client is there, else why it is not; the first word stands."""

    __slots__ = ("reason",)

    def __init__(self) -> None:
        self.reason: str | None = None

    def by_client(self) -> None:
        """It closed its side."""
        self.reason = self.reason or CLIENT_ABORT

    def lost(self, error: Exception | None) -> None:
        """The connection is gone; without an error it was closed, by the client unless we did."""
        if error is None:
            self.by_client()
        else:
            silent = isinstance(error, OSError) and error.errno == errno.ETIMEDOUT
            self.reason = self.reason or (
                TIMEOUT if silent or isinstance(error, TimeoutError) else NETWORK_RESET
            )

    def told_in(self, scope: MutableMapping[str, Any]) -> None:
        """Let the applications behind ``scope`` know."""
        scope[_KEY] = self


def parting_of(
    scope: MutableMapping[str, Any], answering: "asyncio.Task[Any]", watching: "asyncio.Task[Any]"
) -> str | None:
    """Why a connection is over whose answer was not; None where the answer was whole.

    ``watching`` waits for the client's leave: where that did not come it was we who ended it. A server that says no more
    than that it came leaves the commonest reason.
    """
    if answering.done():
        failed = answering.cancelled() or answering.exception() is not None
        return SERVER_CANCEL if failed else None
    told = scope.get(_KEY)
    if isinstance(told, Parting) and told.reason is not None:
        return told.reason
    return CLIENT_ABORT if watching.done() else SERVER_CANCEL


def of_terminal(event: LogEvent) -> str | None:
    """Why a stream ended that was read to its terminal; None where it ended in its time, or failed."""
    if event.error is not None:
        return of_code(event.error.code)
    if event.message_end is not None and event.message_end.finish_reason == "cancelled":
        return _of_cancel(event.message_end.cancel)
    return None


def of_code(code: str) -> str | None:
    """The same of an error's code."""
    if code in _OURS:
        return SERVER_CANCEL
    row = ERRORS.get(code)
    return TIMEOUT if row is not None and row.finish_reason == "timeout" else None


def _of_cancel(cancel: CancelRequested | None) -> str:
    if cancel is None or cancel.source not in _BY_CLIENTS or cancel.reason == "policy_violation":
        by_loss = cancel is not None and cancel.reason == "client_disconnect"
        return CLIENT_ABORT if by_loss else SERVER_CANCEL
    return CLIENT_ABORT
