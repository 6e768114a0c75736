"""A shared question: asked once for all who wait, and never answered from before it was put."""

import asyncio

import pytest

from edge.log import LogAway
from edge.log.questions import Questions


class Oracle:
    """Answers when it is told to; an answer is the number of the question."""

    def __init__(self):
        self.sent = []
        self.due = {}

    async def ask(self, about):
        """Note what is asked, and wait."""
        number = len(self.sent)
        self.sent.append(about)
        self.due[number] = asyncio.get_running_loop().create_future()
        await self.due[number]
        return number


async def turns():
    """Let everybody go as far as they can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_one_question_serves_all_who_came_before_it_was_sent():
    """Three who ask at once have one answer; who comes while it is on its way has a later one, shared as well."""
    oracle = Oracle()
    questions = Questions(oracle.ask)
    first = [asyncio.ensure_future(questions.answer("a")) for _ in range(3)]
    await turns()
    late = [asyncio.ensure_future(questions.answer("a")) for _ in range(2)]
    await turns()
    assert oracle.sent == ["a"]
    oracle.due[0].set_result(None)
    await turns()
    assert [each.result() for each in first] == [0, 0, 0]
    assert oracle.sent == ["a", "a"]
    oracle.due[1].set_result(None)
    assert await asyncio.gather(*late) == [1, 1]
    again = asyncio.ensure_future(questions.answer("a"))
    await turns()
    oracle.due[2].set_result(None)
    assert await again == 2


async def test_questions_about_different_things_do_not_wait_for_one_another():
    """A partition that does not answer keeps nobody from another one."""
    oracle = Oracle()
    questions = Questions(oracle.ask)
    stuck, other = (asyncio.ensure_future(questions.answer(about)) for about in "ab")
    await turns()
    oracle.due[1].set_result(None)
    assert await other == 1
    assert not stuck.done()
    stuck.cancel()


async def test_a_failure_is_everybodys_and_the_next_question_is_new():
    """All who wait hear that the log is away, whoever left meanwhile; who asks afterwards is answered."""
    oracle = Oracle()
    questions = Questions(oracle.ask)
    waiting = [asyncio.ensure_future(questions.answer("a")) for _ in range(3)]
    await turns()
    behind = asyncio.ensure_future(questions.answer("a"))
    await turns()
    waiting[0].cancel()
    oracle.due[0].set_exception(LogAway("away"))
    for each in waiting[1:]:
        with pytest.raises(LogAway):
            await each
    await turns()
    oracle.due[1].set_result(None)
    assert await behind == 1
