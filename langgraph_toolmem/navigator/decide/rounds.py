"""One round: from a decision to the calls to make, and from their results to the next situation.

A record is never changed in place: each function returns a new one. Only a `Retriever` asks the navigator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langgraph_toolmem.base.text import canonical, shortened
from langgraph_toolmem.navigator.decide.decision import (
    WINDOW,
    CallOutcome,
    DecidedCall,
    Decision,
    DecisionRecord,
    NaviRecord,
    Pending,
    Retrieved,
    Route,
    SubIntent,
    call_line,
    chain_of,
    due,
    indented,
    nothing_pending,
    retrieved_of,
    succeeded,
    tools_of,
)
from langgraph_toolmem.navigator.decide.guards import never_ran, ran_instead
from langgraph_toolmem.navigator.plan.planner import Chain, Plan, Recombination, same_effects
from langgraph_toolmem.runs.messages import status_of, text_of
from langgraph_toolmem.runs.tools import ToolSpec, side_effects
from langgraph_toolmem.text.tools import tool_text
from langgraph_toolmem.text.words import LexicalIndex
from langgraph_toolmem.turn.host import ErrorLog

if TYPE_CHECKING:
    from langgraph_toolmem.navigator import Navigator

MAX_ERROR: Final = 600
MAX_TEXT: Final = 1_500
"""Characters of a question, an answer or a search in later prompts."""
MAX_RESULT: Final = 6_000
"""Characters of a result in the current observation; more than `FULL` results share the space of `FULL`."""
FULL: Final = 6
MAX_DIGEST: Final = 400
"""Characters of a result in the list of all calls."""
MAX_CANDIDATES: Final = 24
"""Tools that the first decision is shown; later ones see up to twice as many."""
MAX_CHAINS: Final = 9
"""Chains of the last searches that are kept."""
FEW_HITS: Final = 8
"""New tools that a search for one imagined API, or a failure, brings next to those of the chains."""
FEW_TOOLS: Final = 100
"""With so many tools or fewer, a search that finds too little brings others too: words may fail to tell."""


def decided(
    record: NaviRecord, decision: Decision, specs: Mapping[str, ToolSpec], new_id: Callable[[], str]
) -> NaviRecord:
    """Return the record after a decision: allowed requests are pending, the reasons against others are observed."""
    now, later = due(decision)
    pending = nothing_pending()
    notes: list[str] = []
    for part in now:
        if part.action == "execute":
            notes += _add_call(part, record, specs, pending, new_id)
        elif part.action == "clarify":
            pending["questions"].append(part.text.strip())
        elif part.action == "retrieve" and part.query in record["queries"]:
            notes.append(f"This was searched for before, with nothing new: {_short(part.query)}")
        elif part.action == "retrieve" and part.query not in pending["queries"]:
            pending["queries"].append(part.query)
    if pending["calls"] or pending["questions"]:
        idle = 0
    elif pending["queries"]:
        idle = record["idle"]  # a search counts by its result
    else:
        idle = record["idle"] + 1
    waiting = []
    for part in later:
        line = f"[{part.rank}] {_short(part.intent)}: {part.action} {part.api}"
        waiting.append(line.rstrip())
    made = DecisionRecord(decided=[_line(part) for part in now], observed=notes)
    return {
        **record,
        "decisions": record["decisions"] + 1,
        "idle": idle,
        "waiting": waiting,
        "history": [*record["history"][-WINDOW:], made],
        "pending": pending,
    }


def _add_call(
    part: SubIntent,
    record: NaviRecord,
    specs: Mapping[str, ToolSpec],
    pending: Pending,
    new_id: Callable[[], str],
) -> list[str]:
    """Add a call to the pending ones; return the reason if it must not be made."""
    tool, args = part.api.strip(), part.arguments or {}
    if tool in record["failed"]:
        why = indented(shortened(record["failed"][tool], 200))
        return [f"{tool} was not called: it failed before ({why})."]
    if tool not in record["candidates"] or tool not in specs:
        return [f"{tool} was not called: it is no candidate API. Take a candidate, or retrieve."]
    if problem := specs[tool].problem(args):
        names = ", ".join(specs[tool].properties) or "none"
        return [f"{tool} was not called: {problem}. Its parameters: {names}."]
    before = _done_before(record["outcomes"], tool, args, specs)
    if before is not None:
        result = f"{before['status']}: {indented(before['result'])}"
        return [f"{call_line(tool, args)} was made before and is not made again: {result}"]
    if not any(_same(other, tool, args) for other in pending["calls"]):
        pending["calls"].append(DecidedCall(id=new_id(), tool=tool, args=args, intent=part.query))
    return []


def _same(call: DecidedCall | CallOutcome, tool: str, args: Mapping[str, Any]) -> bool:
    return call["tool"] == tool and canonical(call["args"]) == canonical(args)


def _done_before(
    outcomes: Sequence[CallOutcome], tool: str, args: Mapping[str, Any], specs: Mapping[str, ToolSpec]
) -> CallOutcome | None:
    """Return the latest equal call; None if there is none, or if it only read and a later call may have changed it."""
    later: list[str] = []
    for call in reversed(outcomes):
        if _same(call, tool, args):
            is_reading = call["status"] == "ok" and side_effects(specs[tool]) == "reads"
            # What was read before a change may read otherwise now.
            if is_reading and _may_have_changed(later, specs):
                return None
            before: CallOutcome = call
            return before
        if call["status"] == "ok":
            later.append(call["tool"])
    return None


def _may_have_changed(tools: Iterable[str], specs: Mapping[str, ToolSpec]) -> bool:
    """Return True if one of some tools changes something, or is unknown."""
    return any(name not in specs or side_effects(specs[name]) != "reads" for name in tools)


def observed(
    record: NaviRecord,
    answers: Sequence[ToolMessage],
    found: Sequence[Retrieved] = (),
    said: Sequence[str] = (),
) -> tuple[NaviRecord, list[DecidedCall]]:
    """Return the record after the pending requests were done, and the calls whose tools failed."""
    pending, outcomes = record["pending"], list(record["outcomes"])
    lines: list[str] = []
    failed = dict(record["failed"])
    broken: dict[str, DecidedCall] = {}
    by_id = {answer.tool_call_id: answer for answer in answers}
    most = min(MAX_RESULT, FULL * MAX_RESULT // max(1, len(pending["calls"])))
    for call in pending["calls"]:
        answer = by_id.get(call["id"])
        status, text = _outcome(answer)
        line = call_line(call["tool"], call["args"])
        ran = _executed(call, answer)
        if ran is not call:
            changed = f"changed before it was made, to {call_line(ran['tool'], ran['args'])}"
            line = f"{line} was {changed}"
            outcomes.append(_outcome_of(call, "refused", changed))
        outcomes.append(_outcome_of(ran, status, text))
        lines.append(f"{line} -> {status}: {indented(shortened(text, most))}")
        if status == "failed":
            failed.setdefault(ran["tool"], shortened(text, MAX_ERROR))
            broken.setdefault(ran["tool"], ran)
    lines += [f"The user was asked: {_short(question)}" for question in pending["questions"]]
    lines += [f"The user said: {indented(shortened(words, MAX_RESULT))}" for words in said]
    after = _noted({**record, "outcomes": outcomes, "failed": failed, "pending": nothing_pending()}, lines)
    after = _without_failed(after)
    anything_new = False
    for retrieved in found:
        after, new = with_retrieved(after, retrieved)
        outcome = "found nothing new"
        if new:
            anything_new = True
            outcome = f"found {', '.join(retrieved['tools'])}"
        after = _noted(after, [f"Searched for an API ({_short(retrieved['query'])}): {outcome}."])
    if found and not (pending["calls"] or pending["questions"]):
        after = {**after, "idle": 0 if anything_new else record["idle"] + 1}
    return after, list(broken.values())


def _executed(call: DecidedCall, answer: ToolMessage | None) -> DecidedCall:
    """Return the call that ran: a guard may have had another one executed instead."""
    instead = None if answer is None else ran_instead(answer)
    if instead is None:
        return call
    tool, args = instead
    return DecidedCall(id=call["id"], tool=tool, args=args, intent=call["intent"])


def _outcome_of(call: DecidedCall, status: Literal["ok", "failed", "refused"], result: str) -> CallOutcome:
    return CallOutcome(tool=call["tool"], args=call["args"], status=status, result=shortened(result, MAX_DIGEST))


def _outcome(answer: ToolMessage | None) -> tuple[Literal["ok", "failed", "refused"], str]:
    if answer is None:  # a tool that answers with a Command without a message, such as a handoff
        return "ok", "(no answer)"
    text = text_of(answer.content, separator="\n")
    if never_ran(answer):
        return "refused", text
    status = status_of(answer.content, error=answer.status == "error")
    if status in ("ok", "failed"):
        return status, text
    return "refused", text


def with_retrieved(record: NaviRecord, found: Retrieved) -> tuple[NaviRecord, bool]:
    """Put the result of a search in front; return True if it has a tool that was no candidate before.

    Of too many candidates, tools of chains and tools that were used leave last. The best chain is never cut.
    """
    tools = [tool for tool in found["tools"] if tool not in record["failed"]]
    new = any(tool not in record["candidates"] for tool in tools)
    earlier = [chain for chain in record["chains"] if chain not in found["chains"]]
    chains = [*found["chains"], *earlier][:MAX_CHAINS]
    planned: list[str] = []
    for chain in chains:
        planned.extend(tools_of(chain))
    known = {*tools, *record["candidates"]}
    first = [tool for tool in (*planned, *succeeded(record)) if tool in known]
    most = MAX_CANDIDATES
    if record["decisions"]:
        most = 2 * MAX_CANDIDATES
    if chains:
        most = max(most, len(tools_of(chains[0])))
    return {
        **record,
        "candidates": list(dict.fromkeys([*first, *tools, *record["candidates"]]))[:most],
        "chains": chains,
        "queries": [*record["queries"], found["query"]],
    }, new


def with_route(record: NaviRecord, route: Route, found: Retrieved | None) -> NaviRecord:
    """Return the record with the way around a failure: its chain comes first, and the decider is shown it."""
    if found is not None:
        record = with_retrieved(record, found)[0]
    failed, similar = route["failed"], ", ".join(route["similar"])
    chain = " -> ".join(route["chain"])
    closest = similar
    if not similar and found is not None:
        closest = ", ".join(found["tools"])
    text = {
        "equivalent": f"{route['fallback']} can stand in for {failed}: {chain}.",
        "upstream": f"there is another way without {failed}: {chain}.",
        "fresh": f"a fresh search for what {failed} does found what comes closest: {closest}.",
        "none": f"no other way is known for what {failed} does: if nothing else helps, say so.",
    }[route["way"]]
    if similar and route["way"] != "fresh":
        text = f"{text} Described most like {failed}: {similar}."
    return {**_noted(record, [text]), "routes": [*record["routes"], route]}


def _without_failed(record: NaviRecord) -> NaviRecord:
    """Remove failed tools from candidates and chains."""
    failed = record["failed"]
    return {
        **record,
        "candidates": [tool for tool in record["candidates"] if tool not in failed],
        "chains": [chain for chain in record["chains"] if failed.keys().isdisjoint(tools_of(chain))],
    }


def begun(record: NaviRecord, since: Sequence[BaseMessage], names: Collection[str]) -> NaviRecord:
    """Return a new record with the earlier calls for its request: a host's graph may come here again for it."""
    answers = {message.tool_call_id: message for message in since if isinstance(message, ToolMessage)}
    calls: list[DecidedCall] = []
    for message in since:
        if not isinstance(message, AIMessage):
            continue
        for call in message.tool_calls:
            # Calls without an answer, and those of the host's own tools, are not the decider's.
            if call["id"] in answers and call["name"] in names:
                calls.append(DecidedCall(id=str(call["id"]), tool=call["name"], args=call["args"], intent=""))
    pending: Pending = {**nothing_pending(), "calls": calls}
    before: NaviRecord = {**record, "pending": pending, "history": [DecisionRecord(decided=[], observed=[])]}
    after, _ = observed(before, list(answers.values()))
    return {**after, "history": []}


