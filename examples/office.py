"""A small office for `toolmem demo`: eight tools on data of its own, eight kinds of task, a scripted assistant.

    office = Office()
    task = make_tasks(1)[0]                    # .request, .plan, .checker(office)
    run_tasks(scripted_model(), [task], office)

The assistant is no language model and understands nothing but these wordings. It sees only the messages, and goes on
from whatever results are there, whoever made the calls.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import re
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool, ToolException
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langgraph_toolmem.testing import ScriptedChatModel

if TYPE_CHECKING:
    from langgraph_toolmem import ToolMemory

Record = dict[str, Any]
Database = dict[str, dict[str, Record]]
"""Collection -> id -> record."""
Plan = Generator[list[tuple[str, dict[str, Any]]], list[Any], str]
"""Yields calls, receives their results, and returns the closing words."""

logger = logging.getLogger("examples.office")

TODAY: Final = date(2024, 6, 3)
PROMPT: Final = (
    f"You are an office assistant. Today is Monday, {TODAY}. Carry out the request with the tools, "
    "do nothing that was not asked for, and close with one sentence."
)
MOST_STEPS: Final = 60
"""Graph steps of one task before it is broken off."""
OPTION_PERCENT: Final = 12
"""Share of the requests in which the assistant fills an optional argument."""
FIRST: Final = [
    "Aisha", "Bruno", "Carla", "Dmitri", "Elena", "Farid", "Greta", "Hiro",
    "Ines", "Jonas", "Kavya", "Liam", "Mona", "Nadia", "Oscar", "Priya",
]  # fmt: skip
LAST: Final = [
    "Adler", "Brandt", "Costa", "Dubois", "Eriksen", "Fischer", "Garcia",
    "Haddad", "Ivanova", "Jensen", "Kumar", "Moreau", "Novak", "Quinn",
]  # fmt: skip
TOPICS: Final = ("budget", "invoice", "contract", "onboarding", "roadmap", "pricing", "hiring", "newsletter")
PROJECTS: Final = ("Apollo", "Borealis", "Cascade", "Delta")
MEETINGS: Final = ("Budget review", "Design sync", "Hiring panel", "Launch planning", "Sprint planning", "Vendor call")
DAYS: Final = tuple(str(TODAY + timedelta(days=n)) for n in range(12) if n % 7 < 5)
NEWS: Final = (
    "the kitchen is closed on Friday",
    "the new badge readers work from Monday on",
    "expense reports are due this week",
    "the audit went well",
)


def make_id(prefix: str, *parts: object) -> str:
    """Return a short id that depends on the parts only: a reset office gives the same ids again."""
    return f"{prefix}_{hashlib.blake2b(repr(parts).encode(), digest_size=3).hexdigest()}"


# --- the office and its tools -----------------------------------------------------------------------------------


def make_database(seed: int) -> Database:
    """Return all collections of a fresh office."""
    rng = random.Random(seed)
    data: Database = {name: {} for name in ("people", "emails", "sent", "events", "tasks")}
    for first, last in zip(FIRST, rng.sample(LAST * 2, len(FIRST)), strict=True):
        email = f"{first}.{last}@acme-office.example".lower()
        key = make_id("usr", first, last)
        data["people"][key] = {"id": key, "name": f"{first} {last}", "email": email}
    people = list(data["people"].values())
    for n in range(4 * len(people)):
        sender, topic, project = people[n % len(people)], rng.choice(TOPICS), rng.choice(PROJECTS)
        key = make_id("msg", n, topic)
        data["emails"][key] = {
            "id": key,
            "from": sender["email"],
            "subject": f"{topic.capitalize()} for {project} #{n + 100}",
            "received": f"{TODAY - timedelta(days=rng.randrange(1, 28))}T{rng.randrange(7, 19):02}:{n % 60:02}",
            "body": f"Please look at the {topic} for {project} before {rng.choice(DAYS)}.",
        }
    for day in DAYS:
        for title, hour in zip(rng.sample(MEETINGS, 4), rng.sample(range(9, 17), 4), strict=True):
            key = make_id("evt", day, title)
            guests = [each["email"] for each in rng.sample(people, rng.randint(1, 3))]
            data["events"][key] = {"id": key, "title": title, "start": f"{day}T{hour:02}:00", "attendees": guests}
    return data


@cache
def _first_day(seed: int) -> str:
    """Return the collections of a fresh office as JSON: an office starts afresh for each task and for each check."""
    return json.dumps(make_database(seed))


class Office:
    """People, mail, a calendar and tasks. The tools change this data and nothing else.

    Args:
        seed: the same seed gives the same office, ids included.
    """

    def __init__(self, seed: int = 0) -> None:
        """See the class."""
        self.seed = seed
        self.reset()

    def reset(self) -> None:
        """Bring back the first day."""
        self._data: Database = json.loads(_first_day(self.seed))

    def state(self) -> Database:
        """Return a copy of everything that tools can change; equal states compare equal."""
        # Every value is text, so JSON copies the data exactly, in a tenth of the time of `copy.deepcopy`.
        copied: Database = json.loads(json.dumps(self._data))
        return copied

    def tools(self) -> list[StructuredTool]:
        """Return the tools; those that only read are tagged so."""
        reads = (self.find_person, self.list_emails, self.read_email, self.list_events)
        writes = (self.send_email, self.forward_email, self.create_task, self.cancel_event)
        made = [StructuredTool.from_function(each, parse_docstring=True, handle_tool_error=True) for each in reads]
        for tool in made:
            tool.tags = ["read_only"]
        made += [StructuredTool.from_function(each, parse_docstring=True, handle_tool_error=True) for each in writes]
        made[-1].tags = ["destructive"]
        return made

    def find_person(self, name: str) -> Record:
        """Find colleagues by name; gives their e-mail addresses.

        Args:
            name: Full name, or a part of it.
        """
        return {"people": [each for each in self._all("people") if name.casefold() in each["name"].casefold()]}

    def list_emails(self, sender: str, limit: int = 50) -> Record:
        """List received e-mails of a sender, newest first, without their bodies.

        Args:
            sender: E-mail address of the sender.
            limit: How many at most.
        """
        found = sorted((e for e in self._all("emails") if e["from"] == sender), key=lambda e: str(e["received"]))
        heads = [{key: each[key] for key in ("id", "subject", "received")} for each in reversed(found)]
        return {"emails": heads[:limit]}

    def read_email(self, email_id: str) -> Record:
        """Read one e-mail with its body.

        Args:
            email_id: Id of the e-mail, for example "msg_1a2b3c".
        """
        return {"email": self._get("emails", email_id)}

    def list_events(self, date: str) -> Record:
        """List the meetings of a day.

        Args:
            date: ISO date.
        """
        found = sorted((e for e in self._all("events") if e["start"][:10] == date), key=lambda e: str(e["start"]))
        return {"events": found}

    def send_email(self, to: str, subject: str, body: str) -> Record:
        """Send an e-mail to one address.

        Args:
            to: E-mail address of the recipient.
            subject: Subject line.
            body: Text of the e-mail.
        """
        return self._add("sent", "out", to=to, subject=subject, body=body)

    def forward_email(self, email_id: str, to: str) -> Record:
        """Forward an e-mail to somebody else.

        Args:
            email_id: Id of the e-mail.
            to: E-mail address of the recipient.
        """
        return self._add("sent", "out", to=to, forward_of=self._get("emails", email_id)["id"])

    def create_task(self, title: str, assignee: str, priority: str = "normal") -> Record:
        """Create a task for a colleague.

        Args:
            title: What is to be done.
            assignee: E-mail address of the colleague.
            priority: "normal" or "high".
        """
        return self._add("tasks", "tsk", title=title, assignee=assignee, priority=priority)

    def cancel_event(self, event_id: str) -> Record:
        """Cancel a meeting for good.

        Args:
            event_id: Id of the meeting.
        """
        title = self._get("events", event_id)["title"]
        del self._data["events"][event_id]
        return {"cancelled": title}

    def _all(self, collection: str) -> list[Record]:
        return list(self._data[collection].values())

    def _get(self, collection: str, key: str) -> Record:
        try:
            return self._data[collection][key]
        except KeyError:
            raise ToolException(f"Error: there is no entry {key!r} in {collection}.") from None

    def _add(self, collection: str, prefix: str, **fields: Any) -> Record:
        key = make_id(prefix, len(self._data[collection]), sorted(fields.items()))
        self._data[collection][key] = {"id": key, **fields}
        return {"id": key, "status": "done"}


# --- eight kinds of task ----------------------------------------------------------------------------------------


def _address(name: str) -> Plan:
    (found,) = yield [("find_person", {"name": name})]
    return str(found["people"][0]["email"])


def _latest(sender: str) -> Generator[list[tuple[str, dict[str, Any]]], list[Any], Record]:
    address = yield from _address(sender)
    (found,) = yield [("list_emails", {"sender": address})]
    return dict(found["emails"][0])


def forward_latest(sender: str, person: str) -> Plan:
    """Forward the newest e-mail of a colleague."""
    email = yield from _latest(sender)
    to = yield from _address(person)
    yield [("forward_email", {"email_id": email["id"], "to": to})]
    return f"I forwarded it to {person}."


def read_latest(sender: str) -> Plan:
    """Read the newest e-mail of a colleague; changes nothing."""
    email = yield from _latest(sender)
    (found,) = yield [("read_email", {"email_id": email["id"]})]
    return f"{sender} wrote: {found['email']['body']}"


def answer_latest(sender: str, news: str) -> Plan:
    """Answer the newest e-mail of a colleague."""
    email = yield from _latest(sender)
    to = yield from _address(sender)
    yield [("send_email", {"to": to, "subject": f"Re: {email['subject']}", "body": news})]
    return f"I answered {sender}."


def task_from_email(sender: str, person: str) -> Plan:
    """Turn the newest e-mail of a colleague into a task for another."""
    email = yield from _latest(sender)
    (found,) = yield [("read_email", {"email_id": email["id"]})]
    to = yield from _address(person)
    yield [("create_task", {"title": found["email"]["subject"], "assignee": to})]
    return f"{person} has a new task."


def write_to(person: str, news: str) -> Plan:
    """Write to one colleague."""
    to = yield from _address(person)
    yield [("send_email", {"to": to, "subject": "For your information", "body": news})]
    return f"I wrote to {person}."


def agenda(day: str) -> Plan:
    """Say what is on; changes nothing."""
    (found,) = yield [("list_events", {"date": day})]
    return f"{len(found['events'])} meetings."


def tell_guests(title: str, day: str, news: str) -> Plan:
    """Write to all attendees of a meeting, in one turn."""
    (found,) = yield [("list_events", {"date": day})]
    event = next(each for each in found["events"] if each["title"] == title)
    yield [("send_email", {"to": to, "subject": title, "body": news}) for to in event["attendees"]]
    return "I told everybody."


def cancel_meeting(title: str, day: str) -> Plan:
    """Cancel a meeting."""
    (found,) = yield [("list_events", {"date": day})]
    event = next(each for each in found["events"] if each["title"] == title)
    yield [("cancel_event", {"event_id": event["id"]})]
    return f"{title} is cancelled."


KINDS: Final[dict[Callable[..., Plan], tuple[int, tuple[str, ...]]]] = {
    forward_latest: (
        5,
        (
            "Forward the latest email from {sender} to {person}.",
            "{person} should get {sender}'s newest email, pass it on.",
        ),
    ),
    read_latest: (
        6,
        ("What did {sender} write in the latest email?", "Read me the newest email from {sender}."),
    ),
    answer_latest: (
        3,
        ("Answer {sender}'s latest email that {news}.", "Reply to the newest email of {sender}: {news}."),
    ),
    task_from_email: (
        4,
        (
            "Turn the latest email from {sender} into a task for {person}.",
            "Make the last mail of {sender} a task of {person}.",
        ),
    ),
    write_to: (4, ("Tell {person} that {news}.", "Write {person} an email: {news}.")),
    agenda: (3, ("What is on in my calendar on {day}?", "Which meetings are there on {day}?")),
    tell_guests: (
        2,
        (
            "Let everybody in the {title} on {day} know that {news}.",
            "All guests of my {title} on {day} should know: {news}.",
        ),
    ),
    cancel_meeting: (1, ("Cancel my {title} on {day}.", "Please call off the {title} on {day}.")),
}
"""Each with its weight and its wordings."""


def _pattern(wording: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", wording)
    forms = {"sender": r"[A-Z]\w+ [A-Z]\w+", "person": r"[A-Z]\w+ [A-Z]\w+", "day": r"\d{4}-\d\d-\d\d"}
    found = (f"(?P<{part}>{forms.get(part, '.+')})" if n % 2 else re.escape(part) for n, part in enumerate(parts))
    return re.compile("".join(found))


PATTERNS: Final = [(_pattern(wording), kind) for kind, (_, wordings) in KINDS.items() for wording in wordings]


def understand(request: str) -> Plan | None:
    """Return what is to be done for a request, or None if its wording is not known."""
    for pattern, kind in PATTERNS:
        if found := pattern.fullmatch(request):
            return kind(**found.groupdict())
    return None


@dataclass(frozen=True)
class Task:
    """One request to a fresh office: its id ("t001" ...), the name of its kind, and what the user writes."""

    id: str
    kind: str
    request: str
    seed: int = 0

    def script(self, office: Office) -> list[str]:
        """Carry the plan out on an office; returns the names of the tools called."""
        # The methods, not the tools: the tools' models of arguments cost 14 ms for each task.
        plan, called, outputs = understand(self.request), list[str](), None
        assert plan is not None
        try:
            while True:
                calls = plan.send(outputs)  # type: ignore[arg-type]  # None starts the generator
                called += [name for name, _ in calls]
                outputs = [getattr(office, name)(**args) for name, args in calls]
        except StopIteration:
            return called

    def checker(self, office: Office) -> bool:
        """Return True if the office is as the plan leaves it, and nothing else has changed."""
        ideal = Office(self.seed)
        self.script(ideal)
        return _plain(office.state()) == _plain(ideal.state())


def _plain(state: Database) -> dict[str, list[str]]:
    """Records without what the order of calls, or an option, decides."""
    drawn = ("sent", "tasks")
    return {
        name: sorted(
            json.dumps({k: v for k, v in each.items() if not (name in drawn and k in ("id", "priority"))})
            for each in records.values()
        )
        for name, records in state.items()
    }


def make_tasks(n: int = 200, seed: int = 0) -> list[Task]:
    """Draw tasks of all kinds, some kinds more often than others.

    Args:
        n: how many.
        seed: seed of kinds, wordings and entities.
    """
    rng = random.Random(seed)
    data = make_database(0)
    people = [each["name"] for each in data["people"].values()]
    tasks = []
    for number in range(1, n + 1):
        (kind,) = rng.choices(list(KINDS), [weight for weight, _ in KINDS.values()])
        event = rng.choice(list(data["events"].values()))
        sender, person = rng.sample(people, 2)
        slots = {"sender": sender, "person": person, "news": rng.choice(NEWS), "title": event["title"]}
        request = rng.choice(KINDS[kind][1]).format(**slots, day=event["start"][:10])
        tasks.append(Task(f"t{number:03}", kind.__name__, request))
    return tasks


# --- the scripted assistant -------------------------------------------------------------------------------------


def reply(messages: Sequence[BaseMessage]) -> AIMessage:
    """Return the assistant's next message: the first calls of the plan that have no result yet, or the last words."""
    last = max(n for n, each in enumerate(messages) if isinstance(each, HumanMessage))
    request, results = messages[last].text, _results(messages[last:])
    plan = understand(request)
    if plan is None:
        return AIMessage("I am a scripted assistant, and this is none of the wordings I know.")
    try:
        calls = next(plan)
        while True:
            keys = [_key(name, args) for name, args in calls]
            if missing := [call for call, key in zip(calls, keys, strict=True) if key not in results]:
                made = [{"name": name, "args": _with_option(name, args, request)} for name, args in missing]
                return AIMessage("", tool_calls=[{**call, "id": None} for call in made])
            calls = plan.send([results[key] for key in keys])
    except StopIteration as done:
        return AIMessage(str(done.value))
    except (LookupError, TypeError):
        return AIMessage("I am sorry, I did not find what this is about.")


