"""What the suites of contracts run over: the five methods of the package and the example's, each in a memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import desk
from langchain_core.messages import BaseMessage, HumanMessage
from lessons import Lessons

from langgraph_toolmem import SIT, Atoms, Entries, Inertia, Navigator, SITPolicy, ToolMemory
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.extend import Method

NOW: Final = 1_800_000_000.0
APART: Final = ("toolmem", "{user_id}")

METHODS: Final[dict[type[Method], dict[str, Any]]] = {
    Inertia: {},
    SIT: {"policy": SITPolicy()},
    Navigator: {},
    Entries: {},
    Atoms: {"keep": True},
    Lessons: {},
}
"""Each method that plugs in, and the options with which it keeps all that it can from the first run on."""
KINDS: Final = tuple(METHODS)


def make(kind: type[Method], mixin: type[Any] | None = None) -> Any:
    """A method; with `mixin` one whose events go through that class first."""
    made: Any = kind if mixin is None else type(f"{mixin.__name__}{kind.__name__}", (mixin, kind), {})
    return made(**METHODS[kind])


def memory_of(path: Path | None, *methods: Method, **options: Any) -> ToolMemory:
    """A memory with these methods and no other, of which time stands still."""
    return ToolMemory(path, desk.Desk().tools, methods, **{"now": lambda: NOW, **options})


def run_of(number: int, word: str = "") -> list[BaseMessage]:
    """A finished run of the desk; `word` is in what the user said."""
    first, *rest = desk.history(number)
    return [first.model_copy(update={"content": f"{first.text} {word}".strip()}), *rest]


def work(memory: ToolMemory, *, user: str | None = None, word: str = "", first: int = 0) -> None:
    """Three runs that end, the last of them badly, and a verdict that comes later."""
    for number in range(first, first + 3):
        how: dict[str, Any] = {"thread_id": f"{user}-{number}", "user_id": user}
        bad = number == first + 2
        memory.finish(run_of(number, word), success=not bad, comment=f"{word} was not asked" if bad else None, **how)
    memory.feedback(f"{user}-{first}", score=0.0, comment=f"{word} should have waited", user_id=user)
    if any(isinstance(each, Navigator) for each in memory.methods) and not memory.core.read_only:
        said = [{"role": "user", "content": f"Find {word}"}]
        memory.navigator.decisions.add(digest("run", f"{user}-d"), 1, said, {}, user_id=user)
    assert memory.flush()


def rows(memory: ToolMemory, user: str | None = None) -> dict[str, Any]:
    """What is kept outside of the evidence graph: the rows of each kind in a user's namespace, and decisions."""
    store = memory.core.vectors.scoped(memory.core.users.of(user).namespace)
    found: dict[str, Any] = {
        kind: {hit.id: (hit.text, hit.metadata) for hit in store.get(kind)} for kind in store.kinds()
    }
    if any(isinstance(each, Navigator) for each in memory.methods):
        found["decisions"] = dict(memory.navigator.decisions.ask("SELECT run, line FROM decisions"))
    return {kind: kept for kind, kept in found.items() if kept}


def files(folder: Path) -> dict[str, bytes]:
    """All files of a memory with their content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def said(word: str) -> HumanMessage:
    """A request like those of `run_of`, by somebody new."""
    return HumanMessage(f"{desk.request('Zoe')} {word}".strip())
