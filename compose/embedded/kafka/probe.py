"""Ask a broker who it is: one Metadata request, made by hand, so that readiness needs no Kafka client.

An open port alone proves little: it can belong to somebody else. The answer names the cluster and the brokers which
the controller has let in, so that "ready" means: this is our cluster, and these brokers serve.
Source of the layout: Kafka's protocol guide, Metadata version 4, request header version 1.
Before this file: `node.py` started the broker. After it: `cluster.py` waits until every node answers as expected.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

_METADATA_KEY, _METADATA_VERSION = 3, 4
_CORRELATION_ID = 1
_MAX_ANSWER_BYTES = 1 << 20  # no topics are asked for: a real answer has some hundred bytes


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What one broker says: the cluster's id and the ids of the brokers that serve."""

    cluster_id: str | None
    node_ids: frozenset[int]


def ask(host: str, port: int, timeout_s: float) -> ClusterView | None:
    """Ask the broker at this address; None if nothing there answers as a Kafka broker within `timeout_s`."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            if connection.getsockname() == connection.getpeername():
                return None  # connected to ourselves: nobody listens there
            connection.sendall(encode_request())
            size = int.from_bytes(_receive(connection, 4), "big")
            if not 0 < size <= _MAX_ANSWER_BYTES:
                return None
            return decode_answer(_receive(connection, size))
    except (OSError, EOFError, struct.error, UnicodeDecodeError):
        return None


def encode_request() -> bytes:
    """Give the request's bytes: no topics, no creation of topics."""
    client_id = b"tokentrail"
    header = (
        struct.pack(">hhih", _METADATA_KEY, _METADATA_VERSION, _CORRELATION_ID, len(client_id)) + client_id
    )
    body = struct.pack(">ib", 0, 0)
    return struct.pack(">i", len(header) + len(body)) + header + body


def decode_answer(answer: bytes) -> ClusterView:
    """Read the answer's bytes (without the leading size). Raises struct.error or UnicodeDecodeError."""
    at = 4 + 4  # correlation id, throttle time
    (count,) = struct.unpack_from(">i", answer, at)
    at += 4
    node_ids = set()
    for _ in range(count):
        (node_id,) = struct.unpack_from(">i", answer, at)
        _, at = _string(answer, at + 4)  # host
        _, at = _string(answer, at + 4)  # port, then rack
        node_ids.add(node_id)
    cluster_id, _ = _string(answer, at)
    return ClusterView(cluster_id, frozenset(node_ids))


def _string(data: bytes, at: int) -> tuple[str | None, int]:
    (length,) = struct.unpack_from(">h", data, at)
    at += 2
    if length < 0:
        return None, at
    if at + length > len(data):
        raise struct.error("string beyond the end")
    return data[at : at + length].decode(), at + length


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
