"""One round: from a decision to calls that may be made, and from what came of them to the next situation. No I/O.

A record is never changed in place: each function gives a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langgraph_toolmem.base.text import canonical, shortened
from langgraph_toolmem.navigator.decide.decision import Decision, SubIntent, due
from langgraph_toolmem.navigator.decide.guards import never_ran, ran_instead
from langgraph_toolmem.navigator.decide.prompt import call_line, indented
from langgraph_toolmem.navigator.decide.state import (
    WINDOW,
    DecidedCall,
    Made,
    NaviLimits,
    NaviRecord,
    Pair,
    Pending,
    Retrieved,
    Route,
    Search,
    merged,
    nothing_pending,
    tools_of,
)
from langgraph_toolmem.runs.messages import status_of, text_of
from langgraph_toolmem.runs.tools import ToolSpec, side_effects

GONE: Final = "it is no longer there"
MAX_ERROR: Final = 600
MAX_TEXT: Final = 1_500
"""Characters of a question, an answer or a search, where it is shown again."""
RESULTS: Final = 6
"""Results of full length that one observation holds; more of them share the room."""
Judge = Callable[[ToolMessage], bool]
"""Whether a tool's error says that it cannot do its work: then it is not called again in this run."""


def decided(
    record: NaviRecord,
    decision: Decision,
    specs: Mapping[str, ToolSpec],
    allowed: Collection[str],
    new_id: Callable[[], str],
) -> NaviRecord:
    """The record after a decision: what may be done is pending, what may not is observed.

    Args:
        record: the run so far.
        decision: what the model decided; no final answer.
        specs: the tools by name.
        allowed: names of the tools that may be called now.
        new_id: ids for calls.
    """
    now, later = due(decision)
    pending = nothing_pending()
    notes: list[str] = []
    for part in now:
        if part.action == "execute":
            _call(part, record, specs, allowed, pending, notes, new_id)
        elif part.action == "retrieve":
            if part.sought in record["sought"]:
                notes.append(f"This was searched for before, with nothing new: {_short(part.sought)}")
            elif all(part.sought != search["recall"] for search in pending["searches"]):
                pending["searches"].append(Search(recall=part.sought, intent=part.intent))
        elif part.action == "clarify":
            pending["questions"].append(part.text.strip())
        else:
            notes.append(f"Answered ({_short(part.intent)}): {indented(_short(part.text))}")
    pair = Pair(decided=[_line(part) for part in now], observed=notes)
    busy = any(pending.values())
    return {
        **record,
        "decisions": record["decisions"] + 1,
        "idle": 0 if busy else record["idle"] + 1,
        "waiting": [_waits(part) for part in later],
        "pairs": [*record["pairs"], pair][-WINDOW - 1 :],
        "pending": pending,
    }


def _call(
    part: SubIntent,
    record: NaviRecord,
    specs: Mapping[str, ToolSpec],
    allowed: Collection[str],
    pending: Pending,
    notes: list[str],
    new_id: Callable[[], str],
) -> None:
    tool, args = part.api.strip(), part.arguments or {}
    if tool in record["failed"]:
        notes.append(f"{tool} was not called: it failed before ({indented(shortened(record['failed'][tool], 200))}).")
        return
    if tool not in record["candidates"]:
        notes.append(f"{tool} was not called: it is no candidate API. Take a candidate, or retrieve.")
        return
    call = DecidedCall(id=new_id(), tool=tool, args=args, intent=part.sought)
    if tool not in allowed:
        pending["gone"].append(call)
        return
    spec = specs[tool]
    if problem := spec.problem(args):
        notes.append(f"{tool} was not called: {problem}. Its parameters: {', '.join(spec.properties) or 'none'}.")
        return
    before = _done_before(record["made"], tool, args)
    if before is not None and not _stale(record["made"], before, specs):
        made = record["made"][before]
        result = f"{made['status']}: {indented(made['result'])}"
        notes.append(f"{call_line(tool, args)} was made before and is not made again: {result}")
    elif not any(_same(other["tool"], other["args"], tool, args) for other in pending["calls"]):
        pending["calls"].append(call)


