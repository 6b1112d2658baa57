"""Values as they are written into a request: styles of parameters, form and multipart bodies, JSON, files.

Styles are those of OpenAPI 3 (https://spec.openapis.org/oas/v3.1.1.html, *Style Values*, which follow RFC 6570) and the
``collectionFormat`` of 2.0. Styles do not define nested lists and objects, except ``deepObject``: it writes
`items[0][price]`, as servers expect it; other styles write JSON.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

_SEPARATORS: Final = {"spaceDelimited": " ", "tabDelimited": "\t", "pipeDelimited": "|"}
"""Style -> text between the members of a list in one value; a comma with the others."""
STYLES: Final[Mapping[str, frozenset[str]]] = {
    "path": frozenset({"simple", "label", "matrix"}),
    "query": frozenset({"form", "deepObject", "spaceDelimited", "pipeDelimited"}),
    "header": frozenset({"simple"}),
    "cookie": frozenset({"form"}),
    "form": frozenset({"form", "deepObject", "spaceDelimited", "pipeDelimited"}),
}
"""Place -> its styles in OpenAPI 3."""
FILE_TEXT: Final = (
    "A file: its text, or an object with one of `text`, `base64` and `path` (of a file that this program may send), "
    "and with `name` and `type` (its media type)."
)
_RESERVED: Final = ":/?@!$'()*,;"
"""Characters that ``allowReserved`` keeps; ``& = + #`` would end the value in a query, and brackets are invalid in a
URL.
"""
_MEDIA_TYPE: Final = re.compile(r"[\w.+*-]+/[\w.+*-]+(?:; ?[\w-]+=[\w.-]+)*", re.ASCII)
_BROKEN: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""Characters that would end a header."""


class FilePart(NamedTuple):
    """One part of a multipart body, in httpx's order of fields."""

    name: str | None
    content: bytes
    media: str | None


class ValueRefusedError(ValueError):
    """A value that cannot be sent; the model reads the text."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a parameter in a request.

    Attributes:
        label: its name in the document.
        kind: "path", "query", "header", "cookie", "form", "body" (a property of it) or "whole" (all of it).
        style: one of `STYLES`, or a ``collectionFormat`` of 2.0; "" if the value is written as `media`.
        explode: True if each member of a list or an object is a separate value.
        reserved: True if characters with a meaning in URLs are sent as they are.
        media: content type of the value, if the document names one.
        nullable: True if null is a value; otherwise null leaves the parameter out.
        file: True if the value is a file.
    """

    label: str
    kind: str
    style: str = ""
    explode: bool = False
    reserved: bool = False
    media: str = ""
    nullable: bool = False
    file: bool = False

    @property
    def side(self) -> str:
        """Its place for a name: "body" for all fields of the body."""
        if self.kind in ("form", "whole"):
            return "body"
        return self.kind


class PlacedValue(NamedTuple):
    """A value and its place in a request."""

    place: Place
    value: Any


def write_text(value: Any) -> str:
    """Return texts as they are, everything else as JSON; raise ValueRefusedError where a value has neither."""
    if not isinstance(value, str):
        value = _dumped(value)
    _encoded(value)
    return str(value)


def write_json(value: Any) -> bytes:
    """Return a value as JSON in UTF-8; raise ValueRefusedError if it is not a JSON value."""
    return _encoded(_dumped(value))


def write_path(place: Place, value: Any) -> str:
    """Return the percent-encoded text that takes the place of ``{label}`` in a path.

    >>> write_path(Place("ids", "path", "matrix", explode=True), [1, 2])
    ';ids=1;ids=2'
    """
    if place.media:
        return _quoted(_dumped(value))
    texts = _members(place, value, _quoted)
    if place.style == "label":
        separator = "." if place.explode else ","
        return f".{separator.join(texts)}"
    if place.style == "matrix":
        return _matrix(place, texts, is_object=isinstance(value, Mapping))
    return _joined(place, texts)


def _matrix(place: Place, texts: Iterable[str], *, is_object: bool) -> str:
    """Return the members of a value in the style "matrix"."""
    label = _quoted(place.label)
    if not place.explode:
        return f";{label}={','.join(texts)}"
    before = f";{label}="
    # The texts of an exploded object are `key=value` and need no label.
    if is_object:
        before = ";"
    return "".join(before + text for text in texts)


