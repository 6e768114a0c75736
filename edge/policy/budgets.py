"""A token bucket over successes: how many more attempts a provider's record pays for. Pure.

Each success puts a share of a token in, each extra attempt takes a whole one out. While everything fails nothing comes
in, so a storm of retries is bounded by what the bucket held when it began. Attempts that we cancelled are neither. With
``failure_cost`` a failure takes tokens too, and nothing is paid below ``floor``: what is not urgent (a hedge) stops well
before the bucket is empty. Before: ``retries``. After: ``edge.provider.health``.
"""

DIGITS = 9
"""Shares are sums of decimals: ten tenths are one token, although their binary sum is a little less."""


class Bucket:
    """The tokens of one purpose; it begins full, so that a first failure can be tried again.

    Args:
        capacity: the most it holds.
        share: of a token for each success.
        failure_cost: what a failure takes out.
        floor: below it nothing is paid.

    """

    __slots__ = ("_capacity", "_failure_cost", "_floor", "_share", "tokens")

    def __init__(self, capacity: float, share: float, failure_cost: float = 0.0, floor: float = 0.0) -> None:
        self._capacity = capacity
        self._share = share
        self._failure_cost = failure_cost
        self._floor = floor
        self.tokens = capacity

    def can_pay(self) -> bool:
        """Whether one more extra attempt is paid for."""
        return self.tokens >= max(1.0, self._floor)

    def pay(self) -> None:
        """One extra attempt is made."""
        self.tokens = max(0.0, self.tokens - 1.0)

    def success(self) -> None:
        """An attempt ended well."""
        self.tokens = min(self._capacity, round(self.tokens + self._share, DIGITS))

    def failure(self) -> None:
        """An attempt failed, and not because we ended it."""
        self.tokens = max(0.0, self.tokens - self._failure_cost)
