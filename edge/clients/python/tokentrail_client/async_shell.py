"""Does what a course asks, on an event loop. Before: ``shell``, which is the same, blocking. After: ``keys``."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio

from tokentrail_client.course import Course
from tokentrail_client.effects import (
    Answer,
    Ask,
    Foreign,
    Give,
    Head,
    Keep,
    Lost,
    Opened,
    Read,
    ReadAll,
    Repair,
    Tell,
    Wait,
)
from tokentrail_client.off_loop import OffLoop
from tokentrail_client.shell import TOLD_BYTES_MAX, Base, Body, Up
from tokentrail_client.store import StoreError
from tokentrail_client.vendor import Flavour

LEAVING_S = 5.0
"""Bound on closing a connection and sending a last request, also in a task that is being cancelled."""


class AsyncShell(Base):
    """The one on an event loop; see Shell."""

    def __init__(
        self,
        course: Course,
        flavour: Flavour,
        send: Callable[[Any], Awaitable[Any]],
        store: OffLoop | None,
        **more: Any,
    ) -> None:
        super().__init__(course, flavour, **more)
        self._store = store
        self._send = send
        self._chunks: AsyncIterator[bytes] | None = None

    async def step(self) -> Up | None:
        """The next that goes up; None at the end. Raises Stopped, or a connection's error."""
        if self._over:
            return None
        try:
            while True:
                effect = self._steps.send(self._told)
                self._told = None
                if isinstance(effect, Opened | Give | Answer | Foreign):
                    return effect
                try:
                    self._told = await self._do(effect)
                except StoreError as error:
                    self._not_stored(error)
        except StopIteration:
            await self.close()
            return None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Leave: an abort, where the terminal was not handed over yet."""
        with anyio.move_on_after(
            LEAVING_S, shield=True
        ):  # a cancelled task leaves its connection all the same
            ended = request = None
            try:
                ended, request = self._finish()
            finally:
                await self._leave()
            waiting = self._store.give(ended) if ended is not None and self._store is not None else None
            if request is not None:
                with suppress(*self._flavour.lost):  # as above
                    await (await self._send(request)).aclose()
            if waiting is not None and self._store is not None:
                with suppress(StoreError):  # as above
                    await self._store.stored(waiting)

    async def _do(self, effect: Ask | Tell | Read | ReadAll | Wait | Keep | Repair) -> Any:
        match effect:
            case Ask():
                return await self._ask(effect)
            case Tell(ask):
                return await self._tell(ask)
            case Read():
                return await self._read()
            case ReadAll():
                return await self._read_all(effect)
            case Wait(seconds):
                await anyio.sleep(seconds)
            case Keep() if self._store is not None:
                await self._store.keep(self._kept(effect))
            case Repair(seq, event, data) if self._store is not None:
                name = self.course.call.session
                await self._store.run(lambda store: store.repair(name, seq, event, data))
        return None

    async def _ask(self, ask: Ask) -> Head | Lost:
        await self._leave()
        try:
            self.response = await self._send(self._flavour.request(ask, self._timeout))
        except self._flavour.lost as error:
            return Lost(error)
        return self._heard(self.response)

    async def _tell(self, ask: Ask) -> tuple[int, bytes] | Lost:
        body = Body(ReadAll(TOLD_BYTES_MAX, ask.read_s))
        try:
            response = await self._send(self._flavour.request(ask))
            try:
                async for part in response.aiter_bytes():
                    if (lost := body.take(part)) is not None:
                        return lost
            finally:
                await response.aclose()
        except self._flavour.lost as error:
            return Lost(error)
        return response.status_code, body.whole

    async def _read(self) -> bytes | Lost | None:
        try:
            if self._chunks is None:
                self._chunks = self.response.aiter_bytes()
            return await anext(self._chunks, None)
        except self._flavour.lost as error:
            return Lost(error)

    async def _read_all(self, bounds: ReadAll) -> bytes | Lost:
        body = Body(bounds)
        while (part := await self._read()) is not None:
            lost = part if isinstance(part, Lost) else body.take(part)
            if lost is not None:
                return lost
        return body.whole

    async def _leave(self) -> None:
        response, self.response, self._chunks = self.response, None, None
        if response is not None:
            with suppress(*self._flavour.lost):  # it is closed, whatever the other side says to that
                await response.aclose()
