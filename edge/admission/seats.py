"""How many read at once on this edge: the connections of one key, and the readers of one generation.

A seat is taken before anything is looked for, so that a flood of resumes is refused before it costs a reading, and it is
left when the connection is over, however that comes about. Before: ``routes``. After: ``resume`` finds what is read.
"""

from collections import Counter
from collections.abc import Awaitable, Callable

from fastapi import Response

from edge.asgi.direct import AsgiResponse
from edge.follow import Follower
from schemas.errors import TokentrailError
from schemas.limits import Limit


class Full(TokentrailError):
    """One more would be above the limit."""


class Seat:
    """One connection's place; ``leave`` is idempotent."""

    def __init__(self, seats: "Seats", key_id: str) -> None:
        self._seats = seats
        self._key_id: str | None = key_id
        self._generation_id: str | None = None

    def read(self, follower: Follower) -> None:
        """It reads by this follower from now on; raises Full, and closes it then."""
        try:
            self._seats.join(follower.generation_id)
        except Full:
            follower.close()
            raise
        self._generation_id = follower.generation_id

    def leave(self) -> None:
        """The connection is over."""
        if self._key_id is not None:
            self._seats.left(self._key_id, self._generation_id)
            self._key_id = None


class Seats:
    """All of them."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._of_key: Counter[str] = Counter()
        self._of_generation: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._of_key.total()

    async def seated(self, key_id: str, answered: Callable[[Seat], Awaitable[Response]]) -> Response:
        """An answer to one of a key's connections, which leaves its seat at its end; raises Full."""
        if self._of_key[key_id] >= self._limit.key_streams_max:
            raise Full(
                f"{self._limit.key_streams_max} connections of this key read here already (limit.key_streams_max)"
            )
        self._of_key[key_id] += 1
        seat = Seat(self, key_id)
        try:
            answer = await answered(seat)
        except BaseException:
            seat.leave()
            raise
        if not isinstance(answer, AsgiResponse):  # it is over; a stream leaves when its connection does
            seat.leave()
        return answer

    def join(self, generation_id: str) -> None:
        """One more reads a generation; raises Full."""
        if self._of_generation[generation_id] >= self._limit.readers_max:
            raise Full(f"{self._limit.readers_max} read this generation here already (limit.readers_max)")
        self._of_generation[generation_id] += 1

    def left(self, key_id: str, generation_id: str | None) -> None:
        """One less; what nobody holds is forgotten."""
        for counter, name in ((self._of_key, key_id), (self._of_generation, generation_id)):
            if name is not None:
                counter[name] -= 1
                if not counter[name]:
                    del counter[name]
