"""How a client of each dialect asks, and how it reads what it gets: believing no type, and using nothing of the product's.

Before it: ``wire``. After it: ``observed`` and the checks.
"""

import json


class OpenAiChat:
    """``POST /v1/chat/completions``."""

    path = "/v1/chat/completions"
    asked = {"model": "alpha", "messages": [{"role": "user", "content": "go"}], "stream": True}
    start_event = None

    @staticmethod
    def texts(chunk):
        """The text deltas of an event."""
        choices = chunk.get("choices")
        deltas = [c.get("delta") for c in choices if isinstance(c, dict)] if isinstance(choices, list) else []
        texts = [delta.get("content") for delta in deltas if isinstance(delta, dict)]
        return [text for text in texts if isinstance(text, str) and text]

    @staticmethod
    def terminal(event):
        """message_end or error, or None where the event is no terminal."""
        if event.data == "[DONE]":
            return "message_end"
        return "error" if '"error"' in event.data and json.loads(event.data).get("error") else None

    @staticmethod
    def is_heartbeat(event):
        """Heartbeats are comments here, never events."""
        del event
        return False

    @staticmethod
    def result_text(body):
        """The text of a finished answer."""
        return body["choices"][0]["message"].get("content") or ""

    @staticmethod
    def result_calls(body):
        """(id, name, arguments) of a finished answer's calls."""
        calls = body["choices"][0]["message"]["tool_calls"]
        return [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in calls]

    @staticmethod
    def result_citations(body):
        """The citations of a finished answer, in order."""
        return body["choices"][0]["message"].get("annotations") or []

    @staticmethod
    def arguments(text):
        """The arguments of a call as a finished answer holds them: text."""
        return text


class AnthropicMessages:
    """``POST /v1/messages``."""

    path = "/v1/messages"
    asked = {**OpenAiChat.asked, "max_tokens": 100}
    start_event = "message_start"

    @staticmethod
    def texts(chunk):
        """The text delta of an event."""
        delta = chunk.get("delta") if chunk.get("type") == "content_block_delta" else None
        text = delta.get("text") if isinstance(delta, dict) else None
        return [text] if isinstance(text, str) and text else []

    @staticmethod
    def terminal(event):
        """message_end or error, or None where the event is no terminal."""
        return {"message_stop": "message_end", "error": "error"}.get(event.name)

    @staticmethod
    def is_heartbeat(event):
        """A ping of the gateway's."""
        return event.name == "ping"

    @staticmethod
    def result_text(body):
        """The text of a finished answer."""
        return "".join(block["text"] for block in body["content"] if block["type"] == "text")

    @staticmethod
    def result_calls(body):
        """(id, name, arguments) of a finished answer's calls."""
        calls = [block for block in body["content"] if block["type"] == "tool_use"]
        return [(c["id"], c["name"], c["input"]) for c in calls]

    @staticmethod
    def result_citations(body):
        """The citations of a finished answer, in order."""
        return [cited for block in body["content"] for cited in block.get("citations") or []]

    @staticmethod
    def arguments(text):
        """The arguments of a call as a finished answer holds them: the object."""
        return json.loads(text)


class OpenAiResponses:
    """``POST /v1/responses``."""

    path = "/v1/responses"
    asked = {"model": "alpha", "input": "go", "stream": True}
    start_event = None

    @staticmethod
    def texts(chunk):
        """The text delta of an event."""
        text = chunk.get("delta") if chunk.get("type") == "response.output_text.delta" else None
        return [text] if isinstance(text, str) and text else []

    @staticmethod
    def terminal(event):
        """message_end or error, or None where the event is no terminal."""
        return {
            "response.completed": "message_end",
            "response.incomplete": "message_end",
            "response.failed": "error",
            "error": "error",
        }.get(event.name)

    @staticmethod
    def is_heartbeat(event):
        """Heartbeats are comments here, never events."""
        del event
        return False

    @staticmethod
    def result_text(body):
        """The text of a finished answer."""
        contents = [part for item in body["output"] for part in item.get("content", ())]
        return "".join(part["text"] for part in contents if part["type"] == "output_text")

    @staticmethod
    def result_calls(body):
        """(id, name, arguments) of a finished answer's calls."""
        calls = [item for item in body["output"] if item["type"] == "function_call"]
        return [(c["call_id"], c["name"], c["arguments"]) for c in calls]

    @staticmethod
    def result_citations(body):
        """The citations of a finished answer, in order."""
        contents = [part for item in body["output"] for part in item.get("content", ())]
        return [note for part in contents for note in part.get("annotations") or []]

    @staticmethod
    def arguments(text):
        """The arguments of a call as a finished answer holds them: text."""
        return text


CLIENTS = {
    "openai.chat": OpenAiChat,
    "openai.responses": OpenAiResponses,
    "anthropic.messages": AnthropicMessages,
}
