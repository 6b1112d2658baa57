"""Which tools a developer declared to only read, and which declarations to suggest.

`Declarations` holds the names and shell patterns of ``ToolMemory(reads=...)``: what the developer says.
A suggestion is read off names and descriptions. It is there to be pasted, and nothing ever acts on it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final

from langgraph_toolmem.base.checks import names_given, nearest
from langgraph_toolmem.runs.tools import ToolSpec, side_effects
from langgraph_toolmem.words.split import stem, words
from langgraph_toolmem.words.vocabulary import word_set

MAX_NAMED: Final = 20
"""Tools named in one line of the log."""


class Declarations:
    """The names and shell patterns of tools that only read.

    Args:
        reads: the names and patterns, compared letter by letter (`fnmatch.fnmatchcase`).

    Raises:
        ConfigurationError: `reads` is no collection of texts.
    """

    def __init__(self, reads: Iterable[str] = ()) -> None:
        given = names_given("ToolMemory(reads=...)", reads)
        self._patterns = tuple(sorted(each for each in given if set(each) & set("*?[")))
        self._names = frozenset(given) - set(self._patterns)

    def cover(self, spec: ToolSpec) -> bool:
        """Return True if the tool is named or matched; a tool that is marked as one that writes has to be named."""
        return spec.name in self._names or (spec.read_only is not False and self._matched(spec.name))

    def lines(self, specs: Mapping[str, ToolSpec]) -> Iterator[tuple[int, str]]:
        """Yield what to log of the declarations, with levels, given the tools with all their marks."""
        if not specs:
            return
        for name in sorted(self._names - set(specs)):
            meant = nearest(name, specs)
            instead = f"; did you mean {meant!r}?" if meant else "."
            yield logging.WARNING, f"ToolMemory(reads=...) names {name!r}, and there is no such tool{instead}"
        for pattern in self._patterns:
            matched = sorted(name for name in specs if fnmatchcase(name, pattern))
            level = logging.INFO if matched else logging.WARNING
            yield level, f"ToolMemory(reads=...): {pattern!r} matches {named(matched) or 'no tool'}."
        meant_to = (name for name in sorted(specs) if name in self._names or self._matched(name))
        if refused := [name for name in meant_to if side_effects(specs[name]) != "reads"]:
            yield (
                logging.WARNING,
                f"ToolMemory(reads=...) covers {named(refused)}, marked destructive, as writing, or as steering the "
                "run: the mark counts.",
            )

    def _matched(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._patterns)


def named(names: Collection[str]) -> str:
    """Return names for one line of the log, cut after `MAX_NAMED`."""
    shown = sorted(names)
    return ", ".join(shown[:MAX_NAMED]) + (", …" if len(shown) > MAX_NAMED else "")


# --- suggestions ---

_WELL_KNOWN: Final = word_set("""
tavily_search tavily_search_results_json tavily_extract internet_search web_search google_search brave_search
duckduckgo_search duckduckgo_results_json wikipedia arxiv pubmed ls glob grep read_file list_directory file_search
sql_db_query sql_db_query_checker sql_db_schema sql_db_list_tables
""")
"""Tools of LangChain's packages and of deepagents that read."""
_HEADS: Final = word_set("""
get fetch read retrieve list search find lookup look query view show describe count check browse inspect preview
calculate compute estimate compare summarize explain detect is has exists grep
""")
_ENDS: Final = frozenset({"search", "lookup", "query", "find"})
_CHANGES: Final = word_set("""
create add insert append delete remove erase wipe purge destroy modify edit rename replace overwrite cancel assign
enable disable activate deactivate suspend register subscribe install uninstall publish approve reject deny revoke
submit send deliver notify pay buy sell withdraw redeem acknowledge accept decline dismiss attach detach increment
decrement consume allocate provision deploy restore revert undo terminate kill restart reboot mute promote hide
synchronize migrate initialize configure write apply extend renew expire discard convert reschedule postpone toggle
upsert put fix escalate execute reserve deduct reimburse capture retry make charge refund claim ensure trigger run
start stop set reset update change save lock mark book order ship sign post archive move copy schedule launch
release transfer deposit purchase upload import export invite drop clear empty flush upvote vote process pop next
""")
_STEMS: Final = frozenset(map(stem, _CHANGES)) | word_set("sent written paid bought sold withdrawn made kept")
_THINGS: Final = word_set("order orders post posts book books change changes update updates schedule schedules process")
"""Deeds that are things as well: ``get_order``."""
_ORDERS: Final = word_set("""
new confirm overwrite commit sql statement command mutation script body payload action operation method
""")
"""Words of parameters that a tool which only reads has no use for."""


def suggested(specs: Iterable[ToolSpec]) -> list[str]:
    """Return the names of tools that seem to only read, for a developer to look at. Nothing may act on them."""
    return sorted(spec.name for spec in specs if side_effects(spec) == "changes" and _seems_to_read(spec))


def _seems_to_read(spec: ToolSpec) -> bool:
    """Return True if nothing in name, description and parameters tells of a change, and the name of reading."""
    if spec.read_only is False:
        return False
    if spec.name in _WELL_KNOWN:  # their descriptions are long, and the first sentence says what they do
        return not _tells_of_change(re.split(r"[.\n]", spec.description)[0])
    last = words(re.split(r"[./:]|__", spec.name)[-1]) or [""]
    if not (last[0] in _HEADS or last[-1] in _ENDS) or any(_ORDERS & set(words(each)) for each in spec.properties):
        return False
    return not (_tells_of_change(spec.name) or _tells_of_change(spec.description))


def _tells_of_change(text: str) -> bool:
    return any(stem(word) in _STEMS and word not in _THINGS for word in words(text))


def undeclared_line(names: Collection[str], reading: Iterable[str]) -> str:
    """Return the sentence of the log and the report about tools that nobody declared; "" if there are none.

    Args:
        names: of the tools that are never called without the model, because nobody declared them.
        reading: those of them that seem to only read.
    """
    if not names:
        return ""
    are = "1 tool is" if len(names) == 1 else f"{len(names)} tools are"
    shown = ", ".join(f'"{name}"' for name in reading)
    declare = f"If they only read: reads={{{shown}}}" if shown else 'Declare what only reads: reads={"name", "list_*"}'
    return f"{are} never called: undeclared. {declare}"


__all__ = ["MAX_NAMED", "Declarations", "named", "suggested", "undeclared_line"]
