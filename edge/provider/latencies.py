"""How soon providers answer lately: quantiles of the time to the first content, by provider and model.

Sketches of a relative error of 1 % (DDSketch), turned over every few hundred answers so that old ones are forgotten. An
attempt that lost a race counts with the time that it was waited for: leaving it out would make a slow provider look
fast, and its hedges ever earlier. Before: ``race`` feeds it. After: ``driver`` asks for a hedge's time.
"""

from collections import OrderedDict

from ddsketch import DDSketch

KEPT_MAX = 256
"""Pairs of provider and model, about 10 KiB each; models are named by clients, so the least used are forgotten."""
TURN = 500
"""Answers of one sketch: the quantile is of the last 500 to 1,000."""
LEAST = 50
"""With fewer answers a quantile says nothing."""


class _Recent:
    """The sketch being filled and the full one before it."""

    __slots__ = ("before", "now")

    def __init__(self) -> None:
        self.now, self.before = DDSketch(), DDSketch()

    def add(self, us: int) -> None:
        if self.now.count >= TURN:
            self.before, self.now = self.now, DDSketch()
        self.now.add(us)

    def quantile_us(self, quantile: float) -> int | None:
        whole = DDSketch()
        whole.merge(self.before)
        whole.merge(self.now)
        if whole.count < LEAST:
            return None
        found = whole.get_quantile_value(quantile)
        return None if found is None else int(found)


class Latencies:
    """Of all providers of an edge."""

    def __init__(self) -> None:
        self._recent: OrderedDict[tuple[str, str], _Recent] = OrderedDict()

    def add(self, provider: str, model: str, us: int) -> None:
        """An attempt had its first content so long after its dispatch, or had none until then."""
        key = provider, model
        found = self._recent.get(key)
        if found is None:
            found = self._recent[key] = _Recent()
            if len(self._recent) > KEPT_MAX:
                self._recent.popitem(last=False)
        self._recent.move_to_end(key)
        found.add(us)

    def quantile_us(self, provider: str, model: str, quantile: float) -> int | None:
        """The time within which this share of the answers began; None while too few are known."""
        found = self._recent.get((provider, model))
        return None if found is None else found.quantile_us(quantile)
