"""When a process that was started is ready: it answers, or it has joined its consumer groups.

Invariant: of a process that was started again the groups that its predecessor left behind say nothing; a group stays
stable for seconds after its only member was killed. Before this file: ``stack``. After it: ``client``, ``kafka``.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping

from compose.client import answers_ok
from compose.kafka import KafkaError, admin
from compose.kafka.admin import Group


def answers(url: str) -> Callable[[], Awaitable[bool]]:
    """Ready is who answers a GET of this URL with 200."""

    async def is_ready() -> bool:
        return await answers_ok(url)

    return is_ready


async def members_of(bootstrap_servers: str, groups: Iterable[str]) -> dict[str, frozenset[str]]:
    """Who is in these groups now: before a start, those of an earlier one. Empty where nobody can say."""
    try:
        async with admin(bootstrap_servers) as cluster:
            return {name: group.members for name, group in (await cluster.groups(groups)).items()}
    except KafkaError:
        return {}


class Joined:
    """Ready is who has joined its groups: from then on it is given records. ``left``: who is in them before it starts."""

    def __init__(
        self, bootstrap_servers: str, groups: Iterable[str], left: Mapping[str, frozenset[str]] | None = None
    ) -> None:
        self._bootstrap_servers, self._names = bootstrap_servers, tuple(groups)
        self._members = {name: (left or {}).get(name, frozenset()) for name in self._names}

    async def __call__(self) -> bool:
        """Whether all groups are joined by now, by others than those that had joined when it was ready last."""
        try:
            async with admin(self._bootstrap_servers) as cluster:
                return self.judge(await cluster.groups(self._names))
        except KafkaError:
            return False

    def judge(self, groups: Mapping[str, Group]) -> bool:
        """The same of groups that were looked up."""
        if not all(
            (group := groups.get(name)) is not None
            and group.state == "Stable"
            and group.members != self._members[name]
            for name in self._names
        ):
            return False
        self._members = {name: groups[name].members for name in self._names}
        return True
