"""Which dialects are spoken here, by name. Before: ``routes``. After: the dialect's own file."""

from typing import Final

from edge.dialects import Dialect
from edge.dialects.anthropic_messages import AnthropicMessages
from edge.dialects.openai_chat import OpenAiChat
from edge.dialects.openai_responses import OpenAiResponses

_SPOKEN: Final[dict[str, Dialect]] = {
    dialect.name: dialect for dialect in (OpenAiChat(), OpenAiResponses(), AnthropicMessages())
}


def dialect_of(name: str) -> Dialect:
    """The dialect of a name; KeyError for one that is not spoken here."""
    return _SPOKEN[name]
