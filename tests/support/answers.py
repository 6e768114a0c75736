"""What a provider says in each dialect: with everything that a gateway could lose, as a stream and in one piece.

``ANSWERS[path][name]`` is what the scripted provider answers to a model of that name. The pieces of a stream and the body
of the same answer are written down side by side, by the protocols, not computed by any code of ours.
"""

import json

from tests.support.scripted import Answer, IfAsked
from tests.support.upstream import CUT

PIECES = [
    "Grüße",
    " – 你好",
    " 👩‍👩‍👧",
    ' "quoted" \\ back',
    "\n",
    "data: [DONE]\n\n",
    "\u2028",
    "é",
    " the end.",
]
TEXT = "".join(PIECES)
THOUGHT = ["Let me", " think", "…"]
JSON = ['{"city": "Zü', 'rich", ', '"days"', ": 3}"]
WEATHER = {"city": "Zürich", "days": 3}
SILENCE_S = 0.17
"""Three heartbeats of the edges in ``tests/e2e/test_clients.py``."""
OWN = {"x_own": {"deep": [1, None, "ü"]}}
LOGPROB = {"token": "t", "logprob": -0.25, "bytes": [116], "top_logprobs": []}
ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
}


def sse(value, event=None):
    """One event."""
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def dumped(value):
    """A body."""
    return json.dumps(value, ensure_ascii=False).encode()


def _silent(reads):
    """The same stream, with a silence before its first event and one in the middle."""
    half = len(reads) // 2
    return [SILENCE_S, *reads[:half], SILENCE_S, *reads[half:]]


# --- OpenAI Chat Completions

CHAT = {"id": "chatcmpl-s", "created": 1_700_000_000, "model": "served-1", "service_tier": "default",
        "system_fingerprint": "fp_s"}  # fmt: skip
CHAT_USAGE = {
    "prompt_tokens": 9,
    "completion_tokens": 7,
    "total_tokens": 16,
    "prompt_tokens_details": {"cached_tokens": 2, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 3, "x_new_tokens": 1},
}


def chat(deltas, message, finish="stop", more=()):
    """Deltas of the first choice, ``more``: (deltas, message, finish) of further ones, one delta of each in turn."""
    choices = [(deltas, message, finish), *more]
    said = [
        (index, of[turn])
        for turn in range(max(len(of) for of, _, _ in choices))
        for index, (of, _, _) in enumerate(choices)
        if turn < len(of)
    ]
    reads = [_chunk(index, {"role": "assistant"}) for index in range(len(choices))]
    reads += [_chunk(index, delta) for index, delta in said]
    reads += [_chunk(index, {}, end) for index, (_, _, end) in enumerate(choices)]
    usage = CHAT | {"object": "chat.completion.chunk", "choices": [], "usage": CHAT_USAGE}
    whole = [
        {
            "index": index,
            "message": {"role": "assistant", **of},
            "finish_reason": end,
            "logprobs": _logprobs(sum("content" in delta for delta in said_of)),
        }
        for index, (said_of, of, end) in enumerate(choices)
    ]
    body = CHAT | {"object": "chat.completion", "choices": whole, "usage": CHAT_USAGE} | OWN
    return Answer([*reads, IfAsked(sse(usage)), b"data: [DONE]\n\n"], dumped(body))


def _chunk(index, delta, finish=None):
    logprobs = _logprobs(1 if "content" in delta else 0)
    choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
    return sse(CHAT | {"object": "chat.completion.chunk", "choices": [choice]} | OWN)


def _logprobs(count):
    return {"content": [LOGPROB] * count, "refusal": None} if count else None


def _call(index, call_id, fragments):
    head = {"index": index, "id": call_id, "type": "function",
            "function": {"name": "get_weather", "arguments": ""}}  # fmt: skip
    return [{"tool_calls": [head]}] + [
        {"tool_calls": [{"index": index, "function": {"arguments": fragment}}]} for fragment in fragments
    ]


def _called(call_id):
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": "get_weather", "arguments": "".join(JSON)},
    }


CONTENT = [{"content": piece} for piece in PIECES]
NOTE = {
    "type": "url_citation",
    "url_citation": {"url": "https://example.com/a", "title": "A", "start_index": 0, "end_index": 2},
}
CHAT_ANSWERS = {
    "text": chat(CONTENT, {"content": TEXT}),
    "length": chat(CONTENT[:2], {"content": "".join(PIECES[:2])}, "length"),
    "json": chat([{"content": piece} for piece in JSON], {"content": "".join(JSON)}),
    "refusal": chat([{"refusal": "I"}, {"refusal": " won't."}], {"content": None, "refusal": "I won't."}),
    "reasoning": chat(
        [{"reasoning_content": piece} for piece in THOUGHT] + CONTENT,
        {"reasoning_content": "".join(THOUGHT), "content": TEXT},
    ),
    "tools": chat(
        [{"content": "Let me see."}, *_call(0, "call_a", JSON), *_call(1, "call_b", JSON)],
        {"content": "Let me see.", "tool_calls": [_called("call_a"), _called("call_b")]},
        "tool_calls",
    ),
    "audio": chat(
        [
            {"audio": part}
            for part in (
                {"id": "audio_s"},
                {"transcript": "He"},
                {"transcript": "llo."},
                {"data": "AAEC"},
                {"data": "AwQF", "expires_at": 1_700_000_000},
            )
        ],
        {
            "content": None,
            "audio": {
                "id": "audio_s",
                "transcript": "Hello.",
                "data": "AAECAwQF",
                "expires_at": 1_700_000_000,
            },
        },
    ),
    "citations": chat([*CONTENT, {"annotations": [NOTE]}], {"content": TEXT, "annotations": [NOTE]}),
    "choices": chat(
        CONTENT, {"content": TEXT}, more=[([{"content": "2"}], {"content": "2"}, "content_filter")]
    ),
}

