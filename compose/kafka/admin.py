"""Questions and orders to a cluster: topics, their settings, their leaders, the states of groups.

Invariants: nothing is created by asking (metadata is read without names, so that no broker makes a topic on demand);
every wait has a deadline. Before this file: ``compose.topics`` and ``compose.doctor``, which decide. After it: the
broker.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError as VendorError
from aiokafka.errors import TopicAlreadyExistsError, for_code
from aiokafka.protocol.admin import DescribeGroupsRequest

from compose.kafka.errors import KafkaError, unreachable

REQUEST_TIMEOUT_MS = 10_000
"""Longer than the longest leaderless window of a tuned cluster (3-4 s)."""
CONFIG_PAGE = 50
"""Topics per describe request: far below any broker's request limit."""
_SET_ON_TOPIC = 1
_POLL_S = 0.05


class LiveTopic(NamedTuple):
    """A topic as the cluster has it. ``effective``: every setting; ``own``: the names set on the topic itself."""

    name: str
    partitions: int
    replication: int
    effective: Mapping[str, str]
    own: frozenset[str]


class Group(NamedTuple):
    """A consumer group: its state, and the ids that the broker gave to its members."""

    state: str
    members: frozenset[str]


@dataclass(frozen=True, slots=True)
class NewTopicSpec:
    """A topic to create."""

    name: str
    partitions: int
    replication: int
    configs: Mapping[str, str]


class _DescribeGroups(DescribeGroupsRequest):  # type: ignore[misc]
    """Version 2 at most: aiokafka 0.14 reads the answer to version 3 by the schema of version 2, and fails."""

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> Any:
        return super().prepare({**versions, self.API_KEY: (0, 2)})


@asynccontextmanager
async def admin(bootstrap_servers: str) -> AsyncIterator["Admin"]:
    """An ``Admin`` on a started client. Raises KafkaError where nobody answers."""
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers, request_timeout_ms=REQUEST_TIMEOUT_MS)
    try:
        await client.start()
    except BaseException as error:
        await client.close()
        if isinstance(error, VendorError | OSError):
            raise unreachable(bootstrap_servers, error) from error
        raise
    try:
        yield Admin(client, bootstrap_servers)
    except VendorError as error:
        raise KafkaError(f"Kafka at {bootstrap_servers} refused: {error!r}") from error
    finally:
        await client.close()


class Admin:
    """Questions and orders to the cluster."""

    def __init__(self, client: Any, bootstrap_servers: str) -> None:
        self._client = client
        self._bootstrap_servers = bootstrap_servers

    async def broker_count(self) -> int:
        """How many brokers serve now."""
        return len((await self._client.describe_cluster())["brokers"])

    async def topics(self, names: Iterable[str]) -> dict[str, LiveTopic]:
        """Those of the named topics that exist, with every setting."""
        wanted = set(names)
        shapes = {
            found["topic"]: found["partitions"]
            for found in await self._client.describe_topics()
            if found["topic"] in wanted
        }
        settings = await self._settings(sorted(shapes))
        return {
            name: LiveTopic(
                name,
                len(partitions),
                min((len(partition["replicas"]) for partition in partitions), default=0),
                settings[name][0],
                settings[name][1],
            )
            for name, partitions in shapes.items()
        }

    async def partition_count(self, name: str) -> int:
        """How many partitions the topic has; KafkaError where there is no such topic."""
        for found in await self._client.describe_topics():
            if found["topic"] == name:
                return len(found["partitions"])
        raise KafkaError(f"There is no topic {name}. Create it with `tokentrail topics apply`.")

    async def create(self, specs: Sequence[NewTopicSpec]) -> None:
        """Create topics and wait until every partition has a leader. A topic that exists by now is not an error."""
        if not specs:
            return
        answer = await self._client.create_topics(
            [NewTopic(s.name, s.partitions, s.replication, topic_configs=dict(s.configs)) for s in specs]
        )
        for name, code, *message in answer.topic_errors:  # it does not raise: the codes stand in the answer
            if code and for_code(code) is not TopicAlreadyExistsError:
                said = message[0] if message and message[0] else for_code(code).__name__
                raise KafkaError(f"Kafka did not create {name}: {said}")
        await self.wait_leaders([s.name for s in specs])

    async def alter(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Set the topics' settings. They replace the old ones: always the whole set."""
        if not configs:
            return
        resources = [
            ConfigResource(ConfigResourceType.TOPIC, name, dict(wanted)) for name, wanted in configs.items()
        ]
        for answer in await self._client.alter_configs(resources):
            for code, message, _, name in answer.resources:
                if code:
                    raise KafkaError(f"Kafka did not change {name}: {message or for_code(code).__name__}")

    async def wait_leaders(self, names: Sequence[str], timeout_s: float = 30) -> None:
        """Return when every partition of these topics has a leader; before that a producer would meet errors."""
        wanted = set(names)
        deadline = time.monotonic() + timeout_s
        while True:
            ready = {
                found["topic"]
                for found in await self._client.describe_topics()
                if found["partitions"] and all(p["leader"] >= 0 for p in found["partitions"])
            }
            if wanted <= ready:
                return
            if time.monotonic() > deadline:
                raise KafkaError(
                    f"These topics have partitions without a leader after {timeout_s:.0f} s: "
                    f"{', '.join(sorted(wanted - ready))}. See the brokers' logs."
                )
            await asyncio.sleep(_POLL_S)

    async def groups(self, groups: Iterable[str]) -> dict[str, Group]:
        """Consumer group → its state (Stable, Empty, Dead …) and who is in it."""
        found: dict[str, Group] = {}
        for group in groups:
            coordinator = await self._client.find_coordinator(group)
            answer = await self._client._send_request(_DescribeGroups([group]), coordinator)  # noqa: SLF001
            found |= {
                name: Group(str(state), frozenset(member[0] for member in members))
                for _, name, state, _, _, members, *_ in answer.groups
            }
        return found

    async def _settings(self, names: Sequence[str]) -> dict[str, tuple[dict[str, str], frozenset[str]]]:
        found: dict[str, tuple[dict[str, str], frozenset[str]]] = {}
        for start in range(0, len(names), CONFIG_PAGE):
            page = [
                ConfigResource(ConfigResourceType.TOPIC, name) for name in names[start : start + CONFIG_PAGE]
            ]
            for answer in await self._client.describe_configs(page):
                for code, message, _, name, rows in answer.resources:
                    if code:
                        raise KafkaError(f"Kafka does not show the settings of {name}: {message}")
                    effective = {row[0]: row[1] for row in rows}
                    found[name] = (effective, frozenset(row[0] for row in rows if row[3] == _SET_ON_TOPIC))
        return found
