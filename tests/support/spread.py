"""How ``make test`` spreads the tests over worker processes (pytest-xdist), each with a Kafka and a ClickHouse of its own.

A file stays whole, so that what its tests share is started once. The folders whose tests mostly wait come first, and what
only computes fills the rest of each worker's time. Without workers (``pytest``, ``ARGS="-n 0"``) nothing of this holds.
"""

from xdist.scheduler import LoadScopeScheduling

WHOLE_FOLDERS = ("tests/browser/",)
"""Their tests share what a folder starts once: the browser."""
ONE_BY_ONE = ("tests/casebook/",)
"""Their tests share nothing."""
FIRST = ("tests/faults/", "tests/e2e/", "tests/browser/", "tests/contract/", "tests/casebook/")
"""The longest waits first: a worker that began them last would end long after the others."""


def lot_of(nodeid):
    """Give the name of the lot that a test is handed out with."""
    whole = next((folder for folder in WHOLE_FOLDERS if nodeid.startswith(folder)), None)
    return whole or (nodeid if nodeid.startswith(ONE_BY_ONE) else nodeid.partition("::")[0])


def rank_of(item):
    """Give when a test's lot is handed out: the lowest first, and of one rank in the order of collection."""
    return next((rank for rank, folder in enumerate(FIRST) if item.nodeid.startswith(folder)), len(FIRST))


class Spread(LoadScopeScheduling):
    """Hands out lots in the order of the tests, which each worker has sorted by ``rank_of``."""

    def __init__(self, config, log):
        config.option.loadscopereorder = False  # the vendor would begin with the files of many small tests
        super().__init__(config, log)

    def _split_scope(self, nodeid):
        return lot_of(nodeid)
