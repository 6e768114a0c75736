"""What the server must know about ClickHouse's output formats: their content types, and which ones can be streamed.

Purpose: the engine streams a SELECT as blocks, each a complete document of its format. Documents of some formats can
simply follow one another; some repeat a header that must go from the second on; the rest need the whole result at
once. Invariants: pure; a format not listed here is never streamed, so an unknown one is right, only not incremental.

Before it in the flow: ``execution``. After it: ``wire``.
"""

import re

_CONCATENATED = frozenset(
    [
        "Native",
        "TabSeparated",
        "TSV",
        "TabSeparatedRaw",
        "TSVRaw",
        "CSV",
        "RowBinary",
        "JSONEachRow",
        "JSONLines",
        "NDJSON",
        "JSONStringsEachRow",
        "JSONCompactEachRow",
        "JSONCompactStringsEachRow",
        "Values",
        "LineAsString",
        "RawBLOB",
        "Null",
    ]
)
_HEADED = re.compile(
    r"(?P<base>TabSeparated(?:Raw)?|TSV(?:Raw)?|CSV|RowBinary|JSONCompact(?:Strings)?EachRow)WithNames(?P<types>AndTypes)?"
)
_CONTENT_TYPES = (
    (("TabSeparated", "TSV"), "text/tab-separated-values; charset=UTF-8"),
    (("CSV",), "text/csv; charset=UTF-8; header={header}"),
    (
        ("JSONEachRow", "JSONLines", "NDJSON", "JSONCompactEachRow", "JSONStringsEachRow"),
        "application/x-ndjson; charset=UTF-8",
    ),
    (("JSON",), "application/json; charset=UTF-8"),
    (("XML",), "application/xml; charset=UTF-8"),
    (("Pretty", "Vertical", "Markdown", "Values"), "text/plain; charset=UTF-8"),
)


def content_type(output_format: str) -> str:
    """Return the Content-Type that ClickHouse answers for a format."""
    header = "present" if "WithNames" in output_format else "absent"
    for prefixes, value in _CONTENT_TYPES:
        if output_format.startswith(prefixes):
            return value.format(header=header)
    return "application/octet-stream"


def is_streamable(output_format: str) -> bool:
    """Return whether blocks of this format can be sent one after the other (see `header_bytes`)."""
    return output_format in _CONCATENATED or _HEADED.fullmatch(output_format) is not None


def has_header(output_format: str) -> bool:
    """Return whether an answer without rows still has bytes: the names of its columns."""
    return _HEADED.fullmatch(output_format) is not None


def header_bytes(output_format: str, block: bytes) -> int:
    """Return the length of the header with which ``block`` begins (0 for formats without one)."""
    match = _HEADED.fullmatch(output_format)
    if match is None:
        return 0
    lines = 2 if match["types"] else 1
    if match["base"] == "RowBinary":
        return _binary_header_bytes(block, lines)
    return _text_header_bytes(block, lines, quoted=match["base"] == "CSV")


def _text_header_bytes(block: bytes, lines: int, *, quoted: bool) -> int:
    """Return where the line after the header starts; a CSV name in quotes may contain line ends."""
    at = 0
    for _ in range(lines):
        end = block.index(b"\n", at) + 1
        while quoted and block.count(b'"', at, end) % 2:
            end = block.index(b"\n", end) + 1
        at = end
    return at


def _binary_header_bytes(block: bytes, lists: int) -> int:
    """Return the length of a RowBinary header: a count, then that many names (and types), each with its length."""
    count, at = _leb128(block, 0)
    for _ in range(count * lists):
        length, at = _leb128(block, at)
        at += length
    return at


def _leb128(block: bytes, at: int) -> tuple[int, int]:
    """Return the variable-length integer at ``at`` and the place after it."""
    value = shift = 0
    while True:
        byte = block[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return value, at
        shift += 7
