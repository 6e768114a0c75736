"""What a client holds, against what the log replays: lost, repeated, reordered. Pure. After it: ``__main__``."""

import hashlib
import json
from dataclasses import dataclass, field


@dataclass
class Seen:
    """One stream as its client has it.

    ``seqs`` and ``data`` are of each event where the client shows events; ``text`` and ``arguments`` are what an SDK
    makes of them. ``refused``: the status that the call was answered with; nothing began, so there is nothing to compare.
    ``unended``: why it did not end as a client wants. ``trail``: what each of its tries was answered, where it tells.
    """

    client: str
    generation_id: str | None = None
    dialect: str = "native"
    seqs: list[int] | None = None
    data: list[str] = field(default_factory=list)
    text: str = ""
    arguments: str = ""
    refused: int | None = None
    unended: str | None = None
    trail: list[str] = field(default_factory=list)


@dataclass
class Replayed:
    """The same stream, read without any cut: events with a seq, text, tool arguments."""

    seqs: list[int]
    data: list[str]
    text: str
    arguments: str


@dataclass
class Verdict:
    """What is wrong, in events; for a client that shows only text, a text that is too short, too long or otherwise counts one."""

    lost: int = 0
    repeated: int = 0
    reordered: int = 0

    def __bool__(self) -> bool:
        return bool(self.lost or self.repeated or self.reordered)


def sha256(text, arguments):
    """Give the hash of what was said."""
    return hashlib.sha256(f"{text}\0{arguments}".encode()).hexdigest()


def compare(seen, replayed):
    """Give the verdict on a stream that was read to its end."""
    if seen.seqs is None:
        return _of_text(seen, replayed)
    held = set(seen.seqs)
    verdict = Verdict(
        lost=len(set(replayed.seqs) - held),
        repeated=len(seen.seqs) - len(held),
        reordered=sum(one > other for one, other in zip(seen.seqs, seen.seqs[1:], strict=False)),
    )
    if not verdict and (seen.seqs, seen.data) != (replayed.seqs, replayed.data):
        verdict.reordered += 1  # an event that the log does not have, or has otherwise
    return verdict


def _of_text(seen, replayed):
    if sha256(seen.text, seen.arguments) == sha256(replayed.text, replayed.arguments):
        return Verdict()
    more = len(seen.text) + len(seen.arguments) - len(replayed.text) - len(replayed.arguments)
    return Verdict(lost=int(more < 0), repeated=int(more > 0), reordered=int(more == 0))


def said_by(events):
    """Give (text, tool arguments) of native events' data."""
    text, arguments = [], []
    for data in events:
        for part in json.loads(data).get("parts", ()):
            if part.get("type") == "text":
                text.append(part["text"])
            elif part.get("type") == "tool_call":
                arguments.append(part.get("text", ""))
    return "".join(text), "".join(arguments)
