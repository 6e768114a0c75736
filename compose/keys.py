"""API keys of running edges: created, rotated and revoked on the config topic, which every edge follows.

A key is its id. A rotation gives it a new text and lets the old ones run out, so streams and cursors of the key stay
good; a revocation takes every text away. The topic holds hashes only; the clear text is told once and kept nowhere.
``rotated`` and the like are pure. Before this file: ``commands.keys``. After it: ``kafka``, the edges.
"""

import hashlib
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from compose.kafka import Record, publish, read_whole
from compose.topics import announce_schemas
from schemas.codec import Codec
from schemas.errors import Poison, SchemaUnknown, TokentrailError
from schemas.records import ConfigKind, ConfigRecord, KeyEntry, KeyHash
from schemas.settings import ApiKey
from schemas.topics import CONFIG, SCHEMAS

TEXT_BYTES = 32
PREFIX = "tt-"


class KeyRefused(TokentrailError):
    """That cannot be done to this key."""


class Held(NamedTuple):
    """A key as it stands. ``where``: settings, or topic, which stands before them."""

    id: str
    entry: KeyEntry
    where: str

    def texts(self, now_us: int) -> list[KeyHash]:
        """The texts that are good now."""
        return [text for text in self.entry.hashes if text.until_us is None or text.until_us > now_us]


def new_text() -> str:
    """A key's clear text."""
    return PREFIX + secrets.token_urlsafe(TEXT_BYTES)


def hash_of(text: str) -> str:
    """What is kept of it."""
    return hashlib.sha256(text.encode()).hexdigest()


def of_settings(keys: Iterable[ApiKey]) -> dict[str, Held]:
    """The keys of a configuration, by id."""
    held: dict[str, Held] = {}
    for key in keys:
        before = held[key.id].entry.hashes if key.id in held else []
        entry = KeyEntry(
            tenant=key.tenant,
            label=key.name,
            roles=list(key.roles),
            hashes=[*before, KeyHash(sha256=key.sha256)],
        )
        held[key.id] = Held(key.id, entry, "settings")
    return held


def rotated(entry: KeyEntry, text: str, now_us: int, overlap_us: int) -> KeyEntry:
    """The key with a new text; the old ones are good for the overlap at the most."""
    until_us = now_us + overlap_us
    running_out = [
        KeyHash(sha256=old.sha256, until_us=min(until_us, old.until_us or until_us))
        for old in entry.hashes
        if old.until_us is None or old.until_us > now_us
    ]
    kept = running_out if overlap_us else []
    return msgspec.structs.replace(entry, hashes=[KeyHash(sha256=hash_of(text)), *kept])


def revoked(entry: KeyEntry) -> KeyEntry:
    """The key without any text."""
    return msgspec.structs.replace(entry, hashes=[])


class KeyBook:
    """The keys of a cluster, beside those of a configuration."""

    def __init__(self, bootstrap_servers: str, configured: Sequence[ApiKey]) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._configured = configured

    async def held(self) -> Mapping[str, Held]:
        """All keys, by id. Raises KafkaError."""
        held = of_settings(self._configured)
        for record in await config_records(self._bootstrap_servers):
            if record.kind is ConfigKind.API_KEY and record.api_key is not None:
                held[record.name] = Held(record.name, record.api_key, "topic")
        return held

    async def create(self, key_id: str, tenant: str, label: str, roles: Sequence[str]) -> str:
        """A new key; its clear text. Raises KeyRefused where there is such a key."""
        if key_id in await self.held():
            raise KeyRefused(
                f"There is a key {key_id!r} already. `tokentrail keys rotate {key_id}` gives it a new text."
            )
        text = new_text()
        hashes = [KeyHash(sha256=hash_of(text))]
        await self._say(key_id, KeyEntry(tenant=tenant, label=label, roles=list(roles), hashes=hashes))
        return text

    async def rotate(self, key_id: str, overlap_s: int) -> str:
        """A new text for a key; the clear text. Raises KeyRefused for a revoked key, and where there is none."""
        entry = (await self._known(key_id)).entry
        if not entry.hashes:
            raise KeyRefused(
                f"The key {key_id!r} is revoked. Create another one: its streams stay its tenant's."
            )
        text = new_text()
        await self._say(key_id, rotated(entry, text, time.time_ns() // 1000, overlap_s * 1_000_000))
        return text

    async def revoke(self, key_id: str) -> None:
        """Close a key; again is the same. Raises KeyRefused where there is none."""
        await self._say(key_id, revoked((await self._known(key_id)).entry))

    async def _known(self, key_id: str) -> Held:
        found = (await self.held()).get(key_id)
        if found is None:
            raise KeyRefused(
                f"There is no key {key_id!r}. `tokentrail keys list` shows those that there are."
            )
        return found

    async def _say(self, key_id: str, entry: KeyEntry) -> None:
        wall_us = time.time_ns() // 1000
        record = ConfigRecord(kind=ConfigKind.API_KEY, name=key_id, wall_us=wall_us, api_key=entry)
        await say(self._bootstrap_servers, record)


async def say(bootstrap_servers: str, record: ConfigRecord) -> None:
    """Put a record on the config topic, its schema before it. Raises KafkaError."""
    await announce_schemas(bootstrap_servers)
    await publish(bootstrap_servers, CONFIG.name, [(record.key, Codec().encode(record))])


async def config_records(bootstrap_servers: str) -> list[ConfigRecord]:
    """Every record of the config topic that can be read, in order; the last of a name stands. Raises KafkaError."""
    codec = Codec()
    for announced in await read_whole(bootstrap_servers, SCHEMAS.name):
        if announced.value is not None:
            codec.learn(announced.value.decode())
    records: list[Record] = await read_whole(bootstrap_servers, CONFIG.name)
    found = []
    for record in records:
        try:
            found.append(codec.decode(record.value, ConfigRecord))
        except (Poison, SchemaUnknown):
            continue  # the edges pass it over too, and say so; a stranger's record closes no key
    return found
