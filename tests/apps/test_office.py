"""The office sandbox, its tasks and the scripted assistant: the parts of the demo."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from rich.console import Console

from examples.office import ALTERNATIVES, Office, Task, make_tasks
from examples.office import demo as demo_module
from examples.office.alternatives import ADAPTERS
from examples.office.assistant import LABEL, reply, understand
from examples.office.check import added, changed, removed, state_is_right
from examples.office.kinds import KINDS
from examples.office.plan import Call, World
from examples.office.runs import Outcome, lost, run_tasks, totals
from langgraph_toolmem.testing import OpenAIStubServer, ScriptedChatModel, make_chat_model

TASKS = make_tasks(200, seed=0)
Messages = list[dict[str, Any]]


class Desk:
    """A fast loop without HTTP and LangGraph: the assistant, an office, and somebody who may make calls."""

    def __init__(self, office: Office) -> None:
        self.office = office
        self.tools = {tool.name: tool for tool in office.tools()}
        self.offered = [{"function": {"name": name}} for name in self.tools]
        self.turns = 0
        self._ids = itertools.count(1)

    def ask(self, messages: Messages) -> AIMessage:
        self.turns += 1
        return reply({"messages": messages, "tools": self.offered})

    def call(self, messages: Messages, calls: list[Call], text: str = "") -> None:
        """Append an assistant message with calls, and their results."""
        ids = [f"c{next(self._ids)}" for _ in calls]
        wire = [
            {"id": key, "function": {"name": call.tool, "arguments": json.dumps(call.args)}}
            for key, call in zip(ids, calls, strict=True)
        ]
        messages.append({"role": "assistant", "content": text, "tool_calls": wire})
        for key, call in zip(ids, calls, strict=True):
            output = self.tools[call.tool].invoke(call.args)
            content = output if isinstance(output, str) else json.dumps(output)
            messages.append({"role": "tool", "tool_call_id": key, "content": content})

    def solve(self, task: Task, before_turn: Callable[[Messages], None] = lambda _: None) -> Messages:
        """Work on a task until the assistant answers in words."""
        self.office.reset(task.seed)
        return self.go_on([{"role": "user", "content": task.request}], before_turn)

    def go_on(self, messages: Messages, before_turn: Callable[[Messages], None] = lambda _: None) -> Messages:
        for _ in range(40):
            before_turn(messages)
            answer = self.ask(messages)
            if not answer.tool_calls:
                messages.append({"role": "assistant", "content": answer.text})
                return messages
            self.call(messages, [Call(c["name"], c["args"]) for c in answer.tool_calls], answer.text)
        raise AssertionError("the assistant does not come to an end")


def made_calls(messages: Messages) -> list[str]:
    return [c["function"]["name"] for m in messages for c in m.get("tool_calls", ())]


def first_of(kind: str) -> Task:
    return next(task for task in TASKS if task.kind == kind)


# --- the office


def test_same_seed_same_office_and_reset_brings_it_back() -> None:
    office = Office(3)
    fresh = office.state()
    assert fresh == Office(3).state() != Office(4).state()
    tools = {tool.name: tool for tool in office.tools()}
    tools["create_note"].invoke({"title": "a", "text": "b"})
    key = next(iter(fresh["emails"]))
    tools["delete_email"].invoke({"email_id": key})
    assert office.state() != fresh
    office.reset()
    assert office.state() == fresh
    office.reset(4)
    assert office.state() == Office(4).state()
    tools["create_note"].invoke({"title": "a", "text": "b"})
    assert len(office.state()["notes"]) == 1  # tools stay bound to the office after a reset


def test_state_is_a_copy() -> None:
    office = Office(0)
    office.state()["people"].clear()
    next(iter(office.state()["tasks"].values()))["status"] = "lost"
    assert office.state() == Office(0).state()


def test_tools_are_described_and_tagged() -> None:
    tools = Office(0).tools()
    assert len(tools) >= 14
    assert len({tool.name for tool in tools}) == len(tools)
    for tool in tools:
        schema = tool.tool_call_schema.model_json_schema()  # type: ignore[union-attr]
        assert tool.description
        assert all(field["description"] for field in schema["properties"].values())
    tagged = {tag: {t.name for t in tools if tag in (t.tags or ())} for tag in ("destructive", "read_only")}
    assert tagged["destructive"] == {"delete_email", "delete_file", "cancel_event", "archive_customer"}
    assert {"find_person", "get_metric", "list_events", "read_email"} <= tagged["read_only"]
    assert not tagged["destructive"] & tagged["read_only"]


def test_read_only_tools_change_nothing_and_all_others_do() -> None:
    office = Office(0)
    tools = {tool.name: tool for tool in office.tools()}
    used: Counter[str] = Counter()
    for task in TASKS[:100]:
        office.reset(task.seed)
        for call in task.script():
            before = office.state()
            tools[call.tool].invoke(call.args)
            read_only = "read_only" in (tools[call.tool].tags or ())
            assert (office.state() == before) is read_only, call
            used[call.tool] += 1
    assert len(used) >= 20


def test_errors_come_back_as_results() -> None:
    tools = {tool.name: tool for tool in Office(0).tools()}
    message = tools["read_email"].invoke(
        {"type": "tool_call", "name": "read_email", "args": {"email_id": "no"}, "id": "1"}
    )
    assert message.status == "error"
    assert message.content == "Error: there is no entry 'no' in emails."
    assert tools["list_team"].invoke({"team": "x"}).startswith("Error: there is no team")
    assert tools["get_metric"].invoke({"metric": "x", "start": "a", "end": "b"}).startswith("Error")
    assert tools["send_email"].invoke({"to": "x", "subject": "", "body": ""}).startswith("Error")


async def test_tools_work_async() -> None:
    tools = {tool.name: tool for tool in Office(0).tools()}
    assert len((await tools["list_team"].ainvoke({"team": "Sales"}))["members"]) == 5


def test_injected_failures_have_no_effect_and_end() -> None:
    office = Office(0)
    tool = next(tool for tool in office.tools() if tool.name == "create_note")
    office.inject("create_note", failures=2)
    answers = [tool.invoke({"title": "a", "text": "b"}) for _ in range(3)]
    assert [answer.startswith("Error: create_note is not available") for answer in answers] == [True, True, False]
    assert len(office.state()["notes"]) == 1

    def pattern(seed: int) -> list[bool]:
        office.inject("create_note", probability=0.5, seed=seed)
        return [tool.invoke({"title": "a", "text": "b"}).startswith("Error") for _ in range(30)]

    assert pattern(1) == pattern(1) != pattern(2)
    assert 5 < sum(pattern(1)) < 25
    office.inject("create_note", probability=1.0)
    office.reset()
    assert not tool.invoke({"title": "a", "text": "b"}).startswith("Error")


def test_inject_refuses_nonsense() -> None:
    office = Office(0)
    with pytest.raises(ValueError, match="no tool 'fly'"):
        office.inject("fly", failures=1)
    with pytest.raises(ValueError, match="either"):
        office.inject("create_note")
    with pytest.raises(ValueError, match="either"):
        office.inject("create_note", failures=1, probability=0.1)


def test_alternatives_table_matches_the_adapters() -> None:
    names = {tool.name for tool in Office(0).tools()}
    assert {tool: tuple(a.tool for a in adapters) for tool, adapters in ADAPTERS.items()} == ALTERNATIVES
    assert names >= set(ALTERNATIVES) | {name for others in ALTERNATIVES.values() for name in others}


# --- the checker


def test_state_is_right_by_hand() -> None:
    before: Any = {"a": {"1": {"x": 1, "y": "Old"}, "2": {"x": 2}}, "b": {}}
    after: Any = {"a": {"1": {"x": 1, "y": "NEW "}}, "b": {"9": {"to": ["q", "p"], "text": "Hello there"}}}
    change = changed("a", "1", y="new")
    gone = removed("a", "2")
    new = added("b", {"text": ["hello"]}, to=["p", "q"])
    assert state_is_right(before, after, [new, gone, change])
    assert state_is_right(before, before, [])
    assert not state_is_right(before, after, [new, gone])  # one change too many
    assert not state_is_right(before, before, [gone])  # one that is missing
    assert not state_is_right(before, after, [new, gone, changed("a", "1", y="other")])
    assert not state_is_right(before, after, [new, gone, changed("a", "1", x=1)])  # y must not change then
    assert not state_is_right(before, after, [new, gone, changed("a", "2", y="new")])
    assert not state_is_right(before, after, [added("b", {"text": ["bye"]}), gone, change])
    assert not state_is_right(before, after, [new, new, change])
    assert state_is_right(before, after, [added("b", to=lambda value: len(value) == 2), gone, change])


# --- the tasks


def test_tasks_are_many_kinds_in_random_order_and_repeatable() -> None:
    counts = Counter(task.kind for task in TASKS)
    assert len(TASKS) == 200
    assert len(counts) == len(KINDS) >= 20
    assert min(counts.values()) >= 2
    assert [t.request for t in TASKS] == [t.request for t in make_tasks(200, seed=0)]
    assert [t.kind for t in TASKS] != [t.kind for t in make_tasks(200, seed=1)]
    assert len({t.request for t in TASKS}) > 190
    assert len({t.id for t in TASKS}) == 200
    assert len(make_tasks(5)) == 5


def test_every_kind_has_several_wordings_that_only_it_understands() -> None:
    for kind in KINDS:
        assert len(kind.wordings) >= 2
    for task in TASKS:
        found = understand(task.request)
        assert found is not None
        assert (found[0].name, found[1]) == (task.kind, task.slots)


def test_scripts_solve_the_tasks_and_checkers_notice_more_or_less() -> None:
    lengths = Counter()  # type: ignore[var-annotated]
    for task in TASKS[::2]:
        calls = task.script()
        lengths[len(calls)] += 1
        untouched = Office(task.seed)
        assert task.checker(untouched) is (not task.expected)
        desk = Desk(Office(task.seed))
        desk.solve(task)
        assert task.checker(desk.office)
        desk.tools["create_note"].invoke({"title": "stray", "text": "stray"})
        assert not task.checker(desk.office)
    assert set(lengths) >= {0, 1, 2, 3, 4, 5, 6}
    assert sum(n * count for n, count in lengths.items()) / lengths.total() > 3


@pytest.mark.parametrize("name", ["meet_or_task", "archive_if_idle", "drop_alert", "cancel_meetings"])
def test_branches_go_both_ways(name: str) -> None:
    world, rng = World(0), random.Random(0)
    kind = next(kind for kind in KINDS if kind.name == name)
    shapes: Counter[str] = Counter()
    for _ in range(60):
        changes = kind.expect(world, kind.pick(rng, world))
        shapes[changes[0].collection if changes else "nothing"] += 1
    assert len(shapes) == 2
    assert min(shapes.values()) >= 6


# --- the assistant


@pytest.mark.parametrize("seed", [0, 7])
def test_assistant_solves_all_tasks_as_the_script_does(seed: int) -> None:
    desk = Desk(Office(seed))
    thoughts = turns = 0
    for task in make_tasks(200, seed=seed, office_seed=seed):
        messages = desk.solve(task)
        assert task.checker(desk.office), task.request
        assert made_calls(messages) == [call.tool for call in task.script()]
        with_calls = [m for m in messages if m.get("tool_calls")]
        turns += len(with_calls)
        thoughts += sum(bool(m["content"]) for m in with_calls)
    assert 0.01 < thoughts / turns < 0.06


@pytest.mark.parametrize("tool", sorted(ALTERNATIVES))
def test_assistant_takes_an_alternative_when_a_tool_is_down(tool: str) -> None:
    desk = Desk(Office(0))
    affected = [task for task in TASKS if any(call.tool == tool for call in task.script())][:8]
    assert affected
    for task in affected:
        desk.solve(task, lambda _: desk.office.inject(tool, probability=1.0))
        assert task.checker(desk.office), task.request


def test_assistant_tries_again_and_gives_up_in_words() -> None:
    task = first_of("forward_latest")
    desk = Desk(Office(0))
    desk.office.reset(task.seed)
    desk.office.inject("forward_email", failures=2)
    messages = desk.go_on([{"role": "user", "content": task.request}])
    assert task.checker(desk.office)
    assert made_calls(messages).count("forward_email") == 3
    desk.office.reset(task.seed)
    desk.office.inject("forward_email", probability=1.0)
    messages = desk.go_on([{"role": "user", "content": task.request}])
    assert messages[-1]["content"] == "I am sorry, forward_email does not work at the moment."
    assert not task.checker(desk.office)


@settings(max_examples=15, deadline=None)
@given(number=st.integers(0, 199), seed=st.integers(0, 999), share=st.sampled_from([0.3, 0.7, 1.0]))
def test_assistant_goes_on_from_calls_somebody_else_made(number: int, seed: int, share: float) -> None:
    task = TASKS[number]
    rng = random.Random(seed)
    alone = Desk(Office(0))
    alone.solve(task)
    desk = Desk(Office(0))

    def helper(messages: Messages) -> None:
        # A shortcut that is right: it makes calls that the assistant would make next, one at a time.
        while rng.random() < share:
            answer = reply({"messages": messages, "tools": desk.offered})
            if not answer.tool_calls:
                return
            call = rng.choice(answer.tool_calls)
            desk.call(messages, [Call(call["name"], call["args"])])

    desk.solve(task, helper)
    assert task.checker(desk.office)
    assert desk.turns <= alone.turns
    if share == 1.0:
        assert desk.turns == 1  # only the closing words are left


@settings(max_examples=15, deadline=None)
@given(number=st.integers(0, 199), seed=st.integers(0, 999))
def test_assistant_is_not_misled_by_useless_lookups(number: int, seed: int) -> None:
    task = TASKS[number]
    rng = random.Random(seed)
    desk = Desk(Office(0))
    lookups = [
        Call("find_person", {"name": "Wei"}),
        Call("list_emails", {}),
        Call("search_customers", {"status": "lead"}),
        Call("read_email", {"email_id": "msg_000000"}),
        Call("list_team", {"team": "design"}),
        Call("get_metric", {"metric": "revenue", "start": "2024-05-01", "end": "2024-05-02"}),
    ]
    desk.solve(task, lambda messages: desk.call(messages, [rng.choice(lookups)]))
    assert task.checker(desk.office)


def test_assistant_reads_only_what_came_after_the_last_request() -> None:
    task = first_of("tell_team")
    desk = Desk(Office(0))
    messages = desk.solve(task)
    first = len(made_calls(messages))
    messages.append({"role": "user", "content": [{"type": "text", "text": task.request}]})
    desk.go_on(messages)
    assert len(made_calls(messages)) == 2 * first
    assert len(desk.office.state()["sent"]) == 2 * len(task.expected)


def test_assistant_with_odd_conversations() -> None:
    desk = Desk(Office(0))
    assert desk.ask([{"role": "system", "content": "x"}]).text == "What can I do for you?"
    answer = desk.ask([{"role": "user", "content": "Sing a song."}])
    assert LABEL in answer.text
    assert not answer.tool_calls
    unknown = desk.ask([{"role": "user", "content": "Who is the account manager of Nobody Inc?"}])
    messages: Messages = [{"role": "user", "content": "Who is the account manager of Nobody Inc?"}]
    desk.call(messages, [Call(c["name"], c["args"]) for c in unknown.tool_calls])
    assert "did not find" in desk.ask(messages).text
    no_tools = reply({"messages": [{"role": "user", "content": first_of("reply").request}]})
    assert "does not work" in no_tools.text
    dangling: Messages = [
        {"role": "user", "content": first_of("forward_latest").request},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "1", "function": {"name": "find_person", "arguments": "{"}},
                {"id": "2", "function": {"name": "find_person", "arguments": '{"name": "Wei"}'}},
            ],
        },
    ]
    assert [call["name"] for call in desk.ask(dangling).tool_calls] == ["find_person"]


def test_optional_arguments_vary_by_text_and_not_by_chance() -> None:
    def arguments() -> list[Any]:
        asked = [reply({"messages": [{"role": "user", "content": t.request}], "tools": TOOLS}) for t in TASKS]
        return [call["args"] for answer in asked for call in answer.tool_calls]

    first = arguments()
    assert first == arguments()
    assert 0 < sum("limit" in args for args in first) < len(first) / 5


def test_how_often_optional_arguments_are_filled_can_be_set() -> None:
    def filled(percent: float) -> int:
        asked = [{"messages": [{"role": "user", "content": task.request}], "tools": TOOLS} for task in TASKS]
        calls = [call for request in asked for call in reply(request, variation=percent).tool_calls]
        return sum(bool(call["args"].keys() & {"limit", "style"}) for call in calls)

    assert filled(0) < filled(3) < filled(100)


TOOLS = Desk(Office(0)).offered


# --- the app


def test_agent_over_http_solves_a_sample_and_counts_what_the_server_counts() -> None:
    sample = {task.kind: task for task in TASKS}.values()
    with OpenAIStubServer(reply=reply) as server:
        outcomes = run_tasks(make_chat_model(server), list(sample)[::3], Office(0))
    assert all(outcome.right for outcome in outcomes), outcomes
    total = totals(outcomes)
    assert total.llm_calls == len(server.requests) > 2 * len(outcomes)
    assert (total.prompt_tokens, total.completion_tokens) == (
        server.usage["prompt_tokens"],
        server.usage["completion_tokens"],
    )
    assert total.shortcuts == 0
    assert len({t["function"]["name"] for t in server.requests[0]["tools"]}) == len(TOOLS)


def test_a_task_that_breaks_off_is_not_right_and_the_next_one_runs() -> None:
    def script(messages: Any, tools: Any) -> AIMessage:
        if "second" in messages[-1].text:
            return AIMessage("done")
        raise RuntimeError("no model today")

    first, second = first_of("who_manages"), first_of("thanks")
    tasks = [first, replace(second, id="t2", request="second", seed=0, slots={}, expected=())]
    outcomes = run_tasks(ScriptedChatModel(script=script), tasks, Office(0))
    assert [o.right for o in outcomes] == [False, True]
    assert outcomes[0].error == "RuntimeError: no model today"
    assert [o.llm_calls for o in outcomes] == [0, 1]


def outcome(key: str, *, calls: int, right: bool) -> Outcome:
    return Outcome(key, "kind", calls, 1, 100 * calls, 10 * calls, 0.5, right)


def test_totals_lost_and_printed_table() -> None:
    without = [outcome("a", calls=4, right=True), outcome("b", calls=2, right=False)]
    remembered = [outcome("a", calls=2, right=False), outcome("b", calls=1, right=True)]
    assert [o.id for o in lost(without, remembered)] == ["a"]
    total = totals(remembered)
    assert (total.tasks, total.llm_calls, total.tokens, total.right) == (2, 3, 330, 1)
    assert total.to_dict()["tokens"] == 330
    console = Console(width=100, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    passes = [demo_module.Pass("without memory", without), demo_module.Pass("reads", remembered, {"inertia": {}})]
    demo_module.show(console, passes, "a note")
    console.file.close()
    text = console.export_text()
    for part in ("a note", "All 2 tasks", "-50%", "1 of 2", "without the memory only: 1", "a kind", "(reads)"):
        assert part in text
    assert "After the first" not in text


def test_demo_arguments_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        demo_module.main(["--tasks", "0"])
    assert "--tasks must be at least 1" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        demo_module.main(["--variation", "101"])
    assert "--variation must be from 0 to 100" in capsys.readouterr().err


def test_demo_end_to_end(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")
    gears = ["--gears", "prefetch", "reads"]
    assert demo_module.main(["--tasks", "30", "--latency-ms", "0", "--variation", "7", "--json", *gears]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert LABEL in shown["note"]
    assert "7 % of the requests" in shown["note"]
    before, ahead, after = shown["all"].values()
    assert before["right"] == 30
    assert shown["lost"] == {"prefetch": [], "reads": []}
    assert ahead["llm_calls"] == before["llm_calls"]
    assert shown["reports"]["prefetch"]["sections"]["inertia"]["prefetch"]["served"] > 0
    assert after["llm_calls"] <= before["llm_calls"]
    assert after["llm_calls"] + after["shortcuts"] >= before["llm_calls"]


@pytest.mark.slow
def test_demo_loses_no_task_and_saves_calls(capsys: pytest.CaptureFixture[str]) -> None:
    gears = ["--gears", "reads and named writes"]
    assert demo_module.main(["--tasks", "120", "--latency-ms", "0", "--json", *gears]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["lost"] == {"reads and named writes": []}
    before, after = shown["after_50"].values()
    assert after["llm_calls"] <= 0.9 * before["llm_calls"]
    assert after["right"] == before["right"] == 70
