"""tokentrail_client: LLM streams that survive any cut, under the unmodified SDKs or as plain iterators.

``http_client`` and ``async_http_client`` go under an SDK; ``Client`` and ``AsyncClient`` give iterators. Reading order:
``states`` the six states as a table · ``frames`` bytes to whole frames · ``endings`` what ends a stream · ``advice`` the
retry matrix · ``effects`` what is asked of the outside · ``call``, ``reading`` and ``standing`` what a session is made of ·
``checksums`` and ``acks`` what was received · ``course`` the whole of a session, as a pure generator · ``tables`` and
``store`` SQLite, ``off_loop`` beside an event loop · ``vendor`` the HTTP library · ``shell`` and ``async_shell`` do what a
course asks · ``keys``, ``recognised``, ``transport`` and ``http_clients`` under the SDKs · ``items``, ``sessions`` and
``clients`` the iterators.
"""

from tokentrail_client.call import Times
from tokentrail_client.clients import AsyncClient, Client
from tokentrail_client.http_clients import async_http_client, http_client
from tokentrail_client.items import Citation, End, GenerationFailed, Item, NotFinished, Text, ToolCall
from tokentrail_client.sessions import AsyncSession, Session, SessionLost
from tokentrail_client.states import Change, State
from tokentrail_client.store import Store, StoreError
from tokentrail_client.tables import Stored
from tokentrail_client.transport import AsyncTransport, Transport

__all__ = [
    "AsyncClient",
    "AsyncSession",
    "AsyncTransport",
    "Change",
    "Citation",
    "Client",
    "End",
    "GenerationFailed",
    "Item",
    "NotFinished",
    "Session",
    "SessionLost",
    "State",
    "Store",
    "StoreError",
    "Stored",
    "Text",
    "Times",
    "ToolCall",
    "Transport",
    "async_http_client",
    "http_client",
]