def observed(
    record: NaviRecord,
    answers: Sequence[ToolMessage],
    found: Sequence[Retrieved],
    said: Sequence[str],
    *,
    limits: NaviLimits,
    judge: Judge | None = None,
) -> tuple[NaviRecord, list[DecidedCall]]:
    """The record after what was pending was done, and the calls whose tools turned out to be out of order."""
    pending, made, lines = record["pending"], list(record["made"]), []
    failed = dict(record["failed"])
    broken: dict[str, DecidedCall] = {}
    by_id = {answer.tool_call_id: answer for answer in answers}
    for call in pending["gone"]:
        failed[call["tool"]] = GONE
        broken.setdefault(call["tool"], call)
        lines.append(f"{call['tool']} was not called: {GONE}.")
    outcomes = [_outcome(by_id.get(call["id"]), judge) for call in pending["calls"]]
    rooms = _shares([len(text) for _, text in outcomes], limits.result)
    for call, (status, text), room in zip(pending["calls"], outcomes, rooms, strict=True):
        ran, line = _as_it_ran(call, by_id.get(call["id"])), call_line(call["tool"], call["args"])
        short = shortened(text, limits.digest)
        if ran is not call:
            changed = f"changed before it was made, to {call_line(ran['tool'], ran['args'])}"
            line = f"{line} was {changed}"
            refused = shortened(changed, limits.digest)
            made.append(Made(tool=call["tool"], args=call["args"], status="refused", result=refused))
        made.append(Made(tool=ran["tool"], args=ran["args"], status=status, result=short))
        lines.append(f"{line} -> {status}: {indented(shortened(text, room))}")
        if status == "failed":
            failed.setdefault(ran["tool"], shortened(text, MAX_ERROR))
            broken.setdefault(ran["tool"], ran)
    lines += [f"The user was asked: {_short(question)}" for question in pending["questions"]]
    lines += [f"The user said: {indented(shortened(words, limits.result))}" for words in said]
    pair = record["pairs"][-1]
    after: NaviRecord = {
        **record,
        "made": made,
        "failed": failed,
        "pairs": [*record["pairs"][:-1], Pair(decided=pair["decided"], observed=[*pair["observed"], *lines])],
        "pending": nothing_pending(),
    }
    after = without_failed(after)
    anything_new = False
    for each in found:
        after, new = with_retrieved(after, each, limits)
        anything_new = anything_new or new
        outcome = f"found {', '.join(each['tools'])}" if new else "found nothing new"
        after = _noted(after, f"Searched for an API ({_short(each['recall'])}): {outcome}.")
    only_searched = bool(found) and not (pending["calls"] or pending["questions"] or pending["gone"])
    if only_searched and not anything_new:
        after = {**after, "idle": record["idle"] + 1}
    return after, list(broken.values())


def with_retrieved(record: NaviRecord, found: Retrieved, limits: NaviLimits) -> tuple[NaviRecord, bool]:
    """Put what a search found in front; return True if there is a tool that was no candidate before.

    Tools of chains and those that were used are the last to be left out where there are too many; the best chain is
    never cut.
    """
    tools = [tool for tool in found["tools"] if tool not in record["failed"]]
    new = any(tool not in record["candidates"] for tool in tools)
    chains = [*found["chains"], *(chain for chain in record["chains"] if chain not in found["chains"])]
    chains = chains[: 3 * limits.chains]
    planned = [tool for chain in chains for tool in tools_of(chain)]
    first = [tool for tool in (*planned, *succeeded(record)) if tool in tools or tool in record["candidates"]]
    bound = limits.candidates * (2 if record["decisions"] else 1)
    most = max(bound, len(tools_of(chains[0])) if chains else 0)
    candidates = list(dict.fromkeys([*first, *tools, *record["candidates"]]))[:most]
    return {
        **record,
        "candidates": candidates,
        "chains": chains,
        "subgraph": merged([record["subgraph"], found["subgraph"]]),
        "sought": [*record["sought"], found["recall"]],
    }, new


def with_route(record: NaviRecord, route: Route, found: Retrieved | None, limits: NaviLimits) -> NaviRecord:
    """Return what was done about a failure: the chain that goes on comes first, and the decider is shown it."""
    if found is not None:
        record = with_retrieved(record, found, limits)[0]
    failed, similar = route["failed"], ", ".join(route["similar"])
    chain = " -> ".join(route["chain"])
    text = {
        "equivalent": f"{route['fallback']} can stand in for {failed}: {chain}.",
        "upstream": f"there is another way without {failed}: {chain}.",
        "fresh": f"a fresh search for what {failed} does found what comes closest: "
        f"{similar or ', '.join(() if found is None else found['tools'])}.",
        "none": f"no other way is known for what {failed} does: if nothing else helps, say so.",
    }[route["way"]]
    if similar and route["way"] != "fresh":
        text = f"{text} Described most like {failed}: {similar}."
    return {**_noted(record, text), "routes": [*record["routes"], route]}


def without_failed(record: NaviRecord) -> NaviRecord:
    """No failed tool is a candidate or part of a chain or subgraph any more."""
    out = record["failed"]
    gone = {f"api:{tool}" for tool in out}
    graph = record["subgraph"]
    return {
        **record,
        "candidates": [tool for tool in record["candidates"] if tool not in out],
        "chains": [chain for chain in record["chains"] if not any(tool in out for tool in tools_of(chain))],
        "subgraph": {
            "nodes": [node for node in graph["nodes"] if node["id"] not in gone],
            "edges": [edge for edge in graph["edges"] if not gone & {edge["source"], edge["target"]}],
        },
    }