def _noted(record: NaviRecord, lines: Sequence[str]) -> NaviRecord:
    *earlier, last = record["history"]
    noted = DecisionRecord(decided=last["decided"], observed=[*last["observed"], *lines])
    return {**record, "history": [*earlier, noted]}


def _line(part: SubIntent) -> str:
    args = part.arguments or {}
    if part.action == "execute":
        what = call_line(part.api.strip(), args)
    elif part.action == "retrieve":
        what = _short(part.query)
    else:
        what = _short(part.text)
    line = f"[{part.rank}] {_short(part.intent)}: {part.action} {what}"
    if part.analysis:
        line = f"{line} ({_short(part.analysis)})"
    return line


def _short(text: str) -> str:
    return indented(shortened(text.strip(), MAX_TEXT))


# --- questions to the navigator ---


class CallContext(NamedTuple):
    """Names of the tools that may be called at this moment, and the user of the run, if known."""

    allowed: Collection[str]
    user_id: str | None


class Retriever:
    """The searches of one subgraph. A search that raises is logged once and finds nothing."""

    def __init__(self, navigator: Navigator, specs: Mapping[str, ToolSpec], errors: ErrorLog) -> None:
        self._navigator, self._specs, self._errors = navigator, specs, errors
        self._index: LexicalIndex | None = None

    def search(self, record: NaviRecord, query: str, context: CallContext, *, most: int = FEW_HITS) -> Retrieved:
        """Return the tools for a request or an imagined API: complete chains, then at most `most` others that are new.

        Where hardly any tool fits, others fill up, but in a large catalogue only if there is no candidate yet.
        """
        plan = self._plan(record, context, query)
        planned = () if plan is None else plan.tools
        had = {*record["failed"], *record["candidates"], *planned}
        hits = [name for name in self._hits(query, context, most + len(had)) if name not in had]
        is_small = len(context.allowed) <= FEW_TOOLS
        is_empty = not (hits or planned or record["candidates"])
        if is_small or is_empty:
            had.update(hits)
            hits += [name for name in self._specs if name in context.allowed and name not in had]
        return retrieved_of(query, plan, hits[:most])

    def reroute(
        self, before: NaviRecord, after: NaviRecord, call: DecidedCall, context: CallContext
    ) -> tuple[Route, Retrieved | None]:
        """Return the way around a failed call: an equivalent tool, another way from upstream, or a fresh search."""
        tool = call["tool"]
        similar = self._similar(tool, {name for name in context.allowed if name not in after["failed"]})
        chain = self._broken(before, tool, context)
        way = Recombination("none")
        had: set[str] = set()
        if chain is not None:
            way = self._recombined(chain, after, context)
            had = {*chain.tools, way.fallback}
        if way.way != "none" and way.chain is not None and self._careful(way.chain.tools, had):
            tools = list(way.chain.tools)
            others = [name for name in similar if name not in tools]
            route = Route(failed=tool, way=way.way, fallback=way.fallback, chain=tools, similar=others)
            return route, retrieved_of(f"in place of {tool}", way.plan, others)
        found = self._fresh(after, call, context, similar)
        if not found["tools"]:
            return Route(failed=tool, way="none", fallback="", chain=[], similar=[]), None
        chains = [chain for chain in found["chains"] if self._careful(tools_of(chain), had)]
        first = tools_of(chains[0]) if chains else []
        return Route(failed=tool, way="fresh", fallback="", chain=first, similar=similar), {**found, "chains": chains}

    def _recombined(self, chain: Chain, after: NaviRecord, context: CallContext) -> Recombination:
        try:
            return self._navigator.reroute(chain, after["failed"], available=context.allowed, done=succeeded(after))
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
            return Recombination("none")

    def _careful(self, tools: Sequence[str], had: Collection[str]) -> bool:
        """Return True if no new step changes something only to get a value for the target."""
        for name in tools[:-1]:
            if name not in had and name in self._specs and side_effects(self._specs[name]) != "reads":
                return False
        return True

    def _similar(self, tool: str, allowed: Collection[str]) -> list[str]:
        """Return tools with a similar text and the same side effects; this needs no schema of outputs and no runs."""
        spec = self._specs.get(tool)
        if spec is None:
            return []
        if self._index is None:
            self._index = LexicalIndex((name, tool_text(other)) for name, other in self._specs.items())
        similar: list[str] = []
        for name, _ in self._index.search(tool_text(spec), len(self._specs)):
            if len(similar) == FEW_HITS:
                break
            # What only looks things up must not be replaced by what changes them.
            if name in allowed and name != tool and same_effects(spec, self._specs[name]):
                similar.append(name)
        return similar

    def _broken(self, before: NaviRecord, tool: str, context: CallContext) -> Chain | None:
        """Return the chain of the failed tool; a new one to it if it was in none."""
        for chain in before["chains"]:
            if tool in tools_of(chain):
                return chain_of(chain)
        if tool not in self._specs:
            return None
        there = CallContext({*context.allowed, tool}, context.user_id)
        plan = self._plan(before, there, target=tool)
        return None if plan is None else plan.chain

    def _fresh(self, record: NaviRecord, call: DecidedCall, context: CallContext, similar: list[str]) -> Retrieved:
        """Search for the failed tool's description, the purpose of the call, or the request, until a tool is new."""
        texts = [call["intent"], record["request"]]
        if call["tool"] in self._specs:
            texts.insert(0, self._specs[call["tool"]].description)
        found = retrieved_of("", None)
        for text in texts:
            if text.strip():
                found = self.search(record, text.strip(), context, most=FEW_HITS - len(similar))
                if not {*similar, *found["tools"]}.issubset(record["candidates"]):
                    break
        return {**found, "tools": list(dict.fromkeys([*similar, *found["tools"]]))}

    def _plan(
        self, record: NaviRecord, context: CallContext, query: str = "", *, target: str | None = None
    ) -> Plan | None:
        avoided = set(record["failed"]) - {target}
        try:
            return self._navigator.plan(
                query or record["request"],
                target=target,
                available=context.allowed,
                avoid=avoided,
                done=[name for name in succeeded(record) if name not in avoided],
                user_id=context.user_id,
            )
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
            return None

    def _hits(self, query: str, context: CallContext, most: int) -> list[str]:
        try:
            hits = self._navigator.search(query, k=most, available=context.allowed, user_id=context.user_id)
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
            return []
        return [hit.name for hit in hits]