def write_header(place: Place, value: Any) -> bytes:
    """Return the value of a header, in ISO 8859-1 as HTTP has it; raise ValueRefusedError for other characters."""
    if place.media:
        text = _dumped(value)
    else:
        text = _SEPARATORS.get(place.style, ",").join(_members(place, value, str))
    if _BROKEN.search(text):
        raise ValueRefusedError(f"{place.label} is a header and cannot have line breaks or control characters.")
    try:
        # HTTP has no spaces around the value of a header (RFC 9110, 5.5).
        return text.strip().encode("latin-1")
    except UnicodeEncodeError as error:
        raise ValueRefusedError(
            f"{place.label} is a header, which cannot have {text[error.start]!a}. Write it in Latin letters."
        ) from None


def write_pairs(place: Place, value: Any) -> list[tuple[str, str]]:
    """Return the percent-encoded keys and values of a parameter in a query, a form or a cookie.

    >>> write_pairs(Place("ids", "query", "form"), ["1", "2,3"])
    [('ids', '1,2%2C3')]
    >>> write_pairs(Place("items", "form", "deepObject"), [{"price": 1}])
    [('items%5B0%5D%5Bprice%5D', '1')]
    """

    def write(text: str) -> str:
        # Some servers want characters with a meaning in URLs as they are.
        return _quoted(text, _RESERVED if place.reserved else "")

    label = _quoted(place.label)
    if place.media:
        return [(label, write(_dumped(part))) for part in _parts_of_media(place, value)]
    if place.style == "deepObject":
        return [(_quoted(key), write(text)) for key, text in _deep(place.label, value)]
    return _styled_pairs(place, label, _members(place, value, write), value)


def _styled_pairs(place: Place, label: str, texts: list[str], value: Any) -> list[tuple[str, str]]:
    """Return the texts of a value's members as pairs: several pairs if it is exploded, otherwise one."""
    if place.explode and isinstance(value, Mapping):
        return [_pair_of(text) for text in texts]
    if place.explode or not isinstance(value, (Mapping, list, tuple)):
        return [(label, text) for text in texts]
    if not texts:
        return []
    return [(label, _joined(place, texts))]


def _parts_of_media(place: Place, value: Any) -> Sequence[Any]:
    """Return the parts of a value that are written each in the content type of its place."""
    # A list in a form repeats its field, and in a query it is one JSON text.
    if place.kind == "form":
        return _items(value)
    return [value]


def _pair_of(text: str) -> tuple[str, str]:
    key, _, written = text.partition("=")
    return key, written


def write_form(fields: Iterable[PlacedValue]) -> bytes:
    """Return a body of type ``application/x-www-form-urlencoded``."""
    texts: list[str] = []
    for place, value in fields:
        for key, text in write_pairs(_written(place, value), value):
            texts.append(f"{key}={text}")
    return "&".join(texts).encode()


def write_parts(fields: Iterable[PlacedValue], folder: Path | None) -> list[tuple[str, FilePart]]:
    """Return the parts of a ``multipart/form-data`` body: a part for each member of a list, JSON for objects.

    `folder` is the one that a model may name files in, as for `read_file`.
    """
    parts: list[tuple[str, FilePart]] = []
    for place, value in fields:
        if place.style == "deepObject":
            for key, text in _deep(place.label, value):
                parts.append((key, FilePart(None, _encoded(text), None)))
            continue
        for item in _items(value):
            parts.append((place.label, _part(place, item, folder)))
    return parts


def _part(place: Place, item: Any, folder: Path | None) -> FilePart:
    if place.file:
        file = read_file(place, item, folder)
        # Servers recognise a file only by its name.
        return FilePart(file.name or place.label, file.content, file.media or "application/octet-stream")
    # OpenAPI's default types of a part: bytes for files, JSON for objects, text for other values.
    if isinstance(item, (Mapping, list, tuple)) or "json" in place.media:
        return FilePart(None, write_json(item), place.media or "application/json")
    return FilePart(None, _encoded(write_text(item)), place.media or None)


def _items(value: Any) -> Sequence[Any]:
    """Return the members of a list; any other value is the only member."""
    if isinstance(value, (list, tuple)):
        return value
    return [value]


def read_file(place: Place, value: Any, folder: Path | None) -> FilePart:
    """Return name, content and type of the file that a value describes. Raises ValueRefusedError for any other value.

    Args:
        place: its place; the media type of the place counts where the value names none.
        value: bytes, a `pathlib.Path` (from code: no model writes one), a text, or an object as `FILE_TEXT` says.
        folder: folder whose files a model may name, or None.
    """
    if isinstance(value, (bytes, bytearray)):
        return FilePart(None, bytes(value), place.media or None)
    # From code only, so any folder is right: a model writes a text or an object.
    if isinstance(value, Path):
        return _from_disk(place, value, value.name, "")
    if isinstance(value, str):
        return FilePart(None, _encoded(value), place.media or None)
    if isinstance(value, Mapping):
        return _from_object(place, value, folder)
    raise ValueRefusedError(f"{place.label} is a file. {FILE_TEXT}")


