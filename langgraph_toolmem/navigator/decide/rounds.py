"""One round: from a decision to the calls to make, and from their results to the next situation.

A record is never changed in place: each function returns a new one. Only a `Retriever` asks the navigator.

The host may guard the execution of a call. A guard may edit the call, or answer it without executing it; it leaves a
mark (`GUARD_MARK`). Then the decider sees the executed call, and a tool that never ran has not failed, for any text of
the guard.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph import errors as langgraph_errors
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.text import canonical, shortened
from langgraph_toolmem.navigator.decide.decision import (
    WINDOW,
    CallOutcome,
    CallStatus,
    DecidedCall,
    DecisionRecord,
    NaviDecision,
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
from langgraph_toolmem.navigator.plan.planner import Chain, Plan, Recombination, same_effects
from langgraph_toolmem.runs.run import status_of, text_of
from langgraph_toolmem.runs.tools import ToolSpec, side_effects
from langgraph_toolmem.text.wording import tool_text
from langgraph_toolmem.text.words import LexicalIndex
from langgraph_toolmem.turn.host import ErrorLog

if TYPE_CHECKING:
    from langgraph_toolmem.navigator import Navigator

MAX_CANDIDATES: Final = 24
"""Number of tools for the first decision; later decisions see up to twice as many."""


@dataclass(frozen=True, slots=True)
class RoundLimits:
    """Sizes of a round; texts are in characters.

    Attributes:
        error: a failure in later prompts.
        text: a question, an answer or a search in later prompts.
        result: a result in the current observation.
        full: with more results than this, they share the space of this number.
        digest: a result in the list of all calls.
        chains: limit of kept chains of the last searches.
        few_hits: new tools that a search for one imagined API, or a failure, adds to those of the chains.
        few_tools: with at most this number of tools, a search with too few hits adds others too, because words may not
            match.
    """

    error: int = 600
    text: int = 1_500
    result: int = 6_000
    full: int = 6
    digest: int = 400
    chains: int = 9
    few_hits: int = 8
    few_tools: int = 100


ROUND_LIMITS: Final = RoundLimits()


def decided(
    record: NaviRecord, decision: NaviDecision, specs: Mapping[str, ToolSpec], new_id: Callable[[], str]
) -> NaviRecord:
    """Return the record after a decision: allowed requests are pending, and the others become observations with the
    reason.
    """
    now, later = due(decision)
    pending = nothing_pending()
    notes: list[str] = []
    for part in now:
        if part.action == "execute":
            notes += _add_call(part, record, specs, pending, new_id)
        elif part.action == "clarify":
            pending["questions"].append(part.text.strip())
        elif part.action == "retrieve":
            notes += _add_query(part, record, pending)
    waiting = []
    for part in later:
        line = f"[{part.rank}] {_short(part.intent)}: {part.action} {part.api}"
        waiting.append(line.rstrip())
    made = DecisionRecord(decided=[_line(part) for part in now], observed=notes)
    # A prompt shows this number of earlier decisions; more would only enlarge each checkpoint.
    earlier = record["history"][-WINDOW:]
    return {
        **record,
        "decisions": record["decisions"] + 1,
        "idle": _idle_after(record, pending),
        "waiting": waiting,
        "history": [*earlier, made],
        "pending": pending,
    }


def _add_query(part: SubIntent, record: NaviRecord, pending: Pending) -> list[str]:
    """Add a search for tools to the pending ones; return the reason if it was made before."""
    # The same words find the same tools: without this rule a decider that repeats them would never end.
    if part.query in record["queries"]:
        return [f"This was searched for before, with nothing new: {_short(part.query)}"]
    if part.query not in pending["queries"]:
        pending["queries"].append(part.query)
    return []


def _idle_after(record: NaviRecord, pending: Pending) -> int:
    """Return the number of decisions in a row without a new call, question or tool."""
    if pending["calls"] or pending["questions"]:
        return 0
    # A search counts by its result; see `observed`.
    if pending["queries"]:
        return record["idle"]
    return record["idle"] + 1


def _add_call(
    part: SubIntent,
    record: NaviRecord,
    specs: Mapping[str, ToolSpec],
    pending: Pending,
    new_id: Callable[[], str],
) -> list[str]:
    """Add a call to the pending ones; return the reason if it must not be made."""
    tool, args = part.api.strip(), part.arguments or {}
    reason = _why_not(tool, args, record, specs)
    if reason:
        return [reason]
    # A model may decide the same call twice in one round.
    if not any(_same(other, tool, args) for other in pending["calls"]):
        pending["calls"].append(DecidedCall(id=new_id(), tool=tool, args=args, intent=part.query))
    return []


def _why_not(tool: str, args: Mapping[str, Any], record: NaviRecord, specs: Mapping[str, ToolSpec]) -> str:
    """Return why a call must not be made, for the decider; "" if it may."""
    # The prompt says all of this, but a model may ignore it.
    if tool in record["failed"]:
        why = indented(shortened(record["failed"][tool], 200))
        return f"{tool} was not called: it failed before ({why})."
    if tool not in record["candidates"] or tool not in specs:
        return f"{tool} was not called: it is no candidate API. Take a candidate, or retrieve."
    problem = specs[tool].problem(args)
    # Refused here: the error of a call with wrong arguments would disable the tool.
    if problem:
        names = ", ".join(specs[tool].properties) or "none"
        return f"{tool} was not called: {problem}. Its parameters: {names}."
    before = _done_before(record["outcomes"], tool, args, specs)
    if before is not None:
        result = f"{before['status']}: {indented(before['result'])}"
        return f"{call_line(tool, args)} was made before and is not made again: {result}"
    return ""


def _same(call: DecidedCall | CallOutcome, tool: str, args: Mapping[str, Any]) -> bool:
    return call["tool"] == tool and canonical(call["args"]) == canonical(args)


def _done_before(
    outcomes: Sequence[CallOutcome], tool: str, args: Mapping[str, Any], specs: Mapping[str, ToolSpec]
) -> CallOutcome | None:
    """Return the latest equal call; None without one, or if it only read and a later call may have changed its
    result.
    """
    later: list[str] = []
    for call in reversed(outcomes):
        if _same(call, tool, args):
            is_reading = call["status"] == "ok" and side_effects(specs[tool]) == "reads"
            # Data that was read before a change may differ now.
            if is_reading and _may_have_changed(later, specs):
                return None
            before: CallOutcome = call
            return before
        if call["status"] == "ok":
            later.append(call["tool"])
    return None


def _may_have_changed(tools: Iterable[str], specs: Mapping[str, ToolSpec]) -> bool:
    """Return True if one of some tools changes something, or is unknown."""
    for name in tools:
        if name not in specs or side_effects(specs[name]) != "reads":
            return True
    return False


class ObservedRound(NamedTuple):
    """The record after the results of a round, and the calls whose tools failed."""

    record: NaviRecord
    broken: list[DecidedCall]


def observed(
    record: NaviRecord,
    answers: Sequence[ToolMessage],
    found: Sequence[Retrieved] = (),
    said: Sequence[str] = (),
) -> ObservedRound:
    """Return the record after the pending requests were done, and the calls whose tools failed."""
    pending = record["pending"]
    after, broken = _with_answers(record, {answer.tool_call_id: answer for answer in answers})
    after = _without_failed(_noted(after, _dialogue(pending["questions"], said)))
    anything_new = False
    for retrieved in found:
        is_new = _is_new(after, retrieved)
        anything_new |= is_new
        outcome = "found nothing new"
        if is_new:
            outcome = f"found {', '.join(retrieved['tools'])}"
        after = with_retrieved(after, retrieved)
        after = _noted(after, [f"Searched for an API ({_short(retrieved['query'])}): {outcome}."])
    only_searched = bool(found) and not (pending["calls"] or pending["questions"])
    if only_searched and anything_new:
        after = {**after, "idle": 0}
    elif only_searched:
        after = {**after, "idle": record["idle"] + 1}
    return ObservedRound(after, broken)


def _dialogue(questions: Iterable[str], said: Iterable[str]) -> list[str]:
    """Return the questions to the user, and the user's answers, in one line each."""
    lines: list[str] = []
    for question in questions:
        lines.append(f"The user was asked: {_short(question)}")
    for words in said:
        lines.append(f"The user said: {indented(shortened(words, ROUND_LIMITS.result))}")
    return lines


