"""A question that many ask at once is asked once: all who asked before it was sent have its answer.

Of 200 clients that come back at the same moment each would ask where its partition begins and ends; a question costs more
than the reading that follows it. Nobody is given an answer that is older than his question: who comes while one is on its
way waits for the next one. Before: ``kafka`` asks through it. After: ``find``, ``resume`` have the answers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Questions(Generic[K, V]):
    """One kind of question. ``ask`` sends it; what it raises, all raise who wait for the answer."""

    def __init__(self, ask: Callable[[K], Awaitable[V]]) -> None:
        self._ask = ask
        self._on_its_way: dict[K, asyncio.Task[V]] = {}
        self._next: dict[K, asyncio.Task[V]] = {}

    async def answer(self, about: K) -> V:
        """The answer to a question that is sent after this call."""
        question = self._next.get(about)
        if question is None:
            before = self._on_its_way.get(about)
            question = asyncio.get_running_loop().create_task(self._sent(about, before))
            question.add_done_callback(_heard)
            self._next[about] = question
        return await asyncio.shield(question)

    async def _sent(self, about: K, before: asyncio.Task[V] | None) -> V:
        if before is not None:
            await asyncio.wait({before})
        question = self._on_its_way[about] = self._next.pop(about)
        try:
            return await self._ask(about)
        finally:
            if self._on_its_way.get(about) is question:
                del self._on_its_way[about]


def _heard(question: asyncio.Task[V]) -> None:
    """Where everybody has gone meanwhile, its failure is nobody's."""
    if not question.cancelled():
        question.exception()
