"""Arguments that cannot work: each raises a ConfigurationError that names the argument."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import Any

import histories as h
import pytest
from desk import Desk, script
from langchain.agents.middleware import TodoListMiddleware
from langgraph.store.memory import InMemoryStore

from langgraph_toolmem import (
    SIT,
    Atoms,
    Bound,
    ConfigurationError,
    Entries,
    Inertia,
    InertiaPolicy,
    MessageError,
    Navigator,
    Prefetch,
    RecallPolicy,
    SITPolicy,
    ToolMemory,
    default_methods,
)
from langgraph_toolmem.atoms.step import SGASettings
from langgraph_toolmem.entries.langmem import EntryBaseStore
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.models import with_tool_memory
from langgraph_toolmem.navigator.deferred import ToolSearch
from langgraph_toolmem.navigator.plan.search import PlanSettings
from langgraph_toolmem.nodes import (
    InertiaShortcut,
    MemoryRecall,
    PreferenceGuide,
    ReflectionWriter,
    SGAPlanner,
    SITSummary,
    ToolRetriever,
)
from langgraph_toolmem.nodes.navi import create_navi_subgraph
from langgraph_toolmem.offline.coldstart import BootstrapBudget
from langgraph_toolmem.papers.sga_mcts import SearchSettings
from langgraph_toolmem.report.report import TokenPrice
from langgraph_toolmem.runs.run import SEARCH_TOOL
from langgraph_toolmem.testing import ScriptedChatModel

NAN = math.nan
TOOLS = [h.schema("find", "name"), h.schema("refund", "order_id")]
NO_MEMORY = ({"memory": "./.toolmem"}, "takes a ToolMemory, not str")

Make = Callable[[ToolMemory], Callable[..., Any]]
Case = dict[str, Any] | tuple[dict[str, Any], str] | tuple[dict[str, Any], str, type[Exception]]


@pytest.fixture(scope="module")
def memory() -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(tools=TOOLS) as made:
        made.finish(h.history(h.user("refund it"), h.call("refund", {"order_id": "o77"}), h.words()), thread_id="t")
        yield made


def plain(function: Callable[..., Any]) -> Make:
    """A callable that needs no memory."""
    return lambda memory: function


def of_memory(function: Callable[..., Any], **more: Any) -> Make:
    """A callable whose first argument is the memory."""
    return lambda memory: partial(function, **{"memory": memory, **more})


def method(kind: Callable[..., Any]) -> Make:
    """A memory with the method of this kind, made with the arguments."""
    return lambda memory: lambda **given: ToolMemory.ephemeral(methods=default_methods(kind(**given)))


def called(find: Callable[[ToolMemory], Callable[..., Any]], **more: Any) -> Make:
    """A method of the memory, and its async variant if it has one."""

    def both(memory: ToolMemory, **given: Any) -> None:
        function: Any = find(memory)
        variant = getattr(function.__self__, f"a{function.__name__}", None)
        if variant is not None:
            with pytest.raises(ConfigurationError):
                asyncio.run(variant(**{**more, **given}))
        function(**{**more, **given})

    return lambda memory: partial(both, memory)


def each(name: str, *values: Any) -> list[dict[str, Any]]:
    return [{name: value} for value in values]


POLICY = [
    *each("reads", 0.8),
    *each("writes", None, {"min_precision": 0.8}),
    *each("audit_rate", 2, None),
    *each("never", "delete", None, 5, [1]),
    *each("may_write", "send"),
    *each("only", "send"),
    *each("allow_destructive", {"delete": True}),
    *each("shadow", "no"),
]
OF_THE_PAPER = [
    *each("alpha", -1),
    *each("max_share", 1.5, "0.3"),
    *each("window", 0, 4, "2", 2.0, True),
    *each("kappa", 1, "1.1"),
    *each("recovery_after", 0, 1.5),
    *each("recovery_tool", 3),
    *each("threshold", "x", math.inf),
    *each("max_in_a_row", -1, 1.0),
    *each("announce", 1),
    *each("environment", {"room": "kitchen"}),
]
BOUND = [
    *each("min_precision", 1.1, -0.1, NAN, "0.9", True, None),
    *each("max_wrong_per_100", -1, 101, "1", NAN),
]
NO_PLACEHOLDERS = {"{tenant}": "{tenant}", "{}": "{}", "{user_id.name}": "user_id.name", "{user_id": "no placeholder"}
PRICES = (-1, NAN, math.inf, "3", True, 10**400)

TABLE: dict[str, tuple[Make, list[Any]]] = {
    "ToolMemory": (
        plain(ToolMemory.ephemeral),
        [
            *each("holdout", -0.1, 1, 1.5, "5%", True),
            *each("withhold", -0.1, 0.6, "5%", True),
            *each("retention", 0, -1, timedelta(0), True, "90d", NAN),
            *each("namespace", "toolmem", ["toolmem"], (), ("a", ""), ("a", 1), None),
            *(({"namespace": ("a", wrong)}, said) for wrong, said in NO_PLACEHOLDERS.items()),
            *each("graph_namespace", ("toolmem", "{user_id}")),
            *each("reads", "find", b"find", [1], 5, None, ["a", None]),
        ],
    ),
    "unreadable messages": (
        lambda memory: lambda of, messages: attrgetter(of)(memory)(messages),
        [
            ({"of": of, "messages": bad}, "messages", MessageError)
            for of in ("observe", "finish", "inertia.predict", "inertia.begin_turn")
            for bad in ("hello", None, {"role": "user"}, [object()], [{"role": "nobody"}], [("user",)])
        ],
    ),
    "feedback": (called(lambda m: m.feedback, thread_id="t"), each("score", "good", None, 2, -0.1, 1.1, NAN)),
    "TokenPrice": (
        plain(partial(TokenPrice, **{"input": 1.0, "output": 1.0})),
        [
            *each("input", None, *PRICES),
            *each("output", None, *PRICES),
            *each("cached", *PRICES),
            *each("currency", "", "  ", "E\x1b[2J", None, 3),
        ],
    ),
    # --- agents ---
    "tool_memory_middleware": (
        of_memory(tool_memory_middleware),
        [
            NO_MEMORY,
            *(({"memory": no}, "takes a ToolMemory, not") for no in (None, ToolMemory)),
            ({"memory": "x", "tool_search": True}, "takes a ToolMemory"),
            ({"memory": "x", "suggest": True}, "takes a ToolMemory"),
            *each("outer", TodoListMiddleware()),
            ({"outer": ["todo"]}, "outer[0]"),
            ({"outer": [[TodoListMiddleware()]]}, "outer=[*yours]"),
            *each("gated", "send_mail", 3),
            ({"outer": [TodoListMiddleware(), TodoListMiddleware]}, "outer[1]"),
            *each("shortcut", {"kind": "paper"}, "paper"),
            *each("tool_search", "3", None, 2.5),
            *each("preferences", "yes"),
            *each("prefetch", Prefetch, 3, {"tools": []}),
            *each("recall", "paper", 1, SITPolicy()),
            *each("planning", 3),
            *each("suggest", "yes"),
            *each("loop_guard", "yes"),
            *each("context", "yes"),
            *each("reflect", "yes"),
            ({"steps": ["mine"]}, "`steps` must be instances of Step, got 'mine'"),
            ({"prefetched": True}, "did you mean 'prefetch'"),
        ],
    ),
    "with_tool_memory": (
        of_memory(with_tool_memory, model=ScriptedChatModel(script=script)),
        [
            NO_MEMORY,
            {"model": "gpt-5.1"},
            *each("gated", "send_mail", 3),
            *each("shortcut", {"kind": "paper"}, SITPolicy()),
            *each("prefetch", Prefetch, 3),
            *each("context", "yes"),
            *each("recall", "paper", 1),
            *each("suggest", 1, RecallPolicy()),
            *each("planning", 3),
            *each("preferences", "yes"),
            ({"steps": ["mine"]}, "`steps` must be instances of Step, got 'mine'"),
            ({"reflect": True}, "no option 'reflect'"),
            ({"suggests": True}, "did you mean 'suggest'"),
        ],
    ),
    "Prefetch": (plain(Prefetch), each("workers", 0)),
    # --- nodes ---
    "InertiaShortcut": (of_memory(InertiaShortcut, tools=TOOLS), [NO_MEMORY, {"tools": 3}]),
    "ToolRetriever": (
        of_memory(ToolRetriever, tools=TOOLS),
        [
            NO_MEMORY,
            *each("search", 0, True),
            *each("always", "a", [1], None),
            *each("tools", 3),
            ({"tools": [h.schema(SEARCH_TOOL, "query")]}, "the name of a tool of the memory"),
        ],
    ),
    "PreferenceGuide": (
        of_memory(PreferenceGuide),
        [NO_MEMORY, *each("keep", "fast_courier", [3], None)],
    ),
    "MemoryRecall": (
        of_memory(MemoryRecall),
        [NO_MEMORY, *each("policy", "paper")],
    ),
    "ReflectionWriter": (of_memory(ReflectionWriter), each("verdict", True, 1)),
    "SGAPlanner": (of_memory(SGAPlanner), [NO_MEMORY, *each("settings", 3)]),
    "SITSummary": (
        of_memory(SITSummary),
        [NO_MEMORY, ({"policy": "paper"}, "SITPolicy")],
    ),
    "create_navi_subgraph": (
        of_memory(create_navi_subgraph, model=ScriptedChatModel(script=script), tools=Desk().tools),
        [
            ({"memory": None}, "ToolMemory"),
            ({"model": 3}, "chat model"),
            ({"model": "gpt"}, "provider:model"),
            ({"tools": []}, "at least one tool"),
            ({"awrap_tool_call": lambda r, e: e(r)}, "wrap_tool_call"),
            *each("state_schema", 3),
        ],
    ),
    # --- inertia ---
    "Inertia": (method(Inertia), [({"policy": "eager"}, "InertiaPolicy")]),
    "InertiaPolicy": (plain(InertiaPolicy), POLICY),
    "InertiaPolicy.paper": (plain(InertiaPolicy.paper), [*POLICY, *OF_THE_PAPER, *BOUND]),
    "InertiaPolicy.with_": (
        plain(InertiaPolicy().with_),
        [*BOUND, *(({name: 1}, f"InertiaPolicy has no field '{name}'") for case in OF_THE_PAPER for name in case)],
    ),
    "Bound": (plain(Bound), BOUND),
    # --- entries ---
    "Entries": (
        method(Entries),
        [
            *each("critic", 3, "gpt", "nobody:model"),
            ({"policy": "paper"}, "`policy` must be a RecallPolicy"),
        ],
    ),
    "RecallPolicy": (
        plain(RecallPolicy),
        [*each("max_n", 0, True), *each("least", 1.1, NAN)],
    ),
    "entries.recall": (
        called(lambda m: m.entries.recall, query="x"),
        [*each("query", 3), *each("policy", "paper")],
    ),
    "entries.recollect": (
        lambda memory: memory.entries.recollect,
        [({"messages": [3]}, "messages[0]", MessageError)],
    ),
    "EntryBaseStore": (
        of_memory(EntryBaseStore, inner=InMemoryStore()),
        [NO_MEMORY],
    ),
    # --- sit ---
    "SIT": (method(SIT), [({"policy": True}, "SITPolicy")]),
    "SITPolicy": (plain(SITPolicy), [*each("k", 0), *each("unlabelled", 2.0)]),
    "sit.suggest": (
        called(lambda m: m.sit.suggest, messages=[h.user("x")]),
        [
            *each("summary", 5, ["a"]),
            *each("k", 0, True, "2"),
            *each("available", "read_logs", [1], 7),
            ({"policy": InertiaPolicy()}, "SITPolicy"),
        ],
    ),
    "sit.suggest unreadable": (
        lambda memory: memory.sit.suggest,
        [({"messages": [{"no": "message"}]}, "messages[0]", MessageError)],
    ),
    # --- atoms ---
    "Atoms": (
        method(Atoms),
        [
            ({"model": 5}, "atom_model is a chat model"),
        ],
    ),
    "SGASettings": (
        plain(SGASettings),
        [
            *each("k", 0, True),
            *each("beta", 1.5),
            *each("budget", 0),
            *each("plain", 1),
        ],
    ),
    "atoms.keep": (lambda memory: memory.atoms.keep, [({"atoms": 3}, "not int")]),
    "atoms.search": (
        called(lambda m: m.atoms.search, goal="x"),
        [
            *each("goal", 3, ["x", 3]),
            *each("state", None),
            *each("k", 0, True),
            *each("beta", 1.5),
            *each("slots", "ID", 3, [1]),
        ],
    ),
    # --- navigator ---
    "Navigator": (method(Navigator), [*each("aliases", ["a.b"], {"a.b": 3})]),
    "ToolSearch": (plain(ToolSearch), [*each("k", 0), *each("mode", "fast"), *each("always", "a")]),
    "navigator.search": (
        called(lambda m: m.navigator.search, query="send an email"),
        [
            *each("query", 5),
            *each("k", "3", 2.5, -1, True),
            *each("available", "refund", 5, [["refund"]], iter(["refund"])),
            *each("target", 3, ["refund"]),
            ({"target": "omega"}, "knows no tool 'omega'"),
            ({"target": "refunds"}, "knows no tool 'refunds'. Did you mean 'refund'?"),
        ],
    ),
    "navigator.plan": (
        called(lambda m: m.navigator.plan),
        [
            ({}, "query"),
            ({"query": "x", "target": "y"}, "no tool 'y'"),
            *each("query", 3),
            ({"target": "nobody"}, "nobody"),
            ({"target": "refunds"}, "Did you mean 'refund'?"),
            ({"target": "refund", "avoid": ["refund"]}, "got 'refund', which `avoid` or `available` excludes"),
            *each("target", 3, [], ["refund", 3]),
            *({"query": "quantum chromodynamics", **wrong} for wrong in ({"strategy": "guess"}, {"k": "3"})),
            *(
                {"target": "refund", **wrong}
                for wrong in [
                    *each("avoid", "refund"),
                    *each("k", 0),
                    *each("strategy", "guess"),
                    *each("known", "customer_id", None),
                    *each("done", "find"),
                    *each("available", 3),
                    *each("seed", None),
                    *each("budget", -1, NAN, "1"),
                ]
            ),
        ],
    ),
    "navigator.reroute": (
        lambda memory: partial(memory.navigator.reroute, memory.navigator.plan(target="refund").chain),
        each("failed", "find", None, [3]),
    ),
    "navigator.reroute nothing": (
        called(lambda m: m.navigator.reroute, failed=["find"]),
        [({"chain": None}, "Chain")],
    ),
    "navigator.prune": (
        called(lambda m: m.navigator.prune),
        [
            *each("most", -1, None),
            {"most": 1, "dry_run": "no"},
        ],
    ),
    "navigator.propagate": (
        called(lambda m: m.navigator.propagate),
        [*each("days", 0, 32, "7"), *each("eta", 1.5, True), *each("dry_run", 0)],
    ),
    "navigator.restore": (called(lambda m: m.navigator.restore), each("tools", None, 3, [3])),
    "PlanSettings": (plain(PlanSettings), [*each("delta", 1.0), *each("depth", -1)]),
    # --- offline ---
    "Budget": (
        plain(BootstrapBudget),
        [
            *each("queries", 0),
            *each("model_calls", True),
            *each("tokens", 0),
            *each("seconds_per_run", 0),
        ],
    ),
    "SearchSettings": (
        plain(SearchSettings),
        [
            *each("iterations", 0),
            *each("depth", 0),
            *each("selection", "puct"),
            *each("patience", -1),
        ],
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_a_wrong_argument_is_named(name: str, memory: ToolMemory) -> None:
    make, cases = TABLE[name]
    wrong = []
    for case in cases:
        given, said, kind = (
            (*case, ConfigurationError)[:3] if isinstance(case, tuple) else (case, "", ConfigurationError)
        )
        said = said or [*given][-1]
        try:
            make(memory)(**given)
        except kind as error:
            if said not in str(error):
                wrong.append(f"{given}: {said!r} is not in {str(error)!r}")
        else:
            wrong.append(f"{given}: no error")
    assert not wrong, "\n".join(wrong)


def test_the_memorys_own_middleware_is_not_given_to_it(memory: ToolMemory) -> None:
    for options in ({}, {"suggest": True, "shortcut": False}, {"preferences": True, "shortcut": False}):
        for own in tool_memory_middleware(memory, **options):
            with pytest.raises(ConfigurationError, match=r"outer\[1\] must be a middleware of yours"):
                tool_memory_middleware(memory, outer=[TodoListMiddleware(), own])
