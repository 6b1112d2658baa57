"""Descriptors of `sources` in words a person understands."""

from __future__ import annotations

from typing import Final

_PLAIN: Final = {
    "c": "its most frequent value",
    "cp": "its most frequent value at this point",
    "n": "the nearest past request, its values replaced by this request's",
    "w": "the call that followed the same calls before",
    "env": "the environment adapter",
    "goal": "the user's goal",
}
_WHICH: Final = {
    "next": "the next unused element of",
    "rest": "for each call one unused element of",
    "last": "the last element of",
    "only": "the one element of",
}


def describe(descriptor: str) -> str:
    """A descriptor in words."""
    if descriptor in _PLAIN:
        return _PLAIN[descriptor]
    if descriptor.startswith("[]"):
        return "a list with " + describe(descriptor[2:])
    if descriptor[0] == "&":
        return "each of " + describe(descriptor[1:])
    if descriptor[0] in "^~":
        return describe(descriptor[1:])
    kind, _, rest = descriptor.partition("|")
    if kind == "t":
        template, _, source = rest.partition("|")
        return f"“{template}” with {describe(source)}"
    if kind == "i":
        tool, _, parameter = rest.rpartition("|")
        return f"the same value as {parameter} of the earlier call to {tool}"
    if kind == "o":
        tool, _, path = rest.partition("|")
        return f"{path} in the output of {tool}"
    if kind == "m":
        tool, _, path = rest.partition("|")
        return f"{path} in all outputs of {tool} since the user's message"
    if kind == "l":
        tool, path, how = rest.split("|")
        how, _, named_by = how.partition("@")
        named = f" where the user named {named_by}" if named_by else ""
        return f"{_WHICH.get(how, 'the whole list')} {path} in the output of {tool}{named}"
    where = "the user's words"
    if kind[0] == "x":
        tool, _, rest = rest.partition("|")
        where = f"the text that {tool} answered"
    return f"{_place(kind[1], rest)} {where}"


def _place(kind: str, rest: str) -> str:
    left, _, right = rest.rpartition("|")
    if kind == "a":
        return f"{right} word(s) after “{left}” in"
    if kind == "b":
        return f"what stands between “{left}” and {f'“{right}”' if right else 'the end'} in"
    if kind == "q":
        return "the next quoted part of"
    if kind == "d":
        return "the date in"
    return f"the next token of the form {rest} in"