def begun(
    record: NaviRecord,
    since: Sequence[BaseMessage],
    names: Collection[str],
    *,
    limits: NaviLimits,
    judge: Judge | None = None,
) -> NaviRecord:
    """A record that knows what was called for this request before: a host's graph may come here several times for it.

    Args:
        record: a new one.
        since: the messages after the request.
        names: of the tools; calls of others are passed over.
        limits, judge: as for `observed`.
    """
    answers = {message.tool_call_id: message for message in since if isinstance(message, ToolMessage)}
    calls = [
        DecidedCall(id=str(call["id"]), tool=call["name"], args=call["args"], intent="")
        for message in since
        if isinstance(message, AIMessage)
        for call in message.tool_calls
        if call["id"] in answers and call["name"] in names
    ]
    if not calls:
        return record
    pending = Pending(calls=calls, searches=[], questions=[], gone=[])
    before: NaviRecord = {**record, "pending": pending, "pairs": [Pair(decided=[], observed=[])]}
    after, _ = observed(before, list(answers.values()), [], [], limits=limits, judge=judge)
    return {**after, "pairs": []}


def succeeded(record: NaviRecord) -> list[str]:
    """Tools that were called with success, each once."""
    return list(dict.fromkeys(made["tool"] for made in record["made"] if made["status"] == "ok"))


def given_values(record: NaviRecord) -> dict[str, Any]:
    """Names and values of what was given to calls that succeeded."""
    return {name: value for made in record["made"] if made["status"] == "ok" for name, value in made["args"].items()}


def _as_it_ran(call: DecidedCall, answer: ToolMessage | None) -> DecidedCall:
    """The call with the tool and the arguments that a guard of the host made of it."""
    instead = None if answer is None else ran_instead(answer)
    return (
        call if instead is None else DecidedCall(id=call["id"], tool=instead[0], args=instead[1], intent=call["intent"])
    )


def _shares(lengths: Sequence[int], most: int) -> list[int]:
    """Characters that each result may take: `most`, or a fair part where all together would take too many."""
    left, rooms = RESULTS * most, [0] * len(lengths)
    for done, place in enumerate(sorted(range(len(lengths)), key=lambda n: lengths[n])):
        rooms[place] = min(most, lengths[place], left // (len(lengths) - done))
        left -= rooms[place]
    return rooms


def _outcome(answer: ToolMessage | None, judge: Judge | None) -> tuple[Any, str]:
    if answer is None:  # a tool that answers by a Command without a message, such as a handoff
        return "ok", "(no answer)"
    text = text_of(answer.content, separator="\n")
    if never_ran(answer):
        return "refused", text
    status = status_of(answer.content, error=answer.status == "error")
    if status == "ok":
        return "ok", text
    if status == "failed" and (judge is None or judge(answer)):
        return "failed", text
    return "refused", text


def _noted(record: NaviRecord, line: str) -> NaviRecord:
    pair = record["pairs"][-1]
    noted = Pair(decided=pair["decided"], observed=[*pair["observed"], line])
    return {**record, "pairs": [*record["pairs"][:-1], noted]}


def _same(tool: str, args: Mapping[str, Any], other: str, others: Mapping[str, Any]) -> bool:
    return tool == other and canonical(args) == canonical(others)


def _done_before(made: Sequence[Made], tool: str, args: Mapping[str, Any]) -> int | None:
    """Return where the latest call with the same arguments stands; None if there is none."""
    places = (n for n in reversed(range(len(made))) if _same(made[n]["tool"], made[n]["args"], tool, args))
    return next(places, None)


def _stale(made: Sequence[Made], place: int, specs: Mapping[str, ToolSpec]) -> bool:
    """Return True if a call that only read may read something else now: a later call may have changed it."""
    spec = specs.get(made[place]["tool"])
    if spec is None or made[place]["status"] != "ok" or side_effects(spec) != "reads":
        return False
    later = (call["tool"] for call in made[place + 1 :] if call["status"] == "ok")
    return any(tool not in specs or side_effects(specs[tool]) != "reads" for tool in later)


def _line(part: SubIntent) -> str:
    what = {
        "execute": lambda: call_line(part.api.strip(), part.arguments or {}),
        "retrieve": lambda: indented(_short(part.sought)),
        "clarify": lambda: indented(_short(part.text)),
        "answer": lambda: indented(_short(part.text)),
    }[part.action]()
    why = f" ({indented(_short(part.analysis))})" if part.analysis else ""
    return f"[{part.rank}] {indented(_short(part.intent))}: {part.action} {what}{why}"


def _waits(part: SubIntent) -> str:
    return f"[{part.rank}] {indented(_short(part.intent))}: {part.action} {part.api}".rstrip()


def _short(text: str) -> str:
    return shortened(text.strip(), MAX_TEXT)