def _key(name: str, args: dict[str, Any]) -> str:
    return name + json.dumps({k: v for k, v in args.items() if k not in ("limit", "priority")}, sort_keys=True)


def _with_option(name: str, args: dict[str, Any], request: str) -> dict[str, Any]:
    options: dict[str, dict[str, Any]] = {"list_emails": {"limit": 20}, "create_task": {"priority": "high"}}
    option = options.get(name, {})
    drawn = int.from_bytes(hashlib.blake2b(f"{name} {request}".encode(), digest_size=4).digest(), "big") % 100
    return {**args, **option} if drawn < OPTION_PERCENT else args


def _results(messages: Sequence[BaseMessage]) -> dict[str, Any]:
    made = {c["id"]: c for each in messages if isinstance(each, AIMessage) for c in each.tool_calls}
    found: dict[str, Any] = {}
    for each in messages:
        if isinstance(each, ToolMessage) and (call := made.get(each.tool_call_id)):
            text = each.text
            found[_key(call["name"], call["args"])] = json.loads(text) if text.startswith("{") else text
    return found


def scripted_model() -> ScriptedChatModel:
    """Return the scripted assistant as a chat model."""
    ids = count(1)

    def answer(messages: list[BaseMessage], _: list[dict[str, Any]]) -> AIMessage:
        said = reply(messages)
        return said.model_copy(update={"tool_calls": [{**call, "id": f"call_{next(ids)}"} for call in said.tool_calls]})

    return ScriptedChatModel(script=answer)


