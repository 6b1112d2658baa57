"""Trials that break what machines break, and look what a memory lost by it.

    PYTHONPATH=.:tests/crash python -m campaign --trials 1000 --seed 7

Each trial breaks one thing, drawn by its seed, in a process of its own: a kill -9 while runs are learned; a byte
flipped, cut off or overwritten in any file; a disk that is full; no file handles left. Then another process opens the
folder and looks: every run that was acknowledged is there with its verdict and its entry, nothing of one user is shown
to another, and an agent's run goes as it goes without the memory. What is gone without a word in `report().problems` or
`toolmem doctor` is a loss.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.cli.health import examine
from langgraph_toolmem.nodes import InertiaShortcut, shortcut_condition

SECONDS: Final = 60
"""A process that has not ended after so long hangs."""
APART: Final = ("toolmem", "{user_id}")
USERS: Final = ("ann", "bob")
RUNS: Final = 6
"""Runs that the folder holds before something breaks."""
LEARNED: Final = 12
"""Runs that a process learns if nothing stops it."""
KINDS: Final = ("kill", "file", "full", "handles")


@tool
def find_order(name: str) -> str:
    """Finds the order of a customer."""
    return json.dumps({"order": f"order of {name}"})


@tool
def read_order(order: str) -> str:
    """Reads an order."""
    return json.dumps({"state": f"{order} was sent"})


def history(user: str, number: int | str) -> list[Any]:
    """A run as it goes without a memory; its words are this user's alone."""
    name = f"{user}-secret-{number}"
    found: list[Any] = [HumanMessage(f"Where is the order of {name}?", id=f"m-{name}")]
    while not isinstance(found[-1], AIMessage) or found[-1].tool_calls:
        found.append(answer(found))
        for call in found[-1].tool_calls:
            given = {"find_order": find_order, "read_order": read_order}[call["name"]].invoke(call["args"])
            found.append(ToolMessage(given, tool_call_id=call["id"], name=call["name"]))
    return found


def answer(messages: Sequence[Any]) -> AIMessage:
    """What the model says next: it finds the order, reads it, and answers."""
    results = [json.loads(str(each.content)) for each in messages if isinstance(each, ToolMessage)]
    name = messages[0].content.removeprefix("Where is the order of ").rstrip("?")
    if len(results) == 2:
        return AIMessage(results[1]["state"])
    made, args = (("find_order", {"name": name}), ("read_order", {"order": f"order of {name}"}))[len(results)]
    return AIMessage("", tool_calls=[{"name": made, "args": args, "id": f"{name}-{len(results)}"}])


def opened(folder: Path, **options: Any) -> ToolMemory:
    """The memory in a folder."""
    return ToolMemory(folder, tools=[find_order, read_order], reads={"find_*", "read_*"}, namespace=APART, **options)


def taught(memory: ToolMemory, seed: int, number: int) -> None:
    """One run is learned and judged."""
    user, thread = USERS[number % 2], f"{seed}-{number}"
    run = history(user, thread)
    memory.observe(run[:-1], thread_id=thread, user_id=user)
    memory.finish(run, thread_id=thread, user_id=user, success=number % 3 > 0)


def template(folder: Path) -> None:
    """A folder with what all trials begin with, half of it as a killed process leaves it."""
    with opened(folder) as memory:
        for number in range(RUNS):
            taught(memory, -1, number)
        memory.flush()


# --- what a process does while something breaks ---


def learn(folder: Path, kind: str, seed: int) -> dict[str, Any]:
    """Learns runs, and writes down which were acknowledged; how it ended, and what the memory said."""
    chance = random.Random(seed)
    said: dict[str, Any] = {"problems": []}
    with opened(folder) as memory, folder.with_suffix(".acks").open("a") as acks:
        memory.inertia.predict(history("bob", "x")[:1], user_id="bob")
        if kind == "full":
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (chance.randrange(4_000, 400_000),) * 2)
        if kind == "handles":
            used = len(list(Path("/proc/self/fd").iterdir()))
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (used + chance.randrange(3), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
            )
        for number in range(LEARNED):
            taught(memory, seed, number)
            with suppress(OSError):
                acks.write(f"{number}\n")
                acks.flush()
        said["problems"] = list(memory.report().problems)
    return said


