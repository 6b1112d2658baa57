"""Hints that earn their place, in a simulation with planted helpful, useless and harmful hints.

Three kinds of requests have three hints each; agents follow a hint at a stated rate. A hint that is followed adds to
the chance of success (helpful), takes from it (harmful) or changes nothing. The memory reads, draws, learns and judges
as in an agent; only the model's choices are drawn here.

Prints, for each rate: the showings until harmful hints are gone, how many helpful ones stay, and what withholding
costs: the success lost by helpful hints that were left out, and the success gained by harmful ones that are gone.

    python -m benchmarks.hints --episodes 6000 --seeds 5
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import quantiles

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from langgraph_toolmem import SIT, ToolMemory

KINDS = {"refund": "Refund order", "track": "Where is parcel", "book": "Book a table at"}
WORTH = {"helpful": 0.25, "useless": 0.0, "harmful": -0.25}
"""Change of the chance of success where the hint is followed."""
BASE = 0.55
"""Chance of success without any hint."""
METHOD = "sit"


@dataclass
class Result:
    """The result of simulations at one rate of following.

    Attributes:
        follow: the rate.
        gone_after: showings after which each harmful hint was gone.
        harmful: number of harmful hints; those that were not found stay shown.
        helpful, helpful_kept: number of helpful hints, and of those that are still shown.
        useless, useless_stopped: number of useless hints, and of those that are no longer shown.
        lost: mean success lost per episode by withheld or retired helpful hints.
        gained: mean success gained per episode by harmful hints that were withheld or retired.
    """

    follow: float
    gone_after: list[int] = field(default_factory=list)
    harmful: int = 0
    helpful: int = 0
    helpful_kept: int = 0
    useless: int = 0
    useless_stopped: int = 0
    lost: float = 0.0
    gained: float = 0.0


def simulate(follow: float, episodes: int, seed: int, result: Result) -> None:
    """Run one agent's life, and add what happened to a result."""
    rng = random.Random(seed)
    shown: Counter[str] = Counter()
    gone: dict[str, int] = {}
    lost = gained = 0.0
    with ToolMemory.ephemeral(methods=[SIT()], withhold=0.1) as memory:
        core = memory._core  # noqa: SLF001 - the trials, without an agent around them
        for number in range(episodes):
            kind = rng.choice(list(KINDS))
            thread = f"life-{seed}-{number}"
            messages: list[AnyMessage] = [HumanMessage(f"{KINDS[kind]} {rng.randrange(10**6)}", id=f"{thread}-u")]
            run = core.read(messages, thread)
            state = core.state_of(run)
            core.know(run)
            items = [f"{kind}_{worth}" for worth in WORTH]
            standings = core.trials.standings(METHOD, state, items)
            left = [item for item in items if standings.get(item) not in ("hurts", "idle")]
            for item in items:
                if item not in left and item not in gone:
                    gone[item] = shown[item]
            visible = [item for item in left if item not in core.trials.draw(METHOD, run, state, left, None)]
            shown.update(visible)
            if visible:
                core.ledger.shown(METHOD, dict.fromkeys(visible, None), run=run.digest, turn=run.next_key)
            for worth, change in WORTH.items():
                if f"{kind}_{worth}" not in visible:
                    lost += max(change, 0.0) * follow
                    gained += max(-change, 0.0) * follow
            chance, calls = BASE, rng.choice((1, 2, 3))
            for item in visible:
                if rng.random() < follow:
                    change = WORTH[item.partition("_")[2]]
                    chance += change
                    calls += 1 if change < 0 else 0
            for call in range(calls):
                identity = f"{thread}-{call}"
                made = tool_call(name=kind, args={"step": call}, id=identity)
                messages += [AIMessage("", tool_calls=[made]), ToolMessage("ok", tool_call_id=identity)]
            messages.append(AIMessage("Done."))
            memory.finish(messages, thread_id=thread, success=rng.random() < chance)
    result.lost += lost / episodes
    result.gained += gained / episodes
    for kind in KINDS:
        result.harmful += 1
        result.helpful += 1
        result.useless += 1
        result.helpful_kept += f"{kind}_helpful" not in gone
        result.useless_stopped += f"{kind}_useless" in gone
        if f"{kind}_harmful" in gone:
            result.gone_after.append(gone[f"{kind}_harmful"])


def simulated(follow: float, episodes: int, seeds: int) -> Result:
    """Return the result of several lives at one rate."""
    result = Result(follow)
    for seed in range(seeds):
        simulate(follow, episodes, seed, result)
    result.lost /= seeds
    result.gained /= seeds
    return result


def in_words(result: Result) -> str:
    """Return a result as one line."""
    after = sorted(result.gone_after)
    when = "never"
    if len(after) > 1:
        when = f"{after[len(after) // 2]:,} (median), {quantiles(after, n=10)[-1]:,.0f} (90 %)"
    return (
        f"follow {result.follow:.2f}: harmful gone {len(after)} of {result.harmful}, after showings {when}; "
        f"helpful kept {result.helpful_kept} of {result.helpful}; useless stopped {result.useless_stopped} of "
        f"{result.useless}; success per episode lost {result.lost:.3f}, gained {result.gained:.3f}"
    )


def main(argv: list[str] | None = None) -> None:
    """Print one line for each rate of following."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=6_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--follow", type=float, nargs="+", default=[1.0, 0.7, 0.5])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    results = [simulated(follow, options.episodes, options.seeds) for follow in options.follow]
    for result in results:
        print(in_words(result))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
