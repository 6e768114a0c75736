"""The plain iterator: one generation as items, over any number of connections, edges and processes.

A session has a name. Its call carries the name as its Idempotency-Key and begins the generation in the background, so
that the generation's id is stored before its first event exists; then its native events are read. Each event is in the
store's journal before it is handed over. A process that was killed opens the session by its name again: what the journal
has is played from there, the rest comes from the log. Given the cursor of the last item that it took, an application is
handed everything behind it, each item once. Before: ``items``. After: ``clients``.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from types import TracebackType
from typing import Any, Self

from tokentrail_client.async_shell import AsyncShell
from tokentrail_client.call import TOO_LARGE, Stopped
from tokentrail_client.effects import Answer, Give
from tokentrail_client.endings import message_of
from tokentrail_client.frames import Frame, place_of, seq_of
from tokentrail_client.items import Assembly, End, GenerationFailed, Item, TooLong
from tokentrail_client.shell import Shell, Up
from tokentrail_client.states import State


class SessionLost(Exception):
    """No terminal can be had: refused, out of time, no edge to be reached. ``text`` is what came before.

    ``reason`` is the edge's code, or ``session_timeout``, ``read_timeout``, ``unreachable``.
    """

    def __init__(self, reason: str, message: str, text: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.text = text


class _Session:
    """What both iterators have: the assembly, and from where on items are handed over."""

    def __init__(
        self,
        shell: Shell | AsyncShell,
        after: str | None,
        lost: tuple[type[Exception], ...],
    ) -> None:
        if after is not None and seq_of(after) is None:
            raise ValueError("after is the cursor of an item, unchanged")
        self._course = shell.course
        self._after = after
        self._after_seq = seq_of(after)
        self._lost = lost
        self._assembly = Assembly()

    @property
    def name(self) -> str:
        """What it is called in the store."""
        return self._course.call.session

    @property
    def generation_id(self) -> str | None:
        """The generation; None before the edge has named it."""
        return self._course.generation_id

    @property
    def state(self) -> State:
        """Where it stands."""
        return self._course.state

    @property
    def text(self) -> str:
        """What was said so far."""
        return self._assembly.text

    @property
    def end(self) -> End | None:
        """The proper end, None before it."""
        return self._assembly.end

    def json(self) -> Any:
        """The whole answer as JSON; raises NotFinished before the proper end."""
        return self._assembly.json()

    def _items(self, frames: tuple[Frame, ...] | list[Frame]) -> Iterator[Item]:
        for frame in frames:
            items, seq = self._taken(frame), frame.seq
            if self._after is not None and seq is not None:
                self._check_cursor(frame, seq)
            if self._after_seq is None or seq is None or seq > self._after_seq:
                yield from items

    def _taken(self, frame: Frame) -> list[Item]:
        try:
            return self._assembly.take(frame)
        except TooLong as error:
            raise SessionLost(TOO_LARGE, f"what the generation says is {error}", self.text) from error
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            raise SessionLost(
                "unreadable_event", f"{frame.id} is no event of an edge's", self.text
            ) from error

    def _check_cursor(self, frame: Frame, seq: int) -> None:
        """A cursor of another stream would leave out what nobody has taken: it names another place, or one behind the end."""
        behind = frame.event in ("message_end", "generation_error") and seq < (self._after_seq or 0)
        if behind or (seq == self._after_seq and place_of(frame.id) != place_of(self._after)):
            raise SessionLost("foreign_cursor", f"{self._after} is no cursor of this stream", self.text)

    def _given(self, up: Up) -> Iterator[Item]:
        if isinstance(up, Give):
            yield from self._items(up.frames)
        elif isinstance(up, Answer):
            message = message_of(up.head.status, up.body)
            raise SessionLost(self._course.reason or "refused", message, self.text)

    def _check_end(self) -> None:
        fault = self._assembly.fault
        if fault is None:
            return
        if self.state is State.CANCELLED:
            raise SessionLost(fault.code, fault.message, self.text)
        raise GenerationFailed(fault, self.text)


class Session(_Session):
    """A generation as a blocking iterator of items; also a context manager that leaves it."""

    def __init__(self, shell: Shell, journal: list[Frame], *more: Any) -> None:
        super().__init__(shell, *more)
        self._shell = shell
        self._journal = journal
        self._run = self._read()

    def __iter__(self) -> Iterator[Item]:
        """Every item once, in order, also where it is gone over in several loops. Raises GenerationFailed or SessionLost."""
        return self._run

    def _read(self) -> Generator[Item, None, None]:
        yield from self._items(self._journal)
        while (up := self._step()) is not None:
            yield from self._given(up)
        self._check_end()

    def close(self) -> None:
        """Leave: the generation runs on for the grace time; `Client.cancel` ends it."""
        self._run.close()
        self._shell.close()

    def _step(self) -> Up | None:
        try:
            return self._shell.step()
        except Stopped as error:
            raise SessionLost(error.reason, str(error), self.text) from error
        except self._lost as error:
            raise SessionLost("unreachable", str(error) or type(error).__name__, self.text) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncSession(_Session):
    """A generation as an asynchronous iterator of items; see Session."""

    def __init__(self, shell: AsyncShell, journal: Callable[[], Awaitable[list[Frame]]], *more: Any) -> None:
        super().__init__(shell, *more)
        self._shell = shell
        self._journal = journal
        self._run = self._read()

    def __aiter__(self) -> AsyncIterator[Item]:
        """Every item once, in order, also where it is gone over in several loops. Raises GenerationFailed or SessionLost."""
        return self._run

    async def _read(self) -> AsyncGenerator[Item, None]:
        for item in self._items(await self._journal()):
            yield item
        while (up := await self._step()) is not None:
            for item in self._given(up):
                yield item
        self._check_end()

    async def close(self) -> None:
        """Leave: the generation runs on for the grace time; `AsyncClient.cancel` ends it."""
        await self._run.aclose()
        await self._shell.close()

    async def _step(self) -> Up | None:
        try:
            return await self._shell.step()
        except Stopped as error:
            raise SessionLost(error.reason, str(error), self.text) from error
        except self._lost as error:
            raise SessionLost("unreachable", str(error) or type(error).__name__, self.text) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