def broken(folder: Path, chance: random.Random) -> str:
    """Damages one file of a folder; which, and how."""
    file = chance.choice(sorted(each for each in folder.rglob("*") if each.is_file() and each.stat().st_size))
    data = bytearray(file.read_bytes())
    at, how = chance.randrange(len(data)), chance.choice(("flipped", "flipped", "cut", "overwritten", "gone"))
    if how == "flipped":
        data[at] ^= 1 << chance.randrange(8)
    elif how == "cut":
        del data[at:]
    elif how == "overwritten":
        data[at : at + 4096] = chance.randbytes(min(4096, len(data) - at))
    file.unlink() if how == "gone" else file.write_bytes(data)
    return f"{file.relative_to(folder)} {how}"


# --- what is there afterwards ---


def look(folder: Path, _: str, seed: int) -> dict[str, Any]:
    """What another process finds: runs that are missing, foreign values, and whether the host's run is another."""
    acks = folder.with_suffix(".acks")
    done = [int(line) for line in acks.read_text().split("\n")[:-1]] if acks.exists() else []
    wanted = [(-1, number) for number in range(RUNS)] + [(seed, number) for number in done]
    said = list(examine(folder)["problems"])
    with opened(folder) as memory:
        memory.flush(timeout=20)
        lost = {f"{first}-{number}": why for first, number in wanted if (why := missing(memory, first, number))}
        shown = repr([memory.entries.recall(history("bob", "y")[0].content, user_id="bob")])
        shown += repr(memory.inertia.explain(history("bob", "y")[:1], user_id="bob"))
        foreign = shown.count("ann-secret")
        differs = hosted(memory) != [each.content for each in history("bob", "new")]
        memory.flush(timeout=20)
        said += memory.report().problems
    with opened(folder) as again:
        differs |= hosted(again) != [each.content for each in history("bob", "new")]
    return {"lost": lost, "foreign": foreign, "differs": differs, "said": said}


def missing(memory: ToolMemory, seed: int, number: int) -> str:
    """What is missing of a run, "" if nothing."""
    user, thread, core = USERS[number % 2], f"{seed}-{number}", memory.core
    runs = core.episodes.runs(thread)
    if not runs:
        return "steps"
    [run] = runs
    if core.graph.score(run) != float(number % 3 > 0):
        return "verdict"
    return "" if memory.entries.rows.of(run, core.users.of(user)) else "entry"


def hosted(memory: ToolMemory) -> list[Any]:
    """An agent's run with the shortcut, its messages."""
    builder = StateGraph(MessagesState)
    builder.add_node("inertia", InertiaShortcut(memory, [find_order, read_order]))
    builder.add_node("agent", lambda state: {"messages": [answer(state["messages"])]})
    builder.add_node("tools", ToolNode([find_order, read_order]))
    builder.add_edge(START, "inertia")
    builder.add_edge("tools", "inertia")
    builder.add_conditional_edges("inertia", shortcut_condition, ["tools", "agent"])
    builder.add_conditional_edges("agent", tools_condition)
    config: Any = {"configurable": {"thread_id": "host", "user_id": "bob"}}
    state = builder.compile().invoke({"messages": history("bob", "new")[:1]}, config)
    return [each.content for each in state["messages"]]


# --- trials ---