# --- the agent ----------------------------------------------------------------------------------------------------


def build_graph(
    model: BaseChatModel, tools: Sequence[StructuredTool], memory: ToolMemory | None = None
) -> StateGraph[MessagesState, Any, Any, Any]:
    """Build the agent loop; a memory adds its two nodes. Compile it with a checkpointer."""
    bound = model.bind_tools(tools)

    def call_model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [bound.invoke([SystemMessage(PROMPT), *state["messages"]])]}

    builder: StateGraph[MessagesState, Any, Any, Any] = StateGraph(MessagesState)
    builder.add_node("agent", call_model)
    if memory is None:
        builder.add_node("tools", ToolNode(list(tools)))
        builder.add_edge(START, "agent")
        builder.add_edge("tools", "agent")
        builder.add_conditional_edges("agent", tools_condition)
        return builder
    from langgraph_toolmem.nodes import InertiaShortcut, Recorder, shortcut_condition

    recorder = Recorder(memory)
    builder.add_node("tools", ToolNode(list(tools), wrap_tool_call=recorder.wrap_tool_call))
    builder.add_node("inertia", InertiaShortcut(memory, tools))
    builder.add_node("record", recorder)
    builder.add_edge(START, "inertia")
    builder.add_edge("tools", "inertia")
    builder.add_conditional_edges("inertia", shortcut_condition, ["tools", "agent"])
    builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "record"})
    builder.add_edge("record", END)
    return builder


