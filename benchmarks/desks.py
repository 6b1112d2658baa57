"""Support desks made by a seed: tools, a world with state, users, and a model that follows a fixed policy.

A desk has one to three kinds of requests. The policy of a kind is two to five calls in order, with branches: at some
point, a value of an output or a word of the conversation leads elsewhere. The outputs are full of other values that
mean nothing. `Desk.answer` is the model: it reads the messages and returns the one act that the policy demands, or,
for a share of the turns, a deviation from it.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta, timezone
from typing import Any, Final, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

START: Final = datetime(2026, 6, 15, 8, tzinfo=timezone.utc)
PACE: Final = timedelta(minutes=20)
"""Time from one request to the next."""
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "plain": ("cat", "cat", "flag", "null", "absent", "word"),
    "numbers": ("amount", "amount", "date", "age", "cmp"),
    "texts": ("text", "list"),
    "pairs": ("pair", "both"),
}
"""Kinds of conditions. `pair`: two rare values together; `both`: two common ones; `age`: a date against today;
`cmp`: one number against another; `list`: any row has the value."""
CONVERSATION: Final = ("said", "state", "answer", "odd", "opener")
"""Conditions that are there whatever the groups: an earlier turn, a change by an earlier request, no to a question."""

PAID: Final = ("refund", "approve")
NOUNS: Final = ("order", "booking", "ticket", "invoice", "account", "parcel", "claim", "loan", "contract", "device")
ACTS: Final = ("refund", "cancel", "renew", "close", "ship", "approve")
MISLEADING: Final = ("get_{n}_{a}", "fetch_{n}_payment", "check_in_{n}", "list_{n}_for_sale", "look_into_{n}")
"""Names of tools that change something and sound as if they only read."""
NEUTRAL: Final = ("{n}_card", "open_{n}", "{n}_desk")
COMMON: Final = ("get_history", "policy_for", "get_quote", "find_limits", "read_profile")
FORMS: Final = (
    "Please {a} {n} {x}{w}", "I want to {a} {n} {x}{w}", "{n} {x}: {a} it{w}, please", "Could you {a} my {n} {x}{w}",
)  # fmt: skip
PHRASES: Final = (" as store credit", " for my late father", " to a different account", ", it is urgent")
OPENERS: Final = ("Hello, this is {p}.", "Good morning!", "Hi there, I am back.")
REMARKS: Final = (" I am leaving you for good.", " My account was hacked last week.", " I only speak for my wife.")
ODD: Final[Mapping[str, tuple[str, ...]]] = {
    "negated": ("Please do not {a} {n} {x}", "Don't {a} my {n} {x} after all", "I never wanted to {a} {n} {x}"),
    "two subjects": ("Please {a} {n} {x} and {y}", "I want to {a} {n} {x}, and {n} {y} too"),
    "condition": (
        "Please {a} {n} {x} if nobody has touched it yet",
        "Could you {a} my {n} {x}, but only if it is free",
    ),
    "postponed": ("Please {a} {n} {x}, not today but next week", "I want to {a} {n} {x} in a month"),
}
YES: Final = ("Yes please", "Yes, go ahead.", "Please do.", "Yes")
NO: Final = ("No, leave it.", "No thanks.", "Better not.")
HEDGED: Final = ("Yes, but not before Monday.", "Only if it is free.", "What would that cost?")
CATS: Final = (
    ("delivered", "shipped", "lost", "returned"), ("open", "on_hold", "settled"), ("gold", "basic", "silver", "trial"),
    ("eu", "us", "uk", "ch", "jp"), ("new", "used"),
)  # fmt: skip
PEOPLE: Final = ("Ann", "Bob", "Cem", "Dana", "Eli", "Fay")
WORDS: Final = ("normal", "active", "fresh"), ("blocked", "frozen")
ROWS: Final = ("fine", "worn", "used"), ("broken",)
NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "cat": ("region", "plan", "channel", "tier", "phase"),
    "flag": ("vip", "insured", "paperless", "express", "verified"),
    "null": ("closed_on", "paused_on", "claimed_on", "moved_on"),
    "amount": ("balance", "fee", "points", "weight", "deposit"),
    "date": ("created", "updated", "delivered_on", "due"),
    "name": ("agent", "contact"),
    "id": ("batch", "invoice_no"),
    "list": ("items", "entries", "pieces"),
    "text": ("note", "remark"),
}
CREDIT, CUT, DAYS, SOON, EARLY = 400, 500, 30, date(2026, 10, 1), date(2026, 1, 5)
TWO: Final = {"pair": (0.09, 0.09), "both": (0.4, 0.35)}
STAGE: Final = re.compile(r'\bstage(?:": "| is )(\w+)')
WHY: Final = "Could you tell me why?"
LEAVE: Final = "I leave that to a colleague."
KEEP: Final = "Shall I keep {n} {x} as it is and just close this chat?"


def draw(*parts: object) -> float:
    """Return a number from 0 to 1 that depends on the parts alone."""
    return int(hashlib.blake2b("|".join(map(str, parts)).encode(), digest_size=6).hexdigest(), 16) / 2**48


def pick(options: Sequence[str], *parts: object) -> str:
    """Return one of the options."""
    return options[int(draw(*parts) * len(options))]


class Call(NamedTuple):
    """A tool call."""

    tool: str
    args: dict[str, Any]

    @property
    def key(self) -> str:
        """The call as text, the same for equal calls."""
        return f"{self.tool} {json.dumps(self.args, sort_keys=True)}"


class Answer(NamedTuple):
    """The model's act at one turn.

    Attributes:
        act: a call, or a text.
        rule: the act that the policy demands; `act` differs from it where the model deviates.
        why: kind of the branch that decided, "main" for the plain course, "end" after it.
    """

    act: Call | str
    rule: Call | str
    why: str


@dataclass(frozen=True)
class Branch:
    """A condition and where it leads.

    Attributes:
        kind: see `GROUPS`.
        after: calls of the policy that come before it.
        source: tool whose output has the value; "" for a condition on the conversation.
        names: fields of the output, or the phrase.
        target: "words", "write", "read", "ask" (back) or "keep" (another question to confirm).
        share: share of the requests that meet the condition.
        usual, rare: values.
    """

    kind: str
    after: int
    source: str
    names: tuple[str, ...]
    target: str
    share: float
    usual: tuple[str, ...] = ()
    rare: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kind:
    """A kind of request: what is called in which order, and when not."""

    noun: str
    act: str
    steps: tuple[str, ...]
    write: str
    forms: tuple[str, ...]
    confirms: bool
    odd_looks: int
    branches: tuple[Branch, ...] = ()


@dataclass
class Tool:
    """A tool of a desk; `noise` has the fields of its output: kind, name, values, share."""

    name: str
    reads: bool
    about: str
    params: tuple[str, ...]
    style: str = "json"
    noise: list[tuple[str, str, tuple[str, ...], float]] = field(default_factory=list)


@dataclass(frozen=True)
class Request:
    """A user's request; `subject` is in its text, `opener` comes before it, `answer` follows a question to confirm."""

    number: int
    kind: int
    subject: str
    text: str
    opener: str = ""
    odd: str = ""
    answer: str = ""