@dataclass
class Trial:
    """What one of them showed.

    Attributes:
        what: what was broken.
        ended: how the worst of its processes ended: "well", "error", "crash" or "hang".
        lost: runs of which something is missing.
        silent: the same, where nothing was said about it.
        foreign: values of one user that another was shown.
        differs: the host's run was another one.
    """

    kind: str
    seed: int
    what: str = ""
    ended: str = "well"
    lost: dict[str, str] = field(default_factory=dict)
    silent: int = 0
    foreign: int = 0
    differs: bool = False

    @property
    def is_good(self) -> bool:
        """Whether it is as it should be."""
        return self.ended == "well" and not (self.silent or self.foreign or self.differs)


def child(what: Callable[[Path, str, int], Any], folder: Path, kind: str, seed: int) -> None:
    """Does it in a process of its own, which leaves what it saw and said beside the folder."""
    sys.stderr = folder.with_suffix(".log").open("a")
    made = json.dumps(what(folder, kind, seed))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2) if kind != "full" else None
    with suppress(OSError):
        folder.with_suffix(f".{what.__name__}").write_text(made)


def run_in_child(what: Callable[..., Any], folder: Path, kind: str, seed: int, *, kill: float | None = None) -> str:
    """How the process ended; `kill`: seconds after its first acknowledged run."""
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["chromadb", "langgraph.prebuilt", "langgraph_toolmem.entries.entry"])
    process = context.Process(target=child, args=(what, folder, kind, seed))
    process.start()
    if kill is not None:
        acks = folder.with_suffix(".acks")
        while process.exitcode is None and not (acks.exists() and acks.stat().st_size):
            time.sleep(0.01)
        time.sleep(kill)
        process.kill()
    process.join(SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
        return "hang"
    if kill is not None:
        return "well"
    return "crash" if process.exitcode < 0 else "error" if process.exitcode else "well"


def one(where: Path, seed: int) -> Trial:
    """One trial, in a folder of its own."""
    chance, kind = random.Random(seed), KINDS[seed % len(KINDS)]
    folder, trial = where / f"trial-{seed}", Trial(kind, seed, kind)
    shutil.copytree(where / "template", folder)
    said: list[str] = []
    if kind == "file":
        trial.what = broken(folder, chance)
    else:
        trial.ended = run_in_child(learn, folder, kind, seed, kill=chance.random() * 0.3 if kind == "kill" else None)
        with suppress(OSError, ValueError):
            said += json.loads(folder.with_suffix(".learn").read_text())["problems"]
    ended = run_in_child(look, folder, kind, seed)
    trial.ended = ended if trial.ended == "well" else trial.ended
    with suppress(OSError, ValueError):
        seen = json.loads(folder.with_suffix(".look").read_text())
        trial.lost, trial.foreign, trial.differs = seen["lost"], seen["foreign"], seen["differs"]
        trial.silent = 0 if said or seen["said"] else len(trial.lost)
    if trial.is_good:
        shutil.rmtree(folder)
    return trial


def campaign(where: Path, seeds: Sequence[int]) -> Iterator[Trial]:
    """Each trial, in the seeds' order."""
    template(where / "template")
    for seed in seeds:
        yield one(where, seed)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=140)
    parser.add_argument("--seed", type=int, default=0, help="of the first trial; the others follow")
    options = parser.parse_args(arguments)
    trials: list[Trial] = []
    with tempfile.TemporaryDirectory() as place:
        for trial in campaign(Path(place), range(options.seed, options.seed + options.trials)):
            trials.append(trial)
            if not trial.is_good:
                print(trial, file=sys.stderr)
    print(
        "| broken | trials | crashes | hangs | errors | runs lost | not said | foreign values | host runs that differ |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name in (*KINDS, "all"):
        of = [each for each in trials if name in (each.kind, "all")]
        ends = Counter(each.ended for each in of)
        figures = [len(of), ends["crash"], ends["hang"], ends["error"], sum(len(each.lost) for each in of)]
        figures += [sum(each.silent for each in of), sum(each.foreign for each in of)]
        print("| " + " | ".join([name, *map(str, [*figures, sum(each.differs for each in of)])]) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
