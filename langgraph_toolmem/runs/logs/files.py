"""Records of a file: JSON lines, or JSON texts of many lines; UTF-8 with or without a byte order mark, gzip too."""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from pathlib import Path
from typing import Any, Final

from langgraph_toolmem.base.errors import InputError, LogError
from langgraph_toolmem.runs.logs.formats import unwrap
from langgraph_toolmem.runs.logs.shapes import NumberedRecord, numbered

_SPACE: Final = re.compile(r"\s*")


def read_records(path: Path) -> list[NumberedRecord]:
    """Return line number and record of everything in a file.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        content = path.read_bytes()
        # By its first bytes: logs are compressed under any name.
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} cannot be read: the gzip file is damaged ({error})") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    content = content.removeprefix(codecs.BOM_UTF8)
    lines: list[NumberedRecord] = []
    # Only a line feed ends a line: `splitlines` would also split at separators that JSON texts may contain.
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            lines.append(NumberedRecord(number, _json(line)))
    # The first line is not JSON by itself: the file may be one text of many lines, or several of them.
    if lines and isinstance(lines[0].record, LogError):
        lines = read_documents(content.decode(errors="replace")) or lines
    return unwrap(lines)


def _json(line: bytes) -> Any:
    try:
        return json.loads(line.decode())
    except RecursionError:
        return LogError("nested too deeply", line=0)
    except UnicodeDecodeError as error:
        return LogError(f"not UTF-8 (byte {error.start + 1} of the line)", line=0)
    except ValueError as error:
        return LogError(f"not JSON ({error}); write one run a line", line=0)


def read_documents(text: str) -> list[NumberedRecord]:
    """Return the values of one JSON text, or of several of many lines; [] if the text is neither."""
    values, decoder = list[Any](), json.JSONDecoder()
    position = _end_of_space(text, 0)
    try:
        while position < len(text):
            value, end = decoder.raw_decode(text, position)
            values.append(value)
            position = _end_of_space(text, end)
    except (ValueError, RecursionError):
        return []
    return numbered(values)


def _end_of_space(text: str, start: int) -> int:
    # A slice of the rest for each document would make the reading quadratic.
    space = _SPACE.match(text, start)
    assert space is not None  # the expression matches the empty text too
    return space.end()
