"""Desks whose customer, tenant, page, role or date stands outside the user's messages.

A desk is made by a seed. It has look-ups, one changing tool, and users whose requests come in a fixed order. `Visit` is
one request: the user's text, the place where the model sees who is served, and the calls that the model makes. Four
families:

- identity: the value stands in the prompt, in the run's context, in the state, behind the messages, in a picture, or
  nowhere that a program can see.
- names: the request names a person, in one, two or three words of four scripts.
- same_name: two agents have a tool of one name. One agent's tool reads, the other agent's tool changes something.
- withdrawn: some requests negate, withdraw or postpone the look-up that the others ask for.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from typing import Any, Final

START: Final = datetime(2026, 3, 2, 8, tzinfo=timezone.utc)
PACE: Final = timedelta(minutes=20)
"""Time from one request to the next."""
PER_DAY: Final = 25
"""Requests in a day."""

REQUEST, PROMPT, CONTEXT, STATE, MESSAGE = "request", "prompt", "context", "state", "message"
CONTEXT_ONLY, PICTURE, UNSEEN = "context_only", "picture", "unseen"
PLACES: Final = (PROMPT, CONTEXT, STATE, MESSAGE, CONTEXT_ONLY, PICTURE, UNSEEN)
"""Where the identity stands. `context` and `state`: the prompt is written from them; `message`: a message behind the
conversation that is not in the state; `context_only`: only in the run's context; `unseen`: nowhere in the run."""
IN_PROMPT: Final = (PROMPT, CONTEXT, STATE)
"""Places where the identity stands in the system prompt."""
CUSTOMER, TENANT, PAGE, ROLE, DATE = "customer", "tenant", "page", "role", "date"
NAMES, SAME_NAME, WITHDRAWN = "names", "same_name", "withdrawn"
KINDS: Final = (CUSTOMER, TENANT, PAGE, ROLE, DATE)


def _families() -> Iterator[tuple[str, str]]:
    for shift in range(len(PLACES)):
        for number, kind in enumerate(KINDS):
            yield kind, PLACES[(number + shift) % len(PLACES)]


