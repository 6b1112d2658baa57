"""A user's file that splits or joins parameter clusters: YAML, or JSON if its name ends in ``.json``.

    join:                                   # these values are one parameter, called `place`
      - name: place
        members:
          - {tool: get_weather, input: q}
          - {tool: "WeatherAPI.*", output: location.name}
    split:                                  # these leave their cluster and form one of their own
      - name: billing country
        members:
          - {tool: create_invoice, input: country}

A member names a tool and one ``input`` (path of a parameter) or one ``output`` (path in the result); ``*``, ``?`` and
``[seq]`` are wildcards in the tool's name, ``*`` is one in a path. Of several groups that fit a value the first counts,
and `join` comes before `split`.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.words.ports import Port

_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Member:
    """A value, or all that fit a pattern."""

    tool: str
    direction: Literal["in", "out"]
    path: str

    def fits(self, port: Port) -> bool:
        """Whether a port is meant."""
        if port.direction != self.direction or not fnmatchcase(port.tool, self.tool):
            return False
        pattern = ".*".join(map(re.escape, self.path.split("*")))
        return re.fullmatch(pattern, port.path) is not None

    def __str__(self) -> str:
        return f"{self.tool} {self.direction}put {self.path!r}"


@dataclass(frozen=True, slots=True)
class Group:
    """One cluster that the user made."""

    name: str
    kind: Literal["join", "split"]
    members: tuple[Member, ...]


@dataclass(frozen=True)
class ClusterConstraints:
    """What a user says about clusters; see the module."""

    groups: tuple[Group, ...] = ()
    _by_tool: dict[str, list[tuple[int, Group, Member]]] = field(init=False, repr=False, compare=False)
    _wild: list[tuple[int, Group, Member]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Sorts the members by tool, so that a port is looked up in constant time."""
        by_tool: dict[str, list[tuple[int, Group, Member]]] = {}
        wild = []
        for index, group in enumerate(self.groups):
            for member in group.members:
                entry = (index, group, member)
                if _WILD.search(member.tool):
                    wild.append(entry)
                else:
                    by_tool.setdefault(member.tool, []).append(entry)
        object.__setattr__(self, "_by_tool", by_tool)
        object.__setattr__(self, "_wild", wild)

    def group_of(self, port: Port) -> Group | None:
        """The group a port belongs to; None: none, it is clustered by its meaning."""
        fitting = [(i, group) for i, group, member in self._by_tool.get(port.tool, ()) if member.fits(port)]
        fitting += [(i, group) for i, group, member in self._wild if member.fits(port)]
        return min(fitting, key=lambda found: found[0])[1] if fitting else None

    def unmatched(self, ports: Iterable[Port]) -> list[str]:
        """Members that fit none of these ports: misspelt, or their tool is not there yet."""
        left = [member for group in self.groups for member in group.members]
        for port in ports:
            left = [member for member in left if not member.fits(port)]
        return [str(member) for member in left]

    @classmethod
    def from_dict(cls, plain: Any, *, where: str = "cluster constraints") -> ClusterConstraints:
        """Constraints from plain values, checked.

        Raises:
            ConfigurationError: something cannot be; the message names the place, such as ``join[0].members[2]``.
        """
        if plain is None:
            return cls()
        top = _mapping(plain, where, {"join", "split"})
        groups: list[Group] = []
        named: dict[str, str] = {}
        kinds: tuple[Literal["join", "split"], ...] = ("join", "split")
        for kind in kinds:
            for index, entry in enumerate(_list(top.get(kind, []), f"{where}: {kind}")):
                place = f"{where}: {kind}[{index}]"
                group = _group(entry, kind, place)
                if group.name in named:
                    raise ConfigurationError(f"{place} has the name of {named[group.name]}, {group.name!r}.")
                named[group.name] = f"{kind}[{index}]"
                groups.append(group)
        return cls(tuple(groups))

    def to_dict(self) -> dict[str, Any]:
        """Plain values that `from_dict` reads."""
        found: dict[str, Any] = {}
        for group in self.groups:
            members = [{"tool": each.tool, f"{each.direction}put": each.path} for each in group.members]
            found.setdefault(group.kind, []).append({"name": group.name, "members": members})
        return found

    @classmethod
    def from_file(cls, path: str | Path) -> ClusterConstraints:
        """Constraints from a YAML or JSON file.

        Raises:
            ConfigurationError: the file cannot be read, is neither, or says something that cannot be.
        """
        place = Path(path)
        try:
            text = place.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"The cluster constraints in {place} cannot be read: {error}") from error
        return cls.from_dict(_parsed(text, place), where=place.name)


def _parsed(text: str, place: Path) -> Any:
    if place.suffix == ".json":
        try:
            return json.loads(text)
        except ValueError as error:
            raise ConfigurationError(f"{place} is not JSON: {error}") from error
    yaml: Any = importlib.import_module("yaml")
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{place} is not YAML: {' '.join(str(error).split())}") from error


def _group(entry: Any, kind: Literal["join", "split"], place: str) -> Group:
    body = _mapping(entry, place, {"name", "members"})
    name = body.get("name")
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(f"{place} needs a name, a text that says what the parameter is.")
    members = _list(body.get("members", []), f"{place}.members")
    least = 2 if kind == "join" else 1
    read = tuple(_member(member, f"{place}.members[{i}]") for i, member in enumerate(members))
    if len(read) < least and not any(_WILD.search(member.tool + member.path) for member in read):
        raise ConfigurationError(f"{place} ({name!r}) needs at least {least} member{'s' * (least > 1)}.")
    return Group(name.strip(), kind, read)


def _member(entry: Any, place: str) -> Member:
    body = _mapping(entry, place, {"tool", "input", "output"})
    tool = body.get("tool")
    if not isinstance(tool, str) or not tool:
        raise ConfigurationError(f"{place} names no tool. Write {{tool: NAME, input: PATH}}.")
    if ("input" in body) == ("output" in body):
        raise ConfigurationError(f"{place} ({tool!r}) needs one of `input` and `output`.")
    path = body.get("input", body.get("output"))
    if not isinstance(path, str):
        raise ConfigurationError(f"{place} ({tool!r}): a path is a text, not {type(path).__name__}.")
    return Member(tool, "in" if "input" in body else "out", path)


def _mapping(value: Any, place: str, known: set[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{place} is {type(value).__name__}, not a mapping of {', '.join(sorted(known))}.")
    if unknown := sorted(str(key) for key in value if key not in known):
        raise ConfigurationError(f"{place} has no {unknown[0]!r}; it may have: {', '.join(sorted(known))}.")
    return value


def _list(value: Any, place: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ConfigurationError(f"{place} is {type(value).__name__}, not a list.")
    return value