@dataclass(frozen=True)
class Outcome:
    """Cost of one task: model calls, calls made by the memory, wall time. `right`: the office is as it should be."""

    task: Task
    llm_calls: int
    shortcuts: int
    seconds: float
    right: bool
    messages: list[BaseMessage]


def run_tasks(
    model: BaseChatModel,
    tasks: Sequence[Task],
    office: Office,
    memory: ToolMemory | None = None,
    *,
    clock: Callable[[], float] = time.perf_counter,
    done: Callable[[Outcome], object] = lambda _: None,
) -> list[Outcome]:
    """Run tasks one after the other, each in a thread of its own and in a fresh office."""
    graph = build_graph(model, office.tools(), memory).compile(checkpointer=InMemorySaver())
    outcomes = []
    for task in tasks:
        office.reset()
        configurable = {"thread_id": task.id, "user_id": "me"}
        config: RunnableConfig = {"configurable": configurable, "recursion_limit": MOST_STEPS}
        start, broken = clock(), False
        try:
            graph.invoke({"messages": [("user", task.request)]}, config, durability="exit")
        except Exception:
            # A run that breaks off is an unsolved task; the others still count.
            logger.warning("Task %s broke off.", task.id, exc_info=True)
            broken = True
        seconds = clock() - start
        messages = graph.get_state(config).values.get("messages", [])
        answers = [each for each in messages if isinstance(each, AIMessage)]
        made = sum("toolmem" not in each.additional_kwargs for each in answers)
        right = not broken and task.checker(office)
        outcomes.append(Outcome(task, made, len(answers) - made, seconds, right, messages))
        done(outcomes[-1])
    return outcomes