# --- OpenAI Responses

RESPONSE = {"id": "resp_s", "object": "response", "created_at": 1_700_000_000, "model": "served-1", "error": None,
            "incomplete_details": None, "instructions": None, "metadata": {}, "parallel_tool_calls": True,
            "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0, "service_tier": "default",
            **OWN}  # fmt: skip
RESPONSE_USAGE = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 2},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 16,
}


def responses(*items, status="completed", reason=None):
    """Each item: how it begins, its events behind that as (type, fields), how it ends."""
    begun = RESPONSE | {"status": "in_progress", "output": [], "usage": None}
    events = [("response.created", {"response": begun}), ("response.in_progress", {"response": begun})]
    for at, (begins, said, ends) in enumerate(items):
        place = {"output_index": at, "item_id": ends["id"]}
        events += [("response.output_item.added", {"output_index": at, "item": begins})]
        events += [(f"response.{kind}", place | fields) for kind, fields in said]
        events += [("response.output_item.done", {"output_index": at, "item": ends})]
    details = {"incomplete_details": {"reason": reason}} if reason else {}
    body = RESPONSE | {"status": status, "output": [i[2] for i in items], "usage": RESPONSE_USAGE} | details
    events += [(f"response.{status}", {"response": body})]
    reads = [
        sse({"type": kind, "sequence_number": n, **of, **OWN}, kind) for n, (kind, of) in enumerate(events)
    ]
    return Answer(reads, dumped(body))


def _message(pieces, *annotations, status="completed"):
    text = "".join(pieces)
    item = {"id": "msg_s", "type": "message", "role": "assistant"}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    whole = part | {"text": text, "annotations": list(annotations)}
    at = {"content_index": 0}
    said = [("content_part.added", at | {"part": part})]
    said += [("output_text.delta", at | {"delta": piece, "logprobs": []}) for piece in pieces]
    said += [
        ("output_text.annotation.added", at | {"annotation_index": n, "annotation": note})
        for n, note in enumerate(annotations)
    ]
    said += [
        ("output_text.done", at | {"text": text, "logprobs": []}),
        ("content_part.done", at | {"part": whole}),
    ]
    return (
        item | {"status": "in_progress", "content": []},
        said,
        item | {"status": status, "content": [whole]},
    )


def _refused(pieces):
    text, at = "".join(pieces), {"content_index": 0}
    item = {"id": "msg_s", "type": "message", "role": "assistant"}
    part = {"type": "refusal", "refusal": ""}
    whole = part | {"refusal": text}
    said = [("content_part.added", at | {"part": part})]
    said += [("refusal.delta", at | {"delta": piece}) for piece in pieces]
    said += [("refusal.done", at | {"refusal": text}), ("content_part.done", at | {"part": whole})]
    return (
        item | {"status": "in_progress", "content": []},
        said,
        item | {"status": "completed", "content": [whole]},
    )


def _reasoned(pieces):
    text, at, item = "".join(pieces), {"summary_index": 0}, {"id": "rs_s", "type": "reasoning"}
    part = {"type": "summary_text", "text": text}
    said = [("reasoning_summary_part.added", at | {"part": part | {"text": ""}})]
    said += [("reasoning_summary_text.delta", at | {"delta": piece}) for piece in pieces]
    said += [("reasoning_summary_text.done", at | {"text": text})]
    said += [("reasoning_summary_part.done", at | {"part": part})]
    return item | {"summary": []}, said, item | {"summary": [part], "encrypted_content": "c2VjcmV0"}


def _function(item_id, call_id):
    item = {"id": item_id, "type": "function_call", "call_id": call_id, "name": "get_weather"}
    said = [("function_call_arguments.delta", {"delta": piece}) for piece in JSON]
    said += [("function_call_arguments.done", {"arguments": "".join(JSON), "name": "get_weather"})]
    return (
        item | {"status": "in_progress", "arguments": ""},
        said,
        item | {"status": "completed", "arguments": "".join(JSON)},
    )


CITED = {
    "type": "url_citation",
    "url": "https://example.com/a",
    "title": "A",
    "start_index": 0,
    "end_index": 2,
}
RESPONSES_ANSWERS = {
    "text": responses(_message(PIECES)),
    "length": responses(_message(PIECES[:2]), status="incomplete", reason="max_output_tokens"),
    "json": responses(_message(JSON)),
    "refusal": responses(_refused(["I", " won't."])),
    "reasoning": responses(_reasoned(THOUGHT), _message(PIECES)),
    "tools": responses(_function("fc_a", "call_a"), _function("fc_b", "call_b")),
    "citations": responses(_message(PIECES, CITED)),
}