def _from_object(place: Place, value: Mapping[str, Any], folder: Path | None) -> FilePart:
    """Return the file of an object as `FILE_TEXT` says."""
    kind = _media_of(place, value)
    name = str(value.get("name") or "")
    _encoded(name)
    if isinstance(value.get("path"), str):
        return _from_disk(place, _allowed(place, value["path"], folder), name, kind)
    if isinstance(value.get("base64"), str):
        content = _from_base64(place, value["base64"])
    elif isinstance(value.get("text"), str):
        content = _encoded(value["text"])
    else:
        raise ValueRefusedError(f"{place.label} is a file. {FILE_TEXT}")
    return FilePart(name or None, content, kind or None)


def _media_of(place: Place, value: Mapping[str, Any]) -> str:
    """Return the media type that a file names, or its place; "" without one."""
    kind = str(value.get("type") or place.media or "")
    # A line break in a type would begin another header of the part.
    if kind and not _MEDIA_TYPE.fullmatch(kind):
        raise ValueRefusedError(f"{place.label}: {kind[:80]!a} is no media type.")
    return kind


def _from_base64(place: Place, text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueRefusedError(f"{place.label}: `base64` is no base64.") from None


def _allowed(place: Place, said: str, folder: Path | None) -> Path:
    """Return the path of a file that a model names."""
    # A model must not send files that the host did not offer.
    if folder is None:
        raise ValueRefusedError(
            f"{place.label}: this program sends no files by path (`files=` of openapi_tools names a folder). "
            "Give `text` or `base64`."
        )
    root = folder.resolve()
    try:
        # Resolved, so that neither `..` nor a link leads out of the folder.
        path = (root / said).resolve()
    except (OSError, ValueError, RuntimeError):
        path = root
    if not path.is_relative_to(root) or not path.is_file():
        raise ValueRefusedError(f"{place.label}: {said[:80]!a} is no file that this program may send.")
    return path


def _from_disk(place: Place, path: Path, name: str, kind: str) -> FilePart:
    try:
        return FilePart(name or path.name, path.read_bytes(), kind or place.media or None)
    except OSError as error:
        raise ValueRefusedError(f"{place.label}: the file cannot be read: {error.strerror}.") from None


def _written(place: Place, value: Any) -> Place:
    """Return the style of a field of a form: without a declared style, an object is JSON and a list repeats the
    field.
    """
    if place.style or place.media:
        return place
    if isinstance(value, Mapping):
        return Place(place.label, "form", explode=True, media="application/json")
    return Place(place.label, "form", "form", explode=True)


def _members(place: Place, value: Any, write: Callable[[str], str]) -> list[str]:
    """Return the texts of a value: of an object, ``key=value`` if it is exploded, otherwise keys and values in turn."""
    if not isinstance(value, Mapping):
        return [write(write_text(item)) for item in _items(value)]
    texts: list[str] = []
    for key, inner in value.items():
        pair = (write(str(key)), write(write_text(inner)))
        if place.explode:
            texts.append("=".join(pair))
        else:
            texts.extend(pair)
    return texts


def _joined(place: Place, texts: list[str]) -> str:
    # In a URL a space, a tab and a bar are escaped, a comma between members is not.
    return quote(_SEPARATORS.get(place.style, ","), safe=",").join(texts)


def _deep(label: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the keys and texts of ``deepObject``; null in it is the empty text."""
    if isinstance(value, Mapping):
        inner: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        inner = enumerate(value)
    else:
        text = ""
        if value is not None:
            text = write_text(value)
        yield label, text
        return
    for key, part in inner:
        yield from _deep(f"{label}[{key}]", part)


def _quoted(text: str, safe: str = "") -> str:
    return quote(_encoded(text), safe=safe)


def _encoded(text: str) -> bytes:
    # Models that write escapes by hand produce half of a surrogate pair, which is invalid in UTF-8.
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueRefusedError(f"A value has half of a character, {text[error.start]!a}. Write it anew.") from None


def _dumped(value: Any) -> str:
    try:
        # Python writes NaN and Infinity, which other readers of JSON refuse.
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueRefusedError(f"A value is no JSON: {error}.") from None
