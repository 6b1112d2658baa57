"""Answers to calls: a value that the model reads, and an artifact with the rest."""

from __future__ import annotations

import codecs
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from langgraph_toolmem.navigator.openapi.operations import Operation
from langgraph_toolmem.navigator.openapi.schemas import is_json, is_text

if TYPE_CHECKING:
    import httpx

MAX_SAID: Final = 500
"""Characters of a failed answer that the model reads."""
MAX_ANSWER_BYTES: Final = 64 * 2**20
"""Bytes of an answer that are read."""
_NOTED: Final = ("retry-after", "link", "location", "content-location", "operation-location")
"""Headers of an answer that say how to continue."""
# Limits of requests have no standard name yet; these three beginnings are in use.
_RATE_LIMIT_HEADERS: Final = ("ratelimit", "x-ratelimit", "x-rate-limit")

Answer: TypeAlias = tuple[Any, dict[str, Any]]
"""Content and artifact of a tool message."""


@dataclass(slots=True)
class Intake:
    """The answer to a call as it arrives."""

    operation: Operation
    until: float
    content: bytearray = field(default_factory=bytearray)
    is_cut: bool = False

    def takes(self, chunk: bytes) -> bool:
        """Add a chunk; return False after the end of the reading time."""
        self.content += chunk
        self.is_cut = time.monotonic() > self.until or len(self.content) > MAX_ANSWER_BYTES
        return not self.is_cut

    def read(self, response: httpx.Response) -> Answer:
        """Return what the model reads, and the artifact.

        A failure, and bytes that are no text and did not arrive whole, raise ToolException.
        """
        from langchain_core.tools import ToolException

        status = response.status_code
        # Redirects are failures as well: they are not followed, so that credentials reach only the named server.
        if status >= 300:
            raise ToolException(self._failure(response))
        kind = response.headers.get("content-type", "")
        noted = _noted(response.headers, failed=False)
        artifact: dict[str, Any] = {"status": status, "headers": _kept(response.headers), "type": kind}
        artifact["size"] = len(self.content)
        if not self.content:
            return self._without_content(response, noted), artifact
        if self._is_binary(response, kind):
            # A text may be read as far as it arrived; half a file is useless.
            if self.is_cut:
                raise ToolException(f"{self.operation.method} {self.operation.path} gave more than arrives in time.")
            name = _file_name(response.headers.get("content-disposition", ""))
            artifact |= {"name": name, "data": bytes(self.content)}
            content: Any = self._size_text(kind, name)
        else:
            content = self._value(response, kind)
        if status == 200 and not noted and not self.is_cut:
            return _kept_as_data(content), artifact
        return self._with_note(content, response, noted), artifact

    def _failure(self, response: httpx.Response) -> str:
        """Return the text of a failed answer, with the headers that say how to continue."""
        kind = response.headers.get("content-type", "")
        said = ""
        if is_text(kind) or not kind:
            said = " ".join(self._text(response).split())[:MAX_SAID]
        noted = _noted(response.headers, failed=True)
        also = ""
        if noted:
            also = f" ({'; '.join(_header_lines(noted))})"
        call = f"{self.operation.method} {self.operation.path}"
        return f"{call} answered {response.status_code} {response.reason_phrase}{also}: {said}"

    def _without_content(self, response: httpx.Response, noted: Mapping[str, str]) -> dict[str, Any]:
        headers = noted
        # The headers are all that HEAD asks for.
        if self.operation.method == "HEAD":
            headers = _kept(response.headers)
        if not headers:
            return {"status": response.status_code}
        return {"status": response.status_code, "headers": headers}

    def _with_note(self, content: Any, response: httpx.Response, noted: Mapping[str, str]) -> list[dict[str, str]]:
        """Return two content blocks: the value, and the status with the headers that say how to continue."""
        text = content
        if not isinstance(content, str):
            text = json.dumps(content, ensure_ascii=False)
        lines = [f"HTTP {response.status_code} {response.reason_phrase}", *_header_lines(noted)]
        if self.is_cut:
            lines.append("The answer goes on: this is what came in time.")
        return [{"type": "text", "text": text}, {"type": "text", "text": "\n".join(lines)}]

    def _size_text(self, kind: str, name: str) -> str:
        text = f"{len(self.content):,} bytes of {kind}"
        if name:
            text = f"{text} ({name})"
        return text

    def _is_binary(self, response: httpx.Response, kind: str) -> bool:
        # An answer of an unknown kind with a charset says that it is text.
        return bool(kind) and not is_text(kind) and response.charset_encoding is None

    def _text(self, response: httpx.Response) -> str:
        # A server may name an unknown encoding, or send bytes that are invalid in it.
        try:
            encoding = codecs.lookup(response.charset_encoding or "utf-8").name
            return self.content.decode(encoding, "replace")
        except (LookupError, ValueError):
            return self.content.decode("utf-8", "replace")

    def _value(self, response: httpx.Response, kind: str) -> Any:
        if is_json(kind) and not self.is_cut:
            try:
                return json.loads(self.content)
            except (ValueError, RecursionError):
                pass  # the model reads invalid JSON as a text
        return self._text(response)


def _noted(headers: httpx.Headers, *, failed: bool) -> dict[str, str]:
    """Return the headers for the model: how to continue, and reached limits."""
    noted: dict[str, str] = {}
    for label in _NOTED:
        if label in headers:
            noted[label.title()] = headers[label]
    for label, value in headers.items():
        if label.startswith(_RATE_LIMIT_HEADERS):
            # Limits that are not reached would be noise in each answer.
            spent = label.endswith("remaining") and value.strip() == "0"
            if failed or spent:
                noted[label.title()] = value
    return noted


def _header_lines(noted: Mapping[str, str]) -> list[str]:
    return [f"{label}: {value}" for label, value in noted.items()]


def _kept(headers: httpx.Headers) -> dict[str, str]:
    """Return the headers that an artifact has."""
    # Cookies are credentials, and an artifact is kept in the host's checkpoints.
    return {label: value for label, value in headers.items() if label != "set-cookie"}


def _kept_as_data(value: Any) -> Any:
    """Return a value that LangChain does not take for content blocks."""
    # It takes a list of texts or of mappings with a `type`, or an empty one, for blocks: an answer may be any of them.
    if isinstance(value, list) and all(_is_like_block(part) for part in value):
        return json.dumps(value, ensure_ascii=False)
    return value


def _is_like_block(part: Any) -> bool:
    return isinstance(part, str) or (isinstance(part, Mapping) and "type" in part)


def _file_name(disposition: str) -> str:
    from email.message import Message

    message = Message()
    message["Content-Disposition"] = disposition.replace("\n", " ").replace("\r", " ")
    return message.get_filename() or ""