# --- Anthropic Messages

MESSAGE = {"id": "msg_s", "type": "message", "role": "assistant", "model": "served-1"}
MESSAGE_USAGE = {"input_tokens": 9, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 2,
                 "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
                 "service_tier": "standard"}  # fmt: skip


def messages(*blocks, stop="end_turn", sequence=None):
    """Each block: how it begins, its deltas, the whole of it."""
    begun = MESSAGE | {"content": [], "stop_reason": None, "stop_sequence": None}
    events = [{"type": "message_start", "message": begun | {"usage": MESSAGE_USAGE | {"output_tokens": 1}}}]
    events += [{"type": "ping"}]
    for index, (begins, deltas, _) in enumerate(blocks):
        events += [{"type": "content_block_start", "index": index, "content_block": begins}]
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events += [{"type": "content_block_stop", "index": index}]
    ended = {"stop_reason": stop, "stop_sequence": sequence}
    events += [
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    ]
    body = MESSAGE | {"content": [block[2] for block in blocks], **ended} | OWN
    body["usage"] = MESSAGE_USAGE | {"output_tokens": 7}
    return Answer([sse(event | OWN, event["type"]) for event in events], dumped(body))


def _text(pieces, *citations):
    begins = {"type": "text", "text": ""} | ({"citations": []} if citations else {})
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    deltas += [{"type": "citations_delta", "citation": cited} for cited in citations]
    return (
        begins,
        deltas,
        begins | {"text": "".join(pieces)} | ({"citations": [*citations]} if citations else {}),
    )


def _thought(pieces):
    begins = {"type": "thinking", "thinking": "", "signature": ""}
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    deltas += [{"type": "signature_delta", "signature": "c2ln"}]
    return begins, deltas, begins | {"thinking": "".join(pieces), "signature": "c2ln"}


def _use(call_id, fragments=JSON, value=WEATHER):
    begins = {"type": "tool_use", "id": call_id, "name": "get_weather", "input": {}}
    deltas = [{"type": "input_json_delta", "partial_json": fragment} for fragment in ("", *fragments)]
    return begins, deltas, begins | {"input": value}


PAGE = {"type": "page_location", "cited_text": "é", "document_index": 0, "document_title": "T",
        "start_page_number": 1, "end_page_number": 2, "file_id": None}  # fmt: skip
MESSAGES_ANSWERS = {
    "text": messages(_text(PIECES)),
    "length": messages(_text(PIECES[:2]), stop="max_tokens"),
    "stop": messages(_text(PIECES), stop="stop_sequence", sequence="END"),
    "json": messages(_text(JSON)),
    "refusal": messages(_text(["I won't."]), stop="refusal"),
    "reasoning": messages(_thought(THOUGHT), _text(PIECES)),
    "tools": messages(_text(["Let me see."]), _use("toolu_a"), _use("toolu_b"), stop="tool_use"),
    "no arguments": messages(_use("toolu_a", (), {}), stop="tool_use"),
    "citations": messages(_text(PIECES, PAGE)),
}


def _failing(answers, error, in_band, cut_after):
    """Beside the answers: refusals by status, an error in band, a stream that is cut, and one that falls silent."""
    text = answers["text"].stream
    more = {f"{status}": Answer([], dumped(error(status)), status) for status in ERRORS}
    more["in band"] = Answer([*text[:cut_after], in_band])
    more["cut"] = Answer([*text[:cut_after], CUT])
    more["silent"] = Answer(_silent(text), answers["text"].whole)
    return answers | more


def _openai_error(status):
    return {"error": {"message": f"said {status}", "type": ERRORS[status], "param": None, "code": "c"}}


def _anthropic_error(status):
    return {"type": "error", "error": {"type": ERRORS[status], "message": f"said {status}"}}


ANSWERS = {
    "/v1/chat/completions": _failing(CHAT_ANSWERS, _openai_error, sse(_openai_error(503)), 4),
    "/v1/responses": _failing(
        RESPONSES_ANSWERS,
        _openai_error,
        sse(
            {"type": "error", "code": "server_error", "message": "said", "param": None, "sequence_number": 9},
            "error",
        ),
        6,
    ),
    "/v1/messages": _failing(MESSAGES_ANSWERS, _anthropic_error, sse(_anthropic_error(503), "error"), 5),
}
PATHS = {
    "openai.chat": "/v1/chat/completions",
    "openai.responses": "/v1/responses",
    "anthropic.messages": "/v1/messages",
}


def events_of(answer):
    """The events of an answer's stream, as JSON values."""
    reads = [read.data if isinstance(read, IfAsked) else read for read in answer.stream]
    frames = b"".join(read for read in reads if isinstance(read, bytes)).decode().split("\n\n")
    datas = [frame.partition("data: ")[2] for frame in frames if "data: " in frame]
    return [json.loads(data) for data in datas if data != "[DONE]"]
