"""The errors of the embedded warehouse: what a client is told (`QueryError`) and what an operator is told (`StartError`).

Codes and names are ClickHouse's own, so that a client written for a server decides the same way. No I/O here.
"""

from http import HTTPStatus

UNKNOWN_TABLE = 60
SYNTAX_ERROR = 62
CANNOT_DECOMPRESS = 271
SUPPORT_IS_DISABLED = 344
SESSION_NOT_FOUND = 372
SESSION_IS_LOCKED = 373
BAD_ARGUMENTS = 36
QUERY_IS_TOO_LARGE = 223
READONLY = 164
ACCESS_DENIED = 497
AUTHENTICATION_FAILED = 516
UNKNOWN_FORMAT = 73
STD_EXCEPTION = 1001

_NAMES = {
    SYNTAX_ERROR: "SYNTAX_ERROR",
    CANNOT_DECOMPRESS: "CANNOT_DECOMPRESS",
    SUPPORT_IS_DISABLED: "SUPPORT_IS_DISABLED",
    SESSION_NOT_FOUND: "SESSION_NOT_FOUND",
    SESSION_IS_LOCKED: "SESSION_IS_LOCKED",
    BAD_ARGUMENTS: "BAD_ARGUMENTS",
    QUERY_IS_TOO_LARGE: "QUERY_IS_TOO_LARGE",
    READONLY: "READONLY",
    ACCESS_DENIED: "ACCESS_DENIED",
    AUTHENTICATION_FAILED: "AUTHENTICATION_FAILED",
    UNKNOWN_FORMAT: "UNKNOWN_FORMAT",
    STD_EXCEPTION: "STD_EXCEPTION",
}

# What ClickHouse's HTTP handler answers for a code; every other code is a 500.
_STATUSES = {
    **dict.fromkeys((6, 27, 36, 38, 41, 43, 53, 62, 69, 72, 117, 321, 427, 457), HTTPStatus.BAD_REQUEST),
    **dict.fromkeys((46, 47, 50, 56, 60, 73, 75, 78, 81, 115, 183, 336), HTTPStatus.NOT_FOUND),
    **dict.fromkeys((192, 193, ACCESS_DENIED, AUTHENTICATION_FAILED), HTTPStatus.FORBIDDEN),
    48: HTTPStatus.NOT_IMPLEMENTED,
    159: HTTPStatus.REQUEST_TIMEOUT,
    209: HTTPStatus.SERVICE_UNAVAILABLE,
    QUERY_IS_TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    439: HTTPStatus.SERVICE_UNAVAILABLE,
}


class QueryError(Exception):
    """A request that failed, as a ClickHouse client wants to hear it: ``code`` and ``Code: N. DB::Exception: …``."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text

    @classmethod
    def refusal(cls, code: int, reason: str) -> "QueryError":
        """Return an error of ours in the words of the engine."""
        return cls(code, f"Code: {code}. DB::Exception: {reason} ({_NAMES[code]})")

    @property
    def status(self) -> HTTPStatus:
        """The HTTP status that ClickHouse answers for this code."""
        return _STATUSES.get(self.code, HTTPStatus.INTERNAL_SERVER_ERROR)


class StartError(Exception):
    """The process cannot start; the message says what to do."""

    exit_code = 2


class DirectoryBusyError(StartError):
    """Another process holds the data directory."""

    exit_code = 3


class PortBusyError(StartError):
    """Another process listens on the port."""

    exit_code = 4
