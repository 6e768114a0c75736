"""What a call asks of the runtime, and what its key allows: read once, before the generation begins.

=============================  =====================================================================================
``X-Tokentrail-Hold-Ms``       hold content back so long after the first of it, so that another attempt may still win
``X-Tokentrail-On-Stall``      ``restart`` or ``continue`` when the provider falls silent after content
``X-Tokentrail-On-Break``      the same when its stream breaks after content
=============================  =====================================================================================

What may be done before anything was delivered (``hedge``, ``shrink``, ``repair``) is the key's to allow. Before:
``routes``. After: ``driver``.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from edge.dialects import BadRequest, ClientRequest
from edge.policy.hedging import NO_HEDGE, HedgeRules
from schemas.settings import ApiKey, Settings

RESTART, CONTINUE = "restart", "continue"
_COUNT = re.compile(r"[0-9]{1,9}", re.ASCII)


class Wishes(NamedTuple):
    """Of one call. ``hold_us``: 0 gives content on as it comes."""

    hold_us: int = 0
    on_stall: str | None = None
    on_break: str | None = None
    hedge: HedgeRules = NO_HEDGE
    shrink: bool = False
    repair: bool = False


NO_WISHES = Wishes()


def wishes_of(
    headers: Mapping[str, str], caller: ApiKey, request: ClientRequest, settings: Settings
) -> Wishes:
    """Read a call's wishes; raises BadRequest for one that cannot be obeyed."""
    return Wishes(
        hold_us=_hold_us(headers, settings.hedge.hold_ms_max),
        on_stall=_what_next(headers, "x-tokentrail-on-stall"),
        on_break=_what_next(headers, "x-tokentrail-on-break"),
        hedge=hedge_rules(caller, request.model, settings),
        shrink="shrink" in caller.allow,
        repair="repair" in caller.allow,
    )


def _hold_us(headers: Mapping[str, str], most_ms: int) -> int:
    text = headers.get("x-tokentrail-hold-ms")
    if text is None:
        return 0
    if not _COUNT.fullmatch(text):
        raise BadRequest("X-Tokentrail-Hold-Ms must be a number of milliseconds")
    return min(int(text), most_ms) * 1000


def _what_next(headers: Mapping[str, str], name: str) -> str | None:
    word = headers.get(name)
    if word not in (None, RESTART, CONTINUE):
        raise BadRequest(f"{name} must be restart or continue")
    return word


def hedge_rules(caller: ApiKey, model: str, settings: Settings) -> HedgeRules:
    """Which hedges a call may have: by its key or its model, at the settings' times."""
    rules = settings.hedge
    if not ("hedge" in caller.allow or "*" in rules.models or model in rules.models):
        return NO_HEDGE
    return HedgeRules(
        after_us=None if rules.after_s is None else int(rules.after_s * 1_000_000),
        stall_us=None if rules.stall_after_s is None else int(rules.stall_after_s * 1_000_000),
        in_flight_max=rules.max_in_flight,
        quantile=rules.quantile,
    )