FAMILIES: Final = tuple(_families())
"""All kinds of identity at all places, in an order that mixes them."""
OTHERS: Final = (NAMES, WITHDRAWN, SAME_NAME, NAMES, WITHDRAWN)
"""The families without an identity that follow every seven desks with one."""
MAIN_AGENT, OTHER_AGENT = "main", "other"


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A tool call that the model makes."""

    tool: str
    args: dict[str, Any]

    @property
    def key(self) -> str:
        """The call as text, the same for equal calls."""
        return f"{self.tool} {json.dumps(self.args, sort_keys=True, ensure_ascii=False)}"


@dataclass(frozen=True, slots=True)
class DeskTool:
    """A tool of a desk; `marked`: the tool object itself carries the mark that it only reads."""

    name: str
    about: str
    parameter: str
    reads: bool
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Visit:
    """One request to a desk.

    Attributes:
        number: its place in the order of the desk's requests.
        thread: the conversation; a withdrawal continues the thread of the request before it.
        agent: `MAIN_AGENT` or `OTHER_AGENT`.
        text: the user's words.
        identity: who is served; "" where that does not matter.
        prompt: the system prompt.
        plan: the calls that the model makes, in order.
        answer: the model's words after them.
        user_id: of the user; None where the host names none.
    """

    number: int
    thread: str
    agent: str
    text: str
    identity: str
    prompt: str
    plan: tuple[PlannedCall, ...]
    answer: str
    user_id: str | None

    @property
    def time(self) -> datetime:
        """The time of the request: 25 requests a day."""
        day, position = divmod(self.number, PER_DAY)
        return START + timedelta(days=day) + position * PACE


@dataclass(frozen=True, slots=True)
class IdentityKind:
    """The words of a kind of identity.

    Attributes:
        field: name of the field in the run's context or state.
        parameter: of the tools.
        lines: ways in which a prompt says it.
        said: the user's own words for it, where it stands in the request.
        look, detail, change: names of the tools.
        looks, details, changes: requests.
    """

    field: str
    parameter: str
    lines: tuple[str, ...]
    said: str
    look: str
    detail: str
    change: str
    looks: tuple[str, ...]
    details: tuple[str, ...]
    changes: tuple[str, ...]


WORDING: Final = {
    CUSTOMER: IdentityKind(
        "customer", "customer_id",
        ("You help the customer {v}.", "Customer: {v}", "The person who writes has the number {v} in our books."),
        "I am customer {v}.", "list_orders", "get_parcel", "pause_subscription",
        ("Which orders do I have?", "Show my orders", "my orders please", "What did I buy lately?"),
        ("Where is my parcel?", "Has my order shipped?", "Track my latest order"),
        ("Please pause my subscription", "I want to pause my subscription"),
    ),
    TENANT: IdentityKind(
        "account", "account",
        ("You work for the account {v}.", 'Session: {{"account": "{v}", "plan": "basic"}}', "Tenant = {v}"),
        "Our account is {v}.", "list_invoices", "get_payment", "lock_account",
        ("Which invoices are open?", "Show open invoices", "open invoices please", "Are there open invoices?"),
        ("Was the last invoice paid?", "Did the latest payment arrive?"),
        ("Lock the account please", "We want the account locked"),
    ),
    PAGE: IdentityKind(
        "page", "path",
        ("The user has the page {v} open.", "Open page: {v}", "<page>{v}</page>"),
        "I am on the page {v}.", "read_page", "get_author", "publish_page",
        ("What does this page say?", "Sum this up for me", "Is this complete?"),
        ("Who wrote this?", "Who is the author of this page?"),
        ("Publish this please", "Please publish it"),
    ),
    ROLE: IdentityKind(
        "role", "audience",
        ("The user is a {v}.", "role: {v}", "Answer as suits somebody who works here as {v}."),
        "My role is {v}.", "list_reports", "open_report", "subscribe_role",
        ("Which reports are there for me?", "Show me the reports", "reports please"),
        ("Open the newest report", "What does the latest report say?"),
        ("Subscribe us to the newsletter", "We want the newsletter"),
    ),
    DATE: IdentityKind(
        "today", "date",
        ("Today is {v}.", "Current date: {v}", "It is now {v}, office hours."),
        "Today is {v}.", "list_meetings", "get_room", "block_day",
        ("What meetings do I have today?", "Show me today's meetings", "my meetings today please"),
        ("Where is my first meeting today?", "Which room is my meeting in?"),
        ("Block the day for me", "Please block today"),
    ),
}  # fmt: skip

RULES: Final = (
    "You are the assistant of a company that sells and repairs household goods.",
    "Be friendly, brief and exact.", "Never promise a date that no tool has returned.",
    "Ask one question at a time.", "Write amounts with their currency.", "Do not speak about other people's data.",
    "If a tool fails, say so and try another way.", "Answer in the user's language.",
    "Do not invent order numbers.", "Refer legal questions to the legal department.",
    "Use tools before you say that something does not exist.", "Do not repeat what the user has said.",
    "Mention the opening hours only if someone asks for them.", "Return policy: 30 days, 14 for opened goods.",
    "Escalate threats and accidents at once.", "Our shops are in Basel, Oslo, Lima and Kyoto.",
)  # fmt: skip
CHANGING: Final = ("Ticket {n}.", "There are {n} people in the queue.", "Build {n} of the assistant.", "Session id {n}")
"""Lines of the prompt that change from run to run and mean nothing."""

LATIN: Final = (
    ("Mireille", "Tomasz", "Priya", "Lena", "Jorge", "Igor", "Beatriz", "Dilan", "Anna", "Sukarno"),
    ("Aubert", "Zielak", "Raman", "Brandt", "Ibarra", "Petrov", "Nunez", "Kaya", "Petit", "Castillo"),
)
CYRILLIC: Final = (
    ("Иван", "Ольга", "Сергей", "Анна", "Павел", "Нина"),
    ("Петров", "Смирнова", "Волков", "Козлова", "Орлов", "Белова"),
)
HAN: Final = (("王", "李", "张", "刘", "陈", "杨"), ("伟", "娜", "秀英", "建国", "小明", "芳"))
GREEK: Final = (
    ("Γιώργος", "Μαρία", "Νίκος", "Ελένη", "Κώστας", "Σοφία"),
    ("Παππάς", "Νικολάου", "Δήμου", "Βλάχος", "Ράπτης", "Ζήση"),
)
"""Given names and family names of a script."""
SCRIPTS: Final = {"latin": LATIN, "cyrillic": CYRILLIC, "han": HAN, "greek": GREEK}
MIDDLE: Final = {"latin": ("del", "van", "Maria"), "cyrillic": ("Иванович", "Павловна"), "greek": ("Άννα", "Πέτρος")}
NAME_FORMS: Final = (
    "Block the card of {} please", "Is the account of {} open?", "Send {} the statement", "What did {} spend in May?",
    "Pay {} 12.50 for lunch", "Call {} back tomorrow", "{}: address please", "Who looks after {}",
)  # fmt: skip
WITHDRAWN_LOOKS: Final = (
    "What are the tasks of {}",
    "Show me the tasks of {}",
    "tasks of {} please",
    "List tasks of {}",
)
WITHDRAWALS: Final = {
    "negated": ("Please don't show the tasks of {}", "Do not list tasks of {}", "tasks of {}: no, not those please"),
    "withdrawn": ("never mind the tasks of {}", "I no longer need the tasks of {}", "Forget the tasks of {} please"),
    "postponed": ("Show me the tasks of {} next week, not now", "tasks of {} please, but only tomorrow"),
}
TOKENS: Final = ("Ann", "Bob", "Cem", "Dana", "Eli", "Fay", "Gus", "Hana", "Ivo", "Jule")


@dataclass(slots=True)
class InputDesk:
    """A desk with its tools and requests.

    Args:
        seed: of everything; the family follows from it.
        count: number of requests.
        place: overrides where the identity stands, for a comparison with the same desk.
    """

    seed: int
    count: int
    place: str = ""
    family: str = field(init=False)
    known_users: bool = field(init=False)
    order: str = field(init=False)
    tools: dict[str, tuple[DeskTool, ...]] = field(init=False, default_factory=dict)
    identities: tuple[str, ...] = field(init=False, default=())
    visits: list[Visit] = field(init=False, default_factory=list)
    _random: random.Random = field(init=False)
    _rules: list[str] = field(init=False)
    _line: str = field(init=False, default="")
    _changing: list[str] = field(init=False)

    def __post_init__(self) -> None:
        cycle, position = divmod(self.seed, 12)
        self._random = random.Random(f"input desk {self.seed}")
        self.known_users = (self.seed + cycle) % 2 == 0
        self.order = self._random.choice(["mixed", "blocks", "trial"])
        self._rules = self._random.sample(RULES, self._random.randint(6, len(RULES)))
        self._changing = self._random.sample(CHANGING, self._random.randint(0, 2))
        if position < 7:
            self.family, place = FAMILIES[(7 * cycle + position) % len(FAMILIES)]
            self.place = self.place or place
            self.visits = list(self._identity_visits())
            return
        self.family, self.place = OTHERS[position - 7], REQUEST
        makers = {NAMES: self._name_visits, WITHDRAWN: self._withdrawn_visits, SAME_NAME: self._same_name_visits}
        self.visits = list(makers[self.family]())

    @property
    def reads(self) -> frozenset[str]:
        """The tools that the developer declares to read, by name."""
        tools = [tool for group in self.tools.values() for tool in group]
        return frozenset(tool.name for tool in tools if tool.reads and not tool.marked)

    def writes(self, agent: str) -> frozenset[str]:
        """Return the tools of an agent that change something."""
        return frozenset(tool.name for tool in self.tools[agent] if not tool.reads)

    @property
    def wording(self) -> IdentityKind:
        """The words of the desk's kind of identity."""
        return WORDING[self.family]

    def output(self, call: PlannedCall) -> str:
        """Return the output of a call; it depends on the call alone."""
        value = str(next(iter(call.args.values()), ""))
        number = random.Random(f"{self.seed} {call.key}").randrange(1000, 9999)
        if call.tool in ("find_client", "find_person"):
            return json.dumps({"id": self._id_of(value), "since": 2000 + number % 25}, ensure_ascii=False)
        if self.family in WORDING and call.tool == self.wording.look:
            rows = [{"item": self._item_of(value), "state": "open"}, {"item": f"I-{number + 1}", "state": "done"}]
            return json.dumps({"of": value, "rows": rows}, ensure_ascii=False)
        return json.dumps({"ok": True, "note": f"N{number}"})

    def _id_of(self, value: str) -> str:
        return f"P-{random.Random(f'{self.seed} id {value}').randrange(10_000, 99_999)}"

    def _item_of(self, value: str) -> str:
        return f"I-{random.Random(f'{self.seed} item {value}').randrange(10_000, 99_999)}"

    def _prompt(self, *identity_lines: str) -> str:
        """Return a system prompt: rules, lines that change and mean nothing, and the lines with the identity."""
        changing = [line.format(n=self._random.randrange(100, 9999)) for line in self._changing]
        half = len(self._rules) // 2
        return "\n".join([*self._rules[:half], *changing, *identity_lines, *self._rules[half:]])

    def _user(self, name: str) -> str | None:
        return name if self.known_users else None

    # --- identity ---

    def _identity_visits(self) -> Iterator[Visit]:
        wording, rng = self.wording, self._random
        parameter = wording.parameter
        self._line = rng.choice(wording.lines)
        self.tools[MAIN_AGENT] = (
            DeskTool(wording.look, f"{wording.look.replace('_', ' ').capitalize()}.", parameter, reads=True),
            DeskTool(wording.detail, f"{wording.detail.replace('_', ' ').capitalize()}.", "item", reads=True),
            DeskTool(wording.change, f"{wording.change.replace('_', ' ').capitalize()}.", parameter, reads=False),
        )
        self.identities = tuple(self._make_identities())
        asks_ahead = rng.random() < 0.5  # on half of the desks with a date, some requests are about the next day
        for number, identity in enumerate(self._served()):
            kind = rng.choices(("look", "detail", "change"), (5, 3, 2))[0]
            text = rng.choice({"look": wording.looks, "detail": wording.details, "change": wording.changes}[kind])
            value = identity
            if self.family == DATE and asks_ahead and kind == "look" and rng.random() < 0.4:
                text, value = "And which meetings are there tomorrow?", _next_day(identity)
            prompt_lines = [self._line.format(v=identity)] if self.place in IN_PROMPT else []
            if self.place == REQUEST:
                text = f"{text} {wording.said.format(v=identity)}"
            user = f"{identity}-{rng.randrange(3)}" if self.family == TENANT else identity
            if self.family in (DATE, PAGE, ROLE):
                user = f"user-{rng.randrange(8)}"
            plan = self._identity_plan(kind, identity, value)
            yield Visit(
                number, f"t{number}", MAIN_AGENT, text, identity, self._prompt(*prompt_lines), plan, "Here it is.",
                self._user(user),
            )  # fmt: skip

    def _identity_plan(self, kind: str, identity: str, value: str) -> tuple[PlannedCall, ...]:
        wording = self.wording
        look = PlannedCall(wording.look, {wording.parameter: value})
        if kind == "look":
            return (look,)
        if kind == "detail":
            return look, PlannedCall(wording.detail, {"item": self._item_of(value)})
        if self.family == ROLE and identity == self.identities[0]:  # this role may not change anything
            return (look,)
        return look, PlannedCall(wording.change, {wording.parameter: value})

    def message_line(self, visit: Visit) -> str:
        """Return the line that a middleware puts behind the messages where `place` is "message"."""
        return self._line.format(v=visit.identity)

    def _make_identities(self) -> list[str]:
        rng = self._random
        numbers = rng.sample(range(100, 9000), 12)
        if self.family == CUSTOMER:
            style = rng.choice(["C-{n}", "c{n}", "{first} {last}", "usr_{lower}{n}"])
            return [_styled(style, number, rng) for number in numbers]
        if self.family == TENANT:
            return rng.sample(
                ["acme", "globex", "north-wind", "initech", "hooli", "umbra", "zhou & co", "acc_7781", "acc_9902",
                 "blue_river", "k2", "Stark Labs"], 12)  # fmt: skip
        if self.family == PAGE:
            style = rng.choice(["/orders/{n}", "docs/{lower}-{n}", "{lower}/{n}/edit"])
            return [_styled(style, number, rng) for number in numbers]
        if self.family == ROLE:
            return rng.sample(["viewer", "editor", "billing admin", "owner", "auditor", "trainee"], 4)
        return [str(START.date() + timedelta(days=day)) for day in range(1 + self.count // PER_DAY)]

    def _served(self) -> Iterator[str]:
        """Yield who is served by each request, in the desk's order."""
        if self.family == DATE:
            for number in range(self.count):
                yield self.identities[number // PER_DAY]
            return
        for number in range(self.count):
            if self.order == "blocks":
                yield self.identities[number // 10 % len(self.identities)]
            elif self.order == "trial" and number < self.count // 2:  # a developer tries it with one identity
                yield self.identities[0]
            else:
                yield self._random.choice(self.identities)

    # --- names, withdrawals, tools of one name ---

    def _name_visits(self) -> Iterator[Visit]:
        rng = self._random
        self.tools[MAIN_AGENT] = (
            DeskTool("find_client", "Look a client up by the full name.", "name", reads=True),
            DeskTool("list_payments", "The payments of a client.", "client_id", reads=True),
            DeskTool("send_statement", "Send a client the statement.", "client_id", reads=False),
        )
        usual, lengths = rng.choice(list(SCRIPTS)), rng.choice([(2, 7, 1), (5, 4, 1), (9, 1, 0)])
        forms = rng.sample(NAME_FORMS, rng.randint(3, len(NAME_FORMS)))
        self.identities = tuple(dict.fromkeys(_name(rng, usual, lengths) for _ in range(60)))
        for number in range(self.count):
            name, form = rng.choice(self.identities), rng.choice(forms)
            client = {"client_id": self._id_of(name)}
            plan = [PlannedCall("find_client", {"name": name})]
            if form.startswith("Send"):
                plan.append(PlannedCall("send_statement", client))
            elif "spend" in form:
                plan.append(PlannedCall("list_payments", client))
            user = self._user(f"user-{rng.randrange(8)}")
            yield Visit(
                number, f"t{number}", MAIN_AGENT, form.format(name), name, self._prompt(), tuple(plan), "Done.", user
            )

    def _withdrawn_visits(self) -> Iterator[Visit]:
        rng = self._random
        self.tools[MAIN_AGENT] = (
            DeskTool("find_person", "Look up a person.", "name", reads=True),
            DeskTool("list_tasks", "List the tasks of a person.", "person_id", reads=True),
            DeskTool("close_tasks", "Close all tasks of a person.", "person_id", reads=False),
        )
        share = rng.choice([0.03, 0.08, 0.15])
        began = rng.choice([0, 60])
        thread, name, user = "t0", rng.choice(TOKENS), self._user("user-0")
        for number in range(self.count):
            withdraws = number >= began and rng.random() < share
            kind = rng.choice(list(WITHDRAWALS))
            goes_on = withdraws and kind == "withdrawn" and rng.random() < 0.5
            if not goes_on:
                thread, name, user = f"t{number}", rng.choice(TOKENS), self._user(f"user-{rng.randrange(8)}")
            if withdraws:
                text, plan = rng.choice(WITHDRAWALS[kind]).format(name), tuple[PlannedCall, ...]()
            else:
                text = rng.choice(WITHDRAWN_LOOKS).format(name)
                person = {"person_id": self._id_of(name)}
                plan = (PlannedCall("find_person", {"name": name}), PlannedCall("list_tasks", person))
            yield Visit(number, thread, MAIN_AGENT, text, name, self._prompt(), plan, "Fine.", user)

    def _same_name_visits(self) -> Iterator[Visit]:
        rng = self._random
        about = rng.choice([("Show an account.", "Close an account for good."), ("Account tool.", "Account tool.")])
        self.tools[MAIN_AGENT] = (DeskTool("account_action", about[0], "account_id", reads=True, marked=True),)
        self.tools[OTHER_AGENT] = (DeskTool("account_action", about[1], "account_id", reads=False),)
        forms = ("Look at the account {}", "The account {} please", "Take care of account {}")
        for number in range(self.count):
            account, agent = str(rng.randrange(1000, 9999)), rng.choice([MAIN_AGENT, OTHER_AGENT])
            if self.order == "trial" and number < self.count // 2:
                agent = MAIN_AGENT
            plan: tuple[PlannedCall, ...] = ()
            answer = "Do you really want to close it?"
            if agent == MAIN_AGENT:
                plan, answer = (PlannedCall("account_action", {"account_id": account}),), "Done."
            user = self._user(f"user-{rng.randrange(8)}")
            yield Visit(
                number,
                f"t{number}",
                agent,
                rng.choice(forms).format(account),
                account,
                self._prompt(),
                plan,
                answer,
                user,
            )


def _next_day(text: str) -> str:
    return str(date.fromisoformat(text) + timedelta(days=1))


def _styled(style: str, number: int, rng: random.Random) -> str:
    first, last = rng.choice(LATIN[0]), rng.choice(LATIN[1])
    return style.format(n=number, first=first, last=last, lower=last.lower())


def _name(rng: random.Random, usual: str, lengths: Sequence[int]) -> str:
    """Return a name of one to three words, most of them in the usual script."""
    script = usual if rng.random() < 0.85 else rng.choice(list(SCRIPTS))
    first, last = (rng.choice(list(part)) for part in SCRIPTS[script])
    if script == "han":
        return first + last
    words = rng.choices((1, 2, 3), lengths)[0]
    if words == 1:
        return rng.choice([first, last])
    return " ".join([first, rng.choice(MIDDLE[script]), last] if words == 3 else [first, last])
