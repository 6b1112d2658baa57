"""What every tool module shares: access to the data, and how a function becomes a tool."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from langchain_core.tools import ToolException
from pydantic import BaseModel, Field, create_model

from ..data import Database, Record


@dataclass(frozen=True)
class Access:
    """How tools reach the office they are bound to."""

    database: Callable[[], Database]
    new_id: Callable[..., str]
    metrics: Callable[[], dict[str, dict[str, int]]]

    def all(self, collection: str) -> list[Record]:
        """The records of a collection."""
        return list(self.database()[collection].values())

    def get(self, collection: str, key: str) -> Record:
        """One record.

        Raises:
            ToolException: there is none with this id.
        """
        try:
            return self.database()[collection][key]
        except KeyError:
            raise ToolException(f"Error: there is no entry {key!r} in {collection}.") from None

    def add(self, collection: str, prefix: str, **fields: Any) -> Record:
        """A new record with an id of its own."""
        key = self.new_id(prefix, sorted(fields.items(), key=str))
        record = {"id": key, **fields}
        self.database()[collection][key] = record
        return record

    def remove(self, collection: str, key: str) -> Record:
        """Take a record out."""
        record = self.get(collection, key)
        del self.database()[collection][key]
        return record


@dataclass(frozen=True)
class Spec:
    """A tool before it is bound to an office."""

    name: str
    description: str
    schema: type[BaseModel]
    tags: tuple[str, ...]
    function: Callable[..., Any]

    def bind(self, access: Access) -> Callable[..., Any]:
        """The function with its `Access` filled in."""
        bound = partial(self.function, access)
        bound.__doc__ = self.function.__doc__
        return bound


def tool(function: Callable[..., Any], *tags: str) -> Spec:
    """A tool from a function; its docstring is the description and describes the parameters.

    The docstring's lines ``name: text`` after ``Args:`` describe parameters.
    """
    description, _, arguments = inspect.cleandoc(function.__doc__ or "").partition("\n\nArgs:\n")
    texts = dict(line.strip().split(": ", 1) for line in arguments.splitlines() if ": " in line)
    hints = typing.get_type_hints(function)
    fields: dict[str, Any] = {}
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (
            hints[parameter.name],
            Field(default, description=texts[parameter.name]),
        )
    schema = create_model(function.__name__, **fields)
    return Spec(function.__name__, " ".join(description.split()), schema, tags, function)


def same(left: object, right: object) -> bool:
    """Equal, for people: letter case and surrounding spaces do not count."""
    return str(left).strip().casefold() == str(right).strip().casefold()


def within(needle: str, *texts: object) -> bool:
    """Every word of `needle` occurs in one of the texts."""
    hay = " ".join(str(text) for text in texts).casefold()
    return all(word in hay for word in needle.casefold().split())


def latest(records: Iterable[Record], key: str) -> list[Record]:
    """Newest first."""
    return sorted(records, key=lambda record: str(record[key]), reverse=True)
