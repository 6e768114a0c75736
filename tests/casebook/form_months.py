"""Form ``months``: the month of an instant, per tenant zone, whatever the host's zone is."""

import os
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from schemas.money import month_of

from .values import instant_us


def unsupported(vector: dict[str, Any]) -> str | None:
    """Everything of this form is played."""
    return None


def run(vector: dict[str, Any], tmp_path: object) -> None:
    """Each event is in one month of each tenant, the same on a host in any zone."""
    instants = {event["id"]: instant_us(event["at"]) for event in vector["events"]}
    for tenant in vector["tenants"]:
        offset = timedelta(minutes=tenant["offset_min"])
        for instant in instants.values():
            moment = datetime.fromtimestamp(instant / 1e6, UTC)
            assert moment.astimezone(ZoneInfo(tenant["tz"])).utcoffset() == offset
    for host_zone in (vector["host_tz"], "UTC"):
        with _host_in(host_zone):
            for zone, wanted in vector["expect"]["months"].items():
                assert {name: month_of(instant, zone) for name, instant in instants.items()} == wanted


@contextmanager
def _host_in(zone: str):
    """The C library's local zone, for as long as the block runs."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = zone
    time.tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()