def _with_answers(record: NaviRecord, answers: Mapping[str, ToolMessage]) -> ObservedRound:
    """Return the record after the pending calls, without pending requests, and the calls whose tools failed."""
    calls, outcomes = record["pending"]["calls"], list(record["outcomes"])
    lines: list[str] = []
    failed = dict(record["failed"])
    broken: dict[str, DecidedCall] = {}
    most = min(ROUND_LIMITS.result, ROUND_LIMITS.full * ROUND_LIMITS.result // max(1, len(calls)))
    for call in calls:
        answer = answers.get(call["id"])
        status, text = _outcome(answer)
        line = call_line(call["tool"], call["args"])
        ran = _executed(call, answer)
        if ran is not call:
            changed = f"changed before it was made, to {call_line(ran['tool'], ran['args'])}"
            line = f"{line} was {changed}"
            # The decider's own call counts as refused: it must not be decided again.
            outcomes.append(_outcome_of(call, "refused", changed))
        outcomes.append(_outcome_of(ran, status, text))
        lines.append(f"{line} -> {status}: {indented(shortened(text, most))}")
        if status == "failed":
            # The tool that ran is disabled, not the requested one.
            failed.setdefault(ran["tool"], shortened(text, ROUND_LIMITS.error))
            broken.setdefault(ran["tool"], ran)
    after: NaviRecord = {**record, "outcomes": outcomes, "failed": failed, "pending": nothing_pending()}
    return ObservedRound(_noted(after, lines), list(broken.values()))


def _executed(call: DecidedCall, answer: ToolMessage | None) -> DecidedCall:
    """Return the call that ran, which a guard may have replaced."""
    if answer is None:
        return call
    instead = ran_instead(answer)
    if instead is None:
        return call
    return DecidedCall(id=call["id"], tool=instead.tool, args=instead.args, intent=call["intent"])


def _outcome_of(call: DecidedCall, status: CallStatus, result: str) -> CallOutcome:
    return CallOutcome(
        tool=call["tool"], args=call["args"], status=status, result=shortened(result, ROUND_LIMITS.digest)
    )


def _outcome(answer: ToolMessage | None) -> tuple[CallStatus, str]:
    # A tool may answer with a Command without a message, such as a handoff.
    if answer is None:
        return "ok", "(no answer)"
    text = text_of(answer.content, separator="\n")
    if never_ran(answer):
        return "refused", text
    status = status_of(answer.content, error=answer.status == "error")
    if status in ("ok", "failed"):
        return status, text
    # A person's refusal is not a failure of the tool, so it is not replaced.
    return "refused", text


def _working(record: NaviRecord, found: Retrieved) -> list[str]:
    """Return the tools of a search without the failed ones."""
    return [tool for tool in found["tools"] if tool not in record["failed"]]


def _is_new(record: NaviRecord, found: Retrieved) -> bool:
    """Return True if a search has a new candidate."""
    return not set(_working(record, found)).issubset(record["candidates"])


def with_retrieved(record: NaviRecord, found: Retrieved) -> NaviRecord:
    """Return the record with the result of a search as its first candidates and chains.

    If there are too many candidates, tools of chains and used tools are removed last. The best chain is never cut.
    """
    tools = _working(record, found)
    chains = list(found["chains"])
    for earlier in record["chains"]:
        if earlier not in found["chains"]:
            chains.append(earlier)
    chains = chains[: ROUND_LIMITS.chains]
    candidates = _first_candidates({*tools, *record["candidates"]}, chains, record)
    candidates += [*tools, *record["candidates"]]
    most = MAX_CANDIDATES
    # Later searches add to the first one's tools: the decider may still need both.
    if record["decisions"]:
        most = 2 * MAX_CANDIDATES
    if chains:
        most = max(most, len(tools_of(chains[0])))
    return {
        **record,
        "candidates": list(dict.fromkeys(candidates))[:most],
        "chains": chains,
        "queries": [*record["queries"], found["query"]],
    }


def _first_candidates(known: Collection[str], chains: Iterable[Mapping[str, Any]], record: NaviRecord) -> list[str]:
    """Return the known tools that are removed last: those of chains, the best chain first, and used tools."""
    ordered: list[str] = []
    for chain in chains:
        ordered += tools_of(chain)
    ordered += succeeded(record)
    return [tool for tool in ordered if tool in known]


def with_route(record: NaviRecord, route: Route, found: Retrieved | None) -> NaviRecord:
    """Return the record with the replacement after a failure: its chain comes first, and the decider sees it."""
    if found is not None:
        record = with_retrieved(record, found)
    text = _route_text(route, found)
    return {**_noted(record, [text]), "routes": [*record["routes"], route]}


def _route_text(route: Route, found: Retrieved | None) -> str:
    failed, similar = route["failed"], ", ".join(route["similar"])
    chain = " -> ".join(route["chain"])
    if route["way"] == "fresh":
        closest = similar
        if not similar and found is not None:
            closest = ", ".join(found["tools"])
        return f"a fresh search for what {failed} does found what comes closest: {closest}."
    if route["way"] == "equivalent":
        text = f"{route['fallback']} can stand in for {failed}: {chain}."
    elif route["way"] == "upstream":
        text = f"there is another way without {failed}: {chain}."
    else:
        text = f"no other way is known for what {failed} does: if nothing else helps, say so."
    if similar:
        text = f"{text} Described most like {failed}: {similar}."
    return text


def _without_failed(record: NaviRecord) -> NaviRecord:
    """Remove failed tools from candidates and chains."""
    failed = record["failed"]
    chains = []
    for chain in record["chains"]:
        if failed.keys().isdisjoint(tools_of(chain)):
            chains.append(chain)
    candidates = [tool for tool in record["candidates"] if tool not in failed]
    return {**record, "candidates": candidates, "chains": chains}


def begun(record: NaviRecord, since: Sequence[BaseMessage], names: Collection[str]) -> NaviRecord:
    """Return a new record with the earlier calls for its request: a host's graph may enter the subgraph again for
    it.
    """
    answers: dict[str, ToolMessage] = {}
    for message in since:
        if isinstance(message, ToolMessage):
            answers[message.tool_call_id] = message
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
    # The outcomes of these calls are known, their decisions are not.
    return {**observed(before, list(answers.values())).record, "history": []}


def _noted(record: NaviRecord, lines: Sequence[str]) -> NaviRecord:
    *earlier, last = record["history"]
    noted = DecisionRecord(decided=last["decided"], observed=[*last["observed"], *lines])
    return {**record, "history": [*earlier, noted]}


def _line(part: SubIntent) -> str:
    if part.action == "execute":
        content = call_line(part.api.strip(), part.arguments or {})
    elif part.action == "retrieve":
        content = _short(part.query)
    else:
        content = _short(part.text)
    line = f"[{part.rank}] {_short(part.intent)}: {part.action} {content}"
    if part.analysis:
        line = f"{line} ({_short(part.analysis)})"
    return line


def _short(text: str) -> str:
    return indented(shortened(text.strip(), ROUND_LIMITS.text))


# --- questions to the navigator ---


class CallContext(NamedTuple):
    """Names of the tools that may be called at this moment, and the user of the run, if known."""

    allowed: Collection[str]
    user_id: str | None


class Rerouted(NamedTuple):
    """The replacement of a failed call, and the tools for it; None if there are none."""

    route: Route
    found: Retrieved | None


class Retriever:
    """The searches of one subgraph. A search that raises is logged once and returns no tools."""

    def __init__(self, navigator: Navigator, specs: Mapping[str, ToolSpec], errors: ErrorLog) -> None:
        self._navigator, self._specs, self._errors = navigator, specs, errors
        self._index: LexicalIndex | None = None

    def search(
        self, record: NaviRecord, query: str, context: CallContext, *, most: int = ROUND_LIMITS.few_hits
    ) -> Retrieved:
        """Return the tools for a request or an imagined API: complete chains, then at most `most` new ones.

        If few tools fit, others are added, but in a large catalogue only without earlier candidates.
        """
        plan = self._plan(record, context, query)
        had = {*record["failed"], *record["candidates"]}
        if plan is not None:
            had.update(plan.tools)
        hits: list[str] = []
        # The earlier candidates may come first again, so as many more are requested.
        for name in self._hits(query, context, most + len(had)):
            if name not in had:
                hits.append(name)
        is_small = len(context.allowed) <= ROUND_LIMITS.few_tools
        is_empty = not hits and not record["candidates"] and (plan is None or not plan.tools)
        if is_small or is_empty:
            hits += self._others(context.allowed, had.union(hits))
        return retrieved_of(query, plan, hits[:most])

    def _others(self, allowed: Collection[str], known: Collection[str]) -> list[str]:
        return [name for name in self._specs if name in allowed and name not in known]

    def reroute(self, before: NaviRecord, after: NaviRecord, call: DecidedCall, context: CallContext) -> Rerouted:
        """Return the replacement of a failed call: an equivalent tool, another way from upstream, or a new search."""
        # With a fifth of an office's tools failing for good, these routes finished all of 210 tasks, a single planned
        # path none, and a loop that searches 16.7 % (docs/figures.md).
        tool = call["tool"]
        working = [name for name in context.allowed if name not in after["failed"]]
        similar = self._similar(tool, frozenset(working))
        chain = self._chain_to(before, tool, context)
        other = Recombination("none")
        had: set[str] = set()
        if chain is not None:
            other = self._recombined(chain, after, context)
            had = {*chain.tools, other.fallback}
        if other.way != "none" and other.chain is not None and self._only_looks_up(other.chain.tools, had):
            tools = list(other.chain.tools)
            others = [name for name in similar if name not in tools]
            route = Route(failed=tool, way=other.way, fallback=other.fallback, chain=tools, similar=others)
            return Rerouted(route, retrieved_of(f"in place of {tool}", other.plan, others))
        return self._by_fresh_search(after, call, context, similar, had)

    def _by_fresh_search(
        self, after: NaviRecord, call: DecidedCall, context: CallContext, similar: list[str], had: Collection[str]
    ) -> Rerouted:
        """Return the tools of a new search in place of a failed call; `had` are steps of its chain."""
        tool = call["tool"]
        fresh = self._fresh(after, call, context, similar)
        if not fresh["tools"]:
            return Rerouted(Route(failed=tool, way="none", fallback="", chain=[], similar=[]), None)
        chains = []
        for plain in fresh["chains"]:
            # Otherwise a failed look-up of an order's number could create a new order.
            if self._only_looks_up(tools_of(plain), had):
                chains.append(plain)
        first: list[str] = []
        if chains:
            first = tools_of(chains[0])
        route = Route(failed=tool, way="fresh", fallback="", chain=first, similar=similar)
        return Rerouted(route, {**fresh, "chains": chains})

    def _recombined(self, chain: Chain, after: NaviRecord, context: CallContext) -> Recombination:
        with self._errors:
            return self._navigator.reroute(chain, after["failed"], available=context.allowed, done=succeeded(after))
        return Recombination("none")

    def _only_looks_up(self, tools: Sequence[str], had: Collection[str]) -> bool:
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
        # Made at the first failure: most runs have none.
        if self._index is None:
            self._index = LexicalIndex((name, tool_text(other)) for name, other in self._specs.items())
        similar: list[str] = []
        for name, _ in self._index.search(tool_text(spec), len(self._specs)):
            if len(similar) == ROUND_LIMITS.few_hits:
                break
            # A look-up must not be replaced by a change.
            if name in allowed and name != tool and same_effects(spec, self._specs[name]):
                similar.append(name)
        return similar

    def _chain_to(self, before: NaviRecord, tool: str, context: CallContext) -> Chain | None:
        """Return the chain of the failed tool, or a new one to it."""
        for chain in before["chains"]:
            if tool in tools_of(chain):
                return chain_of(chain)
        if tool not in self._specs:
            return None
        # A chain to the tool shows its required outputs, so the tool itself is allowed once more.
        with_tool = CallContext({*context.allowed, tool}, context.user_id)
        plan = self._plan(before, with_tool, target=tool)
        if plan is None:
            return None
        return plan.chain

    def _fresh(self, record: NaviRecord, call: DecidedCall, context: CallContext, similar: list[str]) -> Retrieved:
        """Search for the failed tool's description, the purpose of the call, or the request, until a tool is new."""
        texts = [call["intent"], record["request"]]
        if call["tool"] in self._specs:
            texts.insert(0, self._specs[call["tool"]].description)
        retrieved = retrieved_of("", None)
        for text in texts:
            if text.strip():
                retrieved = self.search(record, text.strip(), context, most=ROUND_LIMITS.few_hits - len(similar))
                if not {*similar, *retrieved["tools"]}.issubset(record["candidates"]):
                    break
        return {**retrieved, "tools": list(dict.fromkeys([*similar, *retrieved["tools"]]))}

    def _plan(
        self, record: NaviRecord, context: CallContext, query: str = "", *, target: str | None = None
    ) -> Plan | None:
        # A chain to the failed tool itself is planned in `_chain_to`.
        avoided = set(record["failed"]) - {target}
        done = [name for name in succeeded(record) if name not in avoided]
        with self._errors:
            return self._navigator.plan(
                query or record["request"],
                target=target,
                available=context.allowed,
                avoid=avoided,
                done=done,
                user_id=context.user_id,
            )
        return None

    def _hits(self, query: str, context: CallContext, most: int) -> list[str]:
        with self._errors:
            hits = self._navigator.search(query, k=most, available=context.allowed, user_id=context.user_id)
            return [hit.name for hit in hits]
        return []


# --- guards of the host ---

GUARD_MARK: Final = "toolmem_guard"
"""Key of ``additional_kwargs`` of a tool's answer; it is not sent to providers."""

Guard = Callable[[Any, Callable[[Any], Any]], Any]
AsyncGuard = Callable[[Any, Callable[[Any], Awaitable[Any]]], Awaitable[Any]]


def _is_invalid_resume(error: BaseException) -> bool:
    """Return True if an interrupt was answered in a wrong form."""
    # The first releases of LangGraph 1.2 do not have such forms.
    is_invalid: Callable[[BaseException], bool] | None = getattr(langgraph_errors, "is_invalid_resume", None)
    return is_invalid is not None and is_invalid(error)


class GuardedCall(NamedTuple):
    """The call that ran after a guard's edit."""

    tool: str
    args: dict[str, Any]


def guards(
    guard: Guard | None, aguard: AsyncGuard | None, record: Guard, arecord: AsyncGuard
) -> tuple[Guard, AsyncGuard | None]:
    """Return the arguments of ``ToolNode``: the host's guards outside, the memory's inside, and marks on changes.

    A guard for async runs alone raises ConfigurationError.
    """
    if guard is None:
        if aguard is not None:
            raise ConfigurationError("Give wrap_tool_call with awrap_tool_call: without it a sync run has no guard.")
        return record, arecord

    # The memory's guard is inside: it records the call that passes the host's guard, not the original one.
    def guarded(request: Any, execute: Any) -> Any:
        ran: list[dict[str, Any]] = []

        def recorded(changed: Any) -> Any:
            ran.append(_plain_call(changed))
            return record(changed, execute)

        try:
            return _marked(guard(request, recorded), request.tool_call, ran)
        except Exception as error:  # noqa: BLE001 - other errors than the guard's own are raised again
            return _marked(_refusal(error, request.tool_call, ran), request.tool_call, ran)

    async def aguarded(request: Any, execute: Any) -> Any:
        ran: list[dict[str, Any]] = []

        async def recorded(changed: Any) -> Any:
            ran.append(_plain_call(changed))
            return await arecord(changed, execute)

        try:
            return _marked(await aguard(request, recorded), request.tool_call, ran)  # type: ignore[misc]
        except Exception as error:  # noqa: BLE001 - other errors than the guard's own are raised again
            return _marked(_refusal(error, request.tool_call, ran), request.tool_call, ran)

    if aguard is None:
        return guarded, None
    return guarded, aguarded


def never_ran(answer: ToolMessage) -> bool:
    """Return True if a guard answered a call with an error in place of its tool."""
    return bool(answer.additional_kwargs.get(GUARD_MARK, {}).get("ran") is False)


def ran_instead(answer: ToolMessage) -> GuardedCall | None:
    """Return the call that ran instead; None if the guard did not change it."""
    mark = answer.additional_kwargs.get(GUARD_MARK, {})
    if "tool" not in mark:
        return None
    return GuardedCall(str(mark["tool"]), dict(mark["args"]))


def _plain_call(request: Any) -> dict[str, Any]:
    """Return the executed call as plain values."""
    name, tool = request.tool_call["name"], getattr(request, "tool", None)
    # `ToolNode` takes the tool of the request, even if the call names another one.
    if tool is not None:
        name = tool.name
    return {"tool": name, "args": dict(request.tool_call["args"])}


def _refusal(error: Exception, call: Mapping[str, Any], ran: list[dict[str, Any]]) -> ToolMessage:
    """Return the answer to a call whose guard raised before the tool ran; raise an error of the tool or the graph."""
    # Interrupts and LangGraph's own errors steer the graph: an answer in their place would swallow them.
    is_of_graph = isinstance(error, GraphBubbleUp) or type(error).__module__.partition(".")[0] == "langgraph"
    if ran or is_of_graph or _is_invalid_resume(error):
        raise error
    return ToolMessage(f"Error: {error!r}", name=call["name"], tool_call_id=call["id"], status="error")


def _marked(answer: Any, call: Mapping[str, Any], ran: list[dict[str, Any]]) -> Any:
    """Return an answer with a mark on it, if another call than the requested one ran, or none."""
    if not ran:
        return _with(answer, {"ran": False}, call["id"])
    # A guard may execute a call again after an error; the last execution gave the answer.
    asked = {"tool": call["name"], "args": call["args"]}
    if ran[-1] == asked:
        return answer
    return _with(answer, ran[-1], call["id"])


def _with(answer: Any, mark: Mapping[str, Any], call_id: str) -> Any:
    """Return a tool's answer of any kind with a mark on the message that answers the call."""
    if isinstance(answer, ToolMessage):
        return _with_mark(answer, mark, call_id)
    # `ToolNode` takes a list of messages and Commands, too, and a Command has its messages among its updates.
    if isinstance(answer, list):
        return [_with(part, mark, call_id) for part in answer]
    if isinstance(answer, Command) and isinstance(answer.update, Mapping):
        update = {key: _with(value, mark, call_id) for key, value in answer.update.items()}
        return Command(graph=answer.graph, update=update, resume=answer.resume, goto=answer.goto)
    return answer


def _with_mark(answer: ToolMessage, mark: Mapping[str, Any], call_id: str) -> ToolMessage:
    # "Never ran" is only for errors: a guard that answers from a cache has answered.
    if answer.tool_call_id != call_id or ("ran" in mark and answer.status != "error"):
        return answer
    return answer.model_copy(update={"additional_kwargs": {**answer.additional_kwargs, GUARD_MARK: dict(mark)}})