class World:
    """State that calls change: the changes made to each subject, in order."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.changes: dict[str, tuple[str, ...]] = {}
        self.executed: list[Call] = []

    def execute(self, call: Call) -> str:
        """Execute a call and return its output."""
        self.executed.append(call)
        tool = self._desk.tools.get(call.tool)
        subject = str(next(iter(call.args.values()), "")).rpartition("-")[2]
        if tool is None or subject not in self._desk.subjects:
            return "Not found."
        if tool.reads:
            return self._desk.output(tool, subject, self.changes.get(subject, ()))
        self.changes[subject] = (*self.changes.get(subject, ()), call.key)
        return json.dumps({"ok": True, "reference": f"R-{int(draw(call.key) * 90000 + 10000)}"})


class Desk:
    """A desk.

    Args:
        seed: of everything.
        requests: how many users come.
        deviation: share of the turns at which the model does not follow the policy.
        groups: keys of `GROUPS` that conditions are taken from.
    """

    def __init__(
        self, seed: int, requests: int, *, deviation: float = 0.0, groups: Iterable[str] = tuple(GROUPS)
    ) -> None:
        self.seed, self.deviation = seed, deviation
        self._conditions = [kind for group in groups for kind in GROUPS[group]]
        self._rng = random.Random(f"desk {seed}")
        self.tools: dict[str, Tool] = {}
        self.subjects: dict[str, tuple[int, int]] = {}
        """Orders, bookings …: kind, and number of the request that brought it up."""
        self._openers = self._rng.random() < 0.4
        self._make_kinds()
        self.requests = [self._request(number) for number in range(requests)]

    @property
    def reads(self) -> frozenset[str]:
        """The tools that only look things up."""
        return frozenset(name for name, tool in self.tools.items() if tool.reads)

    @property
    def writes(self) -> frozenset[str]:
        """The tools that change something."""
        return frozenset(self.tools) - self.reads

    def schemas(self) -> list[dict[str, Any]]:
        """Return the tools as OpenAI tool dicts."""
        return [
            {"type": "function", "function": {"name": tool.name, "description": tool.about, "parameters": {
                "type": "object", "required": list(tool.params),
                "properties": {p: {"type": "integer" if p == "amount" else "string"} for p in tool.params}}}}
            for tool in self.tools.values()
        ]  # fmt: skip

    # --- how it is made ---

    def _make_kinds(self) -> None:
        rng = self._rng
        self.kinds: list[Kind] = []
        common = rng.sample(COMMON, 2)
        for tool in common:
            self._reading(tool, f"{tool.replace('_', ' ')}.", (rng.choice(["ref", "customer_id"]),))
        self._reading("get_manual", "The manual on a case.", ("ref",))
        self.tools["escalate_case"] = Tool("escalate_case", False, "Hands a case to a supervisor.", ("ref",))
        count = rng.randint(1, 3)
        for number, (noun, act) in enumerate(zip(rng.sample(NOUNS, count), rng.sample(ACTS, count), strict=True)):
            named = {"n": noun, "a": act}
            look = rng.choice(["lookup_{n}"] * 3 + [rng.choice(NEUTRAL)]).format(**named)
            write = rng.choice(["{a}_{n}"] * 3 + [rng.choice(MISLEADING)]).format(**named)
            self._reading(look, f"The record of one {noun}.", ("ref",))
            about = f"{act.title()}s one {noun}." if write == f"{act}_{noun}" else f"Get the customer a {noun} {act}."
            self.tools[write] = Tool(write, False, about, ("ref", "amount") if act in PAID else ("ref",))
            extra = rng.sample(common, rng.randint(number == 0, 2))
            steps = [look, *extra, write]
            if rng.random() < 0.3:
                steps.append("notify_customer")
                self.tools[steps[-1]] = Tool(steps[-1], False, "Sends the customer a message.", ("ref",))
            forms = tuple(rng.sample(FORMS, rng.randint(1, 4)))
            kind = Kind(noun, act, tuple(steps), write, forms, rng.random() < 0.3, rng.randint(0, 1))
            branches = [self._branch(kind, first=number == 0)]
            branches += [self._branch(kind) for _ in range(rng.choice([0, 0, 1]))]
            if self._openers and number == 0:
                target = rng.choice(["words", "write"])
                branches.append(Branch("said", len(extra) + 1, "", (rng.choice(REMARKS),), target, 0.1))
            self.kinds.append(replace(kind, branches=tuple(branches)))
        if rng.random() < 0.5:  # else tools that no policy uses are there, too
            manual = any(branch.target == "read" for kind in self.kinds for branch in kind.branches)
            used = {"escalate_case", *(["get_manual"] * manual), *(step for kind in self.kinds for step in kind.steps)}
            self.tools = {name: tool for name, tool in self.tools.items() if name in used}

    def _reading(self, name: str, about: str, params: tuple[str, ...]) -> None:
        rng = self._rng
        tool = Tool(name, True, about, params, rng.choice(["json", "json", "nested", "text"]))
        for _ in range(rng.randint(2, 5)):
            kind = rng.choice(list(NAMES))
            tool.noise.append((kind, self._free(tool, kind), rng.choice(CATS), rng.uniform(0.03, 0.5)))
        self.tools.setdefault(name, tool)

    def _free(self, tool: Tool, kind: str) -> str:
        """Return a field name of this kind that the tool's output does not have yet."""
        taken = {each[1] for each in tool.noise}
        name = self._rng.choice(NAMES[kind])
        while name in taken:
            name = f"{self._rng.choice(('last', 'base', 'own', 'prior'))}_{name}"
        return name

    def _branch(self, kind: Kind, *, first: bool = False) -> Branch:
        """Make a branch; the `first` one of a desk depends on an earlier output than the last."""
        rng = self._rng
        looks = kind.steps.index(kind.write)
        after = rng.randint(2, looks) if first else rng.randint(1, looks)
        condition = rng.choice([c for c in self._conditions if not (first and c == "word")] or ["flag"])
        share = rng.uniform(0.1, 0.2) if rng.random() < 0.5 else rng.uniform(0.05, 0.1)
        target = rng.choice(["words"] * 4 + ["write", "write", "read", "ask"] + ["keep"] * kind.confirms)
        if condition == "word":
            return Branch(condition, rng.randint(0, looks), "", (rng.choice(PHRASES),), target, share)
        source = kind.steps[0 if first or rng.random() < 0.33 else after - 1]
        tool = self.tools[source]
        parts = {"pair": ("cat", "flag"), "both": ("cat", "flag"), "cmp": ("amount", "amount")}
        of = {"absent": "null", "age": "date"}
        values = rng.choice(CATS[:4])
        rare = tuple(rng.sample(values, rng.randint(1, len(values) - 2) if condition == "cat" else 1))
        usual = tuple(value for value in values if value not in rare)
        names: tuple[str, ...] = ()
        for part in parts.get(condition, (of.get(condition, condition),)):
            names += (self._free(tool, part),)
            tool.noise.append(("", names[-1], (), 0.0))  # the name is taken; the value is the branch's
        return Branch(condition, after, source, names, target, share, usual, rare)

    def _request(self, number: int) -> Request:
        at = (self.seed, number)
        k = int(draw(*at, "kind") * len(self.kinds))
        kind = self.kinds[k]
        before = [x for x, (known, _) in self.subjects.items() if known == k]
        subject = pick(before, *at, "which") if before and draw(*at, "again") < 0.03 else self._subject(k, number)
        told = {b.names[0]: draw(*at, b.names) < b.share for b in kind.branches if b.kind in ("word", "said")}
        phrase = "".join(p for p in PHRASES if told.get(p))
        remark = "".join(r for r in REMARKS if told.get(r))
        opener = ""
        if remark or (self._openers and draw(*at, "opener") < 0.4):
            opener = pick(OPENERS, *at, "hello").format(p=pick(PEOPLE, *at, "who")) + remark
        odd = pick(tuple(ODD), *at, "sort") if draw(*at, "odd") < 0.04 else ""
        form = pick(ODD[odd] if odd else kind.forms, *at, "form")
        other = self._subject(k, number + 100_000) if odd == "two subjects" else ""
        prefix = kind.noun[:2].upper()
        text = form.format(a=kind.act, n=kind.noun, x=f"{prefix}-{subject}", y=f"{prefix}-{other}", w=phrase)
        share = draw(*at, "answer")
        answer = pick(YES if share < 0.85 else NO if share < 0.95 else HEDGED, *at, "reply")
        return Request(number, k, subject, text[0].upper() + text[1:], opener, odd, answer)

    def _subject(self, kind: int, number: int) -> str:
        name = f"{int(draw(self.seed, number, 'subject') * 90_000 + 10_000)}"
        while name in self.subjects:
            name = str(int(name) + 1)
        self.subjects[name] = (kind, number)
        return name

    # --- what its tools return ---

    def meets(self, branch: Branch, request: Request) -> bool:
        """Return True if the request meets the branch's condition."""
        if not branch.source:
            return branch.names[0] in (request.text if branch.kind == "word" else request.opener)
        return self._rare(branch, request.subject)

    def _rare(self, branch: Branch, subject: str) -> bool:
        if branch.kind in TWO:
            return all(self._halves(branch, subject))
        return draw(self.seed, subject, branch.names, "rare") < branch.share

    def _halves(self, branch: Branch, subject: str) -> list[bool]:
        return [draw(self.seed, subject, n, "half") < p for n, p in zip(branch.names, TWO[branch.kind], strict=True)]

    def output(self, tool: Tool, subject: str, changes: Sequence[str]) -> str:
        """Return what a reading tool says of a subject, given the changes made to it."""
        kind = self.kinds[self.subjects[subject][0]]
        found: dict[str, Any] = {"ref": f"{kind.noun[:2].upper()}-{subject}"}
        if tool.name == kind.steps[0]:
            found |= {"customer_id": f"CU-{subject}", "total": self._total(subject)}
            found["stage"] = changes[-1].split(" ")[0] if changes else "open"
        branches = {branch.names[0]: branch for branch in kind.branches if branch.source == tool.name}
        for sort, name, values, share in tool.noise:
            if sort:
                found[name] = self._noise(sort, name, values, share, tool.name, subject)
            elif name in branches:
                found |= self._condition(branches[name], subject)
        if tool.style == "text":
            rows = {k: ", ".join(map(_row, v)) or "empty" if isinstance(v, list) else v for k, v in found.items()}
            return f"Result: {'; '.join(f'{k} is {v}' for k, v in rows.items())}."
        return json.dumps({"data": found, "count": 1} if tool.style == "nested" else found)

    def _total(self, subject: str) -> int:
        return 20 + int(draw(self.seed, subject, "total") * CREDIT)

    def _day(self, subject: str, days: float) -> str:
        """Return the date that lies so many days before the day of the subject's first request."""
        number = self.subjects[subject][1] % 100_000
        return f"{(START + number * PACE - timedelta(days=days)).date()}"

    def _noise(self, sort: str, name: str, values: tuple[str, ...], share: float, tool: str, subject: str) -> Any:
        at = (self.seed, tool, subject, name)
        v, w = draw(*at), draw(*at, "second")
        rows = [{"item": int(draw(*at, n) * 999), "state": pick(ROWS[0], *at, n)} for n in range(int(4 * v))]
        return {
            "cat": values[int(v * v * len(values))],
            "flag": v < share,
            "null": self._day(subject, 200 * w) if v < share else None,
            "amount": int(10 + v * 990),
            "date": self._day(subject, 300 * v),
            "name": f"{pick(PEOPLE, *at)} {chr(65 + int(w * 26))}{pick('aeiou', v)}{pick('lmnrst', w)}",
            "id": f"{pick('ABC', v)}{int(w * 9e6 + 1e6)}",
            "list": rows,
            "text": f"It is {pick(WORDS[0], v)} for {pick(PEOPLE, w)}",
        }[sort]

    def _condition(self, branch: Branch, subject: str) -> dict[str, Any]:
        """Return the fields that show if a subject meets the branch's condition."""
        rare, name = self._rare(branch, subject), branch.names[0]
        at = (self.seed, subject, name)
        v, w = draw(*at, "value"), draw(*at, "second")
        if branch.kind in TWO:
            first, second = self._halves(branch, subject)
            return {name: pick(branch.rare if first else branch.usual, v), branch.names[1]: second}
        if branch.kind == "cmp":
            limit = 100 + int(900 * v)
            return {name: int(limit * (1.05 + w if rare else 0.1 + 0.85 * w)), branch.names[1]: limit}
        if branch.kind == "absent" and rare:
            return {}
        count = 1 + int(4 * v) if rare else int(5 * v)
        states = [pick(ROWS[rare and n == int(w * count)], *at, n) for n in range(count)]
        return {name: {
            "cat": pick(branch.rare if rare else branch.usual, v),
            "flag": rare,
            "null": self._day(subject, 200 * v) if rare else None,
            "absent": self._day(subject, 200 * v),
            "amount": int(CUT + 1 + CUT * v) if rare else int(CUT * v),
            "date": f"{SOON + timedelta(days=int(90 * v)) if rare else EARLY + timedelta(days=int(268 * v))}",
            "age": self._day(subject, DAYS + 2 + 60 * v if rare else (DAYS - 1) * v),
            "text": f"It is {pick(WORDS[rare], v)} for {pick(PEOPLE, w)}",
            "list": [{"item": int(draw(*at, "item", n) * 999), "state": s} for n, s in enumerate(states)],
        }[branch.kind]}  # fmt: skip

    # --- the user ---

    def opening(self, request: Request) -> str:
        """Return the user's first message."""
        return request.opener or request.text

    def reply(self, request: Request, messages: Sequence[BaseMessage]) -> str | None:
        """Return the user's answer to the model's last words, or None if the conversation is over."""
        said = str(messages[-1].content)
        if request.opener and sum(isinstance(m, HumanMessage) for m in messages) == 1:
            return request.text
        if said.startswith("Shall I"):
            return request.answer
        if said == WHY:
            return pick(("It came broken.", "I changed my mind.", "That is private."), self.seed, request.number)
        return "It is as I said, please go on." if said.startswith("Could you tell me more") else None

    # --- the model ---

    def answer(self, request: Request, messages: Sequence[BaseMessage]) -> Answer:
        """Return the model's next act."""
        done = [Call(c["name"], c["args"]) for m in messages if isinstance(m, AIMessage) for c in m.tool_calls]
        said = [str(m.content) for m in messages if isinstance(m, AIMessage) and not m.tool_calls]
        rule, why = self._policy(request, done, said, messages)
        at = (self.seed, request.number, "deviation", len(said), *(call.tool for call in done))
        act = rule
        if why not in ("end", "opener") and draw(*at) < self.deviation:
            looks = sorted(self.reads - {call.tool for call in done})
            way = int(3 * draw(*at, "way")) if looks else int(2 * draw(*at, "way"))
            look = Call("", {}) if way < 2 else self.call_of(request, pick(looks, *at, "look"))
            act = ("I cannot help with that.", "Could you tell me more?", look)[way]
        return Answer(act, rule, why)

    def call_of(self, request: Request, tool: str) -> Call:
        """Return the call of a tool that is right for a request."""
        noun = self.kinds[request.kind].noun
        ids: dict[str, Any] = {"ref": f"{noun[:2].upper()}-{request.subject}", "customer_id": f"CU-{request.subject}"}
        values = {**ids, "amount": self._total(request.subject)}
        return Call(tool, {param: values[param] for param in self.tools[tool].params})

    def _policy(
        self, request: Request, done: Sequence[Call], said: Sequence[str], messages: Sequence[BaseMessage]
    ) -> tuple[Call | str, str]:
        kind = self.kinds[request.kind]
        called = {call.tool for call in done}
        named = {"a": kind.act, "n": kind.noun, "x": f"{kind.noun[:2].upper()}-{request.subject}"}
        if request.opener and sum(isinstance(m, HumanMessage) for m in messages) == 1:
            return "Hello! What can I do for you?", "opener"
        if request.odd:
            looks = [step for step in kind.steps[: kind.odd_looks] if step not in called]
            return (self.call_of(request, looks[0]) if looks else "As you wish, I leave it for now."), "odd"
        seen = next((str(m.content) for m in messages if m.type == "tool" and m.name == kind.steps[0]), "")
        if (stage := STAGE.search(seen)) is not None and stage[1] != "open":
            return "That was done before.", "state"
        for branch in kind.branches:
            ready = called.issuperset(kind.steps[: branch.after]) and (not branch.source or branch.source in called)
            if ready and self.meets(branch, request):
                act = self._led(branch, request, called, said, named)
                if act is not None:
                    return act, branch.kind
        for step in kind.steps:
            if step in called:
                continue
            question = "Shall I {a} {n} {x}?".format(**named)
            if step == kind.write and kind.confirms:
                if question not in said:
                    return question, "main"
                at = next(n for n, m in enumerate(messages) if m.content == question)
                if messages[at + 1].content not in YES:
                    return "As you wish, I leave it.", "answer"
            return self.call_of(request, step), "main"
        return "It is done.", "end"

    def _led(
        self, branch: Branch, request: Request, called: set[str], said: Sequence[str], named: Mapping[str, str]
    ) -> Call | str | None:
        """Return the act that a branch leads to; None if it is done and the plain course goes on."""
        keep = KEEP.format(**named)
        look = {"read": "get_manual", "write": "escalate_case"}.get(branch.target, "")
        if look and look not in called:
            return self.call_of(request, look)
        if branch.target == "ask" and WHY not in said:
            return WHY
        if branch.target in ("read", "ask"):
            return None
        return LEAVE if branch.target != "keep" else "Good, then it stays as it is." if keep in said else keep


def _row(row: Mapping[str, Any]) -> str:
    return f"{row['item']} ({row['state']})"
