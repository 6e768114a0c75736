"""What a new generation is, before anything of it is in the log: where it may be served, its id, its message_start.

Reads the call's headers, and refuses what cannot be served; draws the id so that its partition is one of this edge's
own: fewer, fuller produce requests. Nothing here waits or writes. Before: ``routes``. After: ``service`` appends it.
"""

import re
from collections.abc import Callable, Mapping

from edge.clock import Clock
from edge.dialects import BadRequest, ClientRequest
from edge.driving.wishes import wishes_of
from edge.generation import Generation, Identity
from edge.policy.routes import Target, in_order
from schemas.events import MessageStart, RuntimeSnapshot
from schemas.ids import uuid7
from schemas.partition import partition_of, partitions_behind
from schemas.settings import ApiKey, Route, Settings

ID_BITS = 74
LAST_DIGITS = 4
"""Of an id: one word of the hash that says its partition."""
MODEL_CHARS_MAX = 512
"""A name stands on every derived record of its generation, and those are not cut into parts."""
NAME_CHARS_MAX = 512
"""The same of what a caller's headers name; a longer one echoed in a head is also more than many clients read."""
_MILLISECONDS = re.compile(r"0*[1-9][0-9]{0,11}", re.ASCII)  # up to 31 years
_POLICIES = ("grace", "continue", "cancel")


class Opening:
    """Makes the generations of one edge.

    Args:
        settings: routes, policies, and how many partitions are this edge's own.
        clock: the process's.
        partitions: of the events topic.
        secret_of: the signing secret of a generation, by its id.

    """

    def __init__(
        self, settings: Settings, clock: Clock, partitions: int, secret_of: Callable[[str], bytes]
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._partitions = partitions
        self._secret_of = secret_of
        self._own = _own_partitions(settings, partitions)

    def targets(self, model: str, dialect: str) -> list[Target]:
        """Where a model is served in a dialect; BadRequest for one that is not routed here, or in another dialect."""
        if len(model) > MODEL_CHARS_MAX:
            raise BadRequest(f"`model` has more than {MODEL_CHARS_MAX} characters")
        providers = self._settings.providers
        routes: tuple[Route, ...] = self._settings.models.get(model) or self._settings.default_route
        ordered = in_order(routes, self._clock.jitter)
        spoken = [Target(route, providers[route.provider]) for route in ordered]
        served = [target for target in spoken if target.provider.dialect == dialect]
        if not spoken:
            raise BadRequest(f"model {model!r} is not served here; GET /v1/models lists what is")
        if not served:
            other = " or ".join(sorted({target.provider.dialect for target in spoken}))
            raise BadRequest(f"model {model!r} is served in the dialect {other} here, not in {dialect}")
        return served

    def generation(
        self,
        caller: ApiKey,
        dialect: str,
        request: ClientRequest,
        targets: list[Target],
        headers: Mapping[str, str],
        key_hash: str | None = None,
        waited_us: int | None = None,
    ) -> Generation:
        """The memory of a generation that begins now; BadRequest for a header that cannot be obeyed.

        ``waited_us``: how long ago its call was accepted, if it had to wait for its admission.
        """
        wall_us = self._clock.wall_us()
        accepted_us = self._clock.now_us() - (waited_us or 0)
        start = self._message_start(request, targets, headers, key_hash)
        usual = "continue" if request.background else self._settings.disconnect.policy
        policy = headers.get("x-tokentrail-on-disconnect") or usual
        if policy not in _POLICIES:
            raise BadRequest("X-Tokentrail-On-Disconnect must be grace, continue or cancel")
        wishes = wishes_of(headers, caller, request, self._settings)
        generation_id = self._new_id(wall_us)
        partition = partition_of(generation_id.encode(), self._partitions)
        secret = self._secret_of(generation_id)
        identity = Identity(generation_id, caller.tenant, caller.id, dialect, partition, secret, start)
        generation = Generation(identity, accepted_us, wall_us - (waited_us or 0), policy)
        generation.wishes, generation.admission_us = wishes, waited_us
        return generation

    def _new_id(self, wall_us: int) -> str:
        """Drawn once; then its last digits are drawn until they lead into an own partition."""
        drawn, random_bits = uuid7(wall_us // 1000, self._clock.random_bits(ID_BITS)), self._clock.random_bits
        head, last = drawn[:-LAST_DIGITS], drawn[-LAST_DIGITS:]
        partition_with = partitions_behind(head.encode(), self._partitions)
        while partition_with(last.encode()) not in self._own:
            last = f"{random_bits(4 * LAST_DIGITS):0{LAST_DIGITS}x}"
        return head + last

    def _message_start(
        self,
        request: ClientRequest,
        targets: list[Target],
        headers: Mapping[str, str],
        key_hash: str | None,
    ) -> MessageStart:
        route = "+".join(f"{t.route.provider}/{t.route.model or request.model}" for t in targets)
        return MessageStart(
            request_id=named(headers, "x-request-id")
            or uuid7(self._clock.wall_us() // 1000, self._clock.random_bits(ID_BITS)),
            model=request.model,
            model_route=route,
            prompt_hash=request.prompt_hash,
            client_streamed=request.stream,
            previous_generation_id=named(headers, "x-previous-generation-id"),
            lineage_kind=named(headers, "x-lineage-kind"),
            client_id=named(headers, "x-client-id"),
            trace_id=named(headers, "traceparent"),
            priority=named(headers, "x-priority"),
            risk_tier=named(headers, "x-risk-tier"),
            prompt_version=named(headers, "x-prompt-version"),
            request_deadline_ms=positive_ms(headers, "x-deadline-ms"),
            context_ms=positive_ms(headers, "x-context-ms"),
            idempotency_key_hash=key_hash,
            runtime_snapshot=RuntimeSnapshot(
                route=route, sampling=request.sampling, stop_rules=request.stop_rules
            ),
        )


def named(headers: Mapping[str, str], name: str) -> str | None:
    """What a header names; BadRequest for more than anybody would read."""
    text = headers.get(name)
    if text is not None and len(text) > NAME_CHARS_MAX:
        raise BadRequest(f"{name} has more than {NAME_CHARS_MAX} characters")
    return text


def positive_ms(headers: Mapping[str, str], name: str) -> int | None:
    """A header's number of milliseconds; BadRequest for what is none."""
    text = headers.get(name)
    if text is None:
        return None
    if not _MILLISECONDS.fullmatch(text):
        raise BadRequest(f"{name} must be a positive number of milliseconds")
    return int(text)


def _own_partitions(settings: Settings, partitions: int) -> frozenset[int]:
    wanted = settings.log.partitions_per_edge
    if not 0 < wanted < partitions:
        return frozenset(range(partitions))
    first = partition_of(settings.edge.id.encode(), partitions)
    return frozenset((first + i * (partitions // wanted)) % partitions for i in range(wanted))
