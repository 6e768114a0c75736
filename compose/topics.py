"""``topics apply``: make the cluster's topics what ``schemas.topics`` says, and refuse what would lose data.

``plan`` is pure: live topics and wanted ones in, what to create, alter and refuse out. ``apply`` acts on it, in this
order: look, refuse (before anything is touched), create, alter, announce our schemas.

Invariants: a topic is never made to keep less than it does; settings that an operator has put on a topic stay, unless
they lose data; a partition count never changes. Before this file: the CLI and ``supervisor``. After it: ``kafka``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compose.kafka import KafkaError, LiveTopic, NewTopicSpec, admin, publish, read_whole
from schemas.codec import Codec
from schemas.errors import Poison, TokentrailError
from schemas.registry import missing
from schemas.topics import DAY_MS, EVENTS, SCHEMAS, TOPICS, Topic

BILLING_LAG_DAYS = 1
"""How far billing may lie behind before the log has forgotten what it has to price."""
FOR_EVER = -1
"""Kafka's word for no retention limit."""


@dataclass(frozen=True, slots=True)
class Change:
    """One setting of one topic; ``live`` None where it has none."""

    setting: str
    live: str | None
    wanted: str


@dataclass(frozen=True, slots=True)
class Alter:
    """A topic whose settings change. ``configs`` is the whole set, since altering replaces."""

    name: str
    changes: tuple[Change, ...]
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A topic on which tokentrail must not run, why, and the way out."""

    name: str
    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What stands between the cluster and the wanted topics."""

    create: tuple[NewTopicSpec, ...]
    alter: tuple[Alter, ...]
    refuse: tuple[Refusal, ...]

    @property
    def is_clean(self) -> bool:
        """Whether nothing is to be done."""
        return not (self.create or self.alter or self.refuse)


@dataclass(frozen=True, slots=True)
class Applied:
    """What ``apply`` did, as names."""

    created: tuple[str, ...]
    altered: tuple[Alter, ...]
    unchanged: tuple[str, ...]
    schemas_announced: tuple[str, ...]
    brokers: int


class TopicsRefused(TokentrailError):
    """At least one live topic would lose data. Nothing was changed."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        lines = [f"{r.name}: {r.reason}. {r.remedy}" for r in refusals]
        super().__init__("The topics would lose data; nothing was changed.\n" + "\n".join(lines))
        self.refusals = tuple(refusals)


def wanted_topics(window_days: int) -> tuple[Topic, ...]:
    """The topics of the contract; a resume window longer than the default makes events be kept longer."""
    kept_ms = max(EVENTS.retention_ms or 0, needed_retention_ms(window_days))
    return tuple(t._replace(retention_ms=kept_ms) if t.name == EVENTS.name else t for t in TOPICS)


def needed_retention_ms(window_days: int) -> int:
    """How long events must be held: a resume at the window's end, priced by billing at its latest."""
    return (window_days + BILLING_LAG_DAYS) * DAY_MS


def plan(live: Mapping[str, LiveTopic], wanted: Sequence[Topic], *, brokers: int, window_days: int) -> Plan:
    """What to create, alter and refuse, for a cluster of so many serving brokers."""
    create, alter, refuse = [], [], []
    for topic in wanted:
        found = live.get(topic.name)
        if found is None:
            create.append(
                NewTopicSpec(topic.name, topic.partitions, topic.replication(brokers), topic.configs(brokers))
            )
            continue
        refusals = _refusals(found, topic, brokers, window_days)
        refuse += refusals
        if not refusals and (altered := _altered(found, topic, brokers)):
            alter.append(altered)
    return Plan(tuple(create), tuple(alter), tuple(refuse))


async def inspect(bootstrap_servers: str, *, window_days: int) -> Plan:
    """What ``apply`` would do, without doing it."""
    wanted = wanted_topics(window_days)
    async with admin(bootstrap_servers) as cluster:
        live = await cluster.topics(topic.name for topic in wanted)
        return plan(live, wanted, brokers=await cluster.broker_count(), window_days=window_days)


async def apply(bootstrap_servers: str, *, window_days: int) -> Applied:
    """Make the topics right and wait until they can be written to. Raises TopicsRefused or KafkaError."""
    wanted = wanted_topics(window_days)
    names = [topic.name for topic in wanted]
    async with admin(bootstrap_servers) as cluster:
        brokers = await cluster.broker_count()
        todo = plan(await cluster.topics(names), wanted, brokers=brokers, window_days=window_days)
        if todo.refuse:
            raise TopicsRefused(todo.refuse)
        await cluster.create(todo.create)
        await cluster.alter({altered.name: altered.configs for altered in todo.alter})
        await cluster.wait_leaders(names)
        left = plan(await cluster.topics(names), wanted, brokers=brokers, window_days=window_days)
    if (
        not left.is_clean
    ):  # somebody else was first with other settings, or the broker took them and did not keep them
        raise KafkaError(f"The topics are not as wanted after the change: {left}. Run it again.")
    touched = {c.name for c in todo.create} | {a.name for a in todo.alter}
    return Applied(
        tuple(c.name for c in todo.create),
        todo.alter,
        tuple(name for name in names if name not in touched),
        await announce_schemas(bootstrap_servers),
        brokers,
    )


async def announce_schemas(bootstrap_servers: str) -> tuple[str, ...]:
    """Put our schemas on the schemas topic where they are not there yet; the fingerprints that were new."""
    codec, known = Codec(), Codec()
    present = set()
    for record in await read_whole(bootstrap_servers, SCHEMAS.name):
        try:
            present.add(known.learn((record.value or b"").decode()))
        except (Poison, UnicodeDecodeError):
            continue  # a stranger's record does not keep our own schemas from being announced
    new = missing(codec, present)
    if new:
        await publish(
            bootstrap_servers, SCHEMAS.name, [(fp.encode(), text.encode()) for fp, text in new.items()]
        )
    return tuple(new)


def _refusals(live: LiveTopic, topic: Topic, brokers: int, window_days: int) -> list[Refusal]:
    found = []

    def refuse(reason: str, remedy: str) -> None:
        found.append(Refusal(topic.name, reason, remedy))

    def set_to(setting: str, value: str) -> str:
        return (
            f"Correct it: kafka-configs.sh --alter --topic {topic.name} --add-config {setting}={value} "
            "(what is gone already does not come back), then run `tokentrail topics apply` again."
        )

    if live.partitions != topic.partitions:
        refuse(
            f"it has {live.partitions} partitions, not {topic.partitions}: keys would be looked for where they are not",
            "A partition count never changes: give this cluster's topic another name, or use an empty cluster.",
        )
    if live.replication < topic.replication(brokers):
        refuse(
            f"it has {live.replication} replica(s), not {topic.replication(brokers)}: one broker's disk would take "
            "acknowledged records with it",
            "Raise it with kafka-reassign-partitions.sh, then run `tokentrail topics apply` again.",
        )
    if topic.cleanup == "delete" and "compact" in live.effective.get("cleanup.policy", ""):
        refuse(
            "it is compacted: only the last record of each key would survive",
            set_to("cleanup.policy", "delete"),
        )
    if topic.name != EVENTS.name:
        return found
    needed_ms = needed_retention_ms(window_days)
    retention_ms = int(live.effective.get("retention.ms", FOR_EVER))
    if retention_ms != FOR_EVER and retention_ms < needed_ms:
        refuse(
            f"it keeps records for {retention_ms} ms, less than the resume window of {window_days} days and the "
            f"billing lag of {BILLING_LAG_DAYS} day",
            set_to("retention.ms", str(needed_ms)),
        )
    if int(live.effective.get("retention.bytes", FOR_EVER)) != FOR_EVER:
        refuse(
            f"it is cut at {live.effective['retention.bytes']} bytes per partition, whatever the records' age",
            set_to("retention.bytes", str(FOR_EVER)),
        )
    if live.effective.get("unclean.leader.election.enable") == "true":
        refuse(
            "a replica that lacks acknowledged records may become its leader",
            set_to("unclean.leader.election.enable", "false"),
        )
    return found


def _altered(live: LiveTopic, topic: Topic, brokers: int) -> Alter | None:
    # A broker that is away must not make a cluster's topic a single broker's: its replicas say what it was made for
    wanted = topic.configs(max(brokers, live.replication))
    if _keeps_longer(live.effective.get("retention.ms"), wanted.get("retention.ms")):
        wanted["retention.ms"] = live.effective["retention.ms"]
    changes = tuple(
        Change(setting, live.effective.get(setting), value)
        for setting, value in sorted(wanted.items())
        if live.effective.get(setting) != value
    )
    if not changes:
        return None
    kept = {name: live.effective[name] for name in live.own if name in live.effective}
    return Alter(topic.name, changes, kept | wanted)


def _keeps_longer(live_ms: str | None, wanted_ms: str | None) -> bool:
    if live_ms is None or wanted_ms is None:
        return False
    return int(live_ms) == FOR_EVER or int(live_ms) > int(wanted_ms)
