"""Tasks of a tau2-bench domain, run by its own orchestrator and scored by its own evaluator.

The agent (`ToolMemAgent`) is `create_agent` on a LangChain chat model, with the memory at the model. The orchestrator
executes the calls. So the graph stops before its tools, the calls leave as an assistant message, and their results are
put into the state as if the tools had run. Tools of the memory itself run in the graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_toolmem.base.errors import ConfigurationError, has_package
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.evaluation.figures import pairs_of
from langgraph_toolmem.evaluation.journal import Keeper, RunRecord
from langgraph_toolmem.evaluation.runner import (
    RECURSION_LIMIT,
    EvalRun,
    EvalTask,
    TaskOutcome,
    call_text,
    made_by_memory,
)
from langgraph_toolmem.evaluation.tau2.stub import Rates, StubChatModel, StubModel, StubPlan, StubUser

INSTALL: Final = (
    "tau2-bench is not installed. It needs Python 3.12: fetch https://github.com/sierra-research/tau2-bench, and in an "
    "environment of its own type: pip install ./tau2-bench './langgraph-toolmem[eval]'"
)


@dataclass(frozen=True, slots=True)
class ModelAndUser:
    """Makes the two sides of a conversation.

    Attributes:
        model: the agent's chat model for a run.
        user: the user for a run and an environment.
    """

    model: Callable[[EvalRun], BaseChatModel]
    user: Callable[[EvalRun, Any], Any]


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """The number of first tasks of each split; None for all."""

    train: int | None = None
    test: int | None = None


def sides_with_models(model: str, user_model: str) -> ModelAndUser:
    """Return a chat model by name for the agent, and the benchmark's own user simulator.

    Args:
        model: for `init_chat_model`, such as "openai:gpt-5.1".
        user_model: of the user simulator, a name of LiteLLM's.
    """
    from langchain.chat_models import init_chat_model

    def agent_model(_run: EvalRun) -> BaseChatModel:
        return init_chat_model(model)

    def user(run: EvalRun, environment: Any) -> Any:
        task = run.task.data
        build_user = import_module("tau2.runner.build").build_user
        return KeptUser(build_user("user_simulator", environment, task, llm=user_model, llm_args={}), run.keeper)

    return ModelAndUser(agent_model, user)


class KeptUser:
    """A user simulator whose messages are kept, so that an interrupted run does not pay for them again.

    Its calls count neither as model calls of the agent nor for the budget.
    """

    def __init__(self, user: Any, keeper: Keeper) -> None:
        self._user, self._keeper = user, keeper
        self._message = import_module("tau2.data_model.message").UserMessage

    # The orchestrator uses the rest of a user's interface too, such as `set_seed` and `stop`.
    def __getattr__(self, name: str) -> Any:
        return getattr(self._user, name)

    def generate_next_message(self, message: Any, state: Any) -> tuple[Any, Any]:
        """Return the user's kept message, or ask for it."""
        # The whole conversation so far is the key, because it is the simulator's only input.
        said_before = [str(earlier) for earlier in state.messages]
        conversation = digest("user", *said_before, str(message.content))
        key = self._keeper.key_of([HumanMessage(conversation)], "user", {})
        kept = self._keeper.kept(key, counts=False)
        if kept is None:
            said, state = self._user.generate_next_message(message, state)
            self._keeper.keep(key, AIMessage("", additional_kwargs={"user": said.model_dump(mode="json")}))
            return said, state
        said = self._message.model_validate(kept.additional_kwargs["user"])
        # The simulator adds both to its state, results of calls one by one; its next message depends on them.
        heard = getattr(message, "tool_messages", None) or [message]
        state.messages.extend([*heard, said])
        return said, state


class Tau2Source:
    """Tasks of one domain.

    Args:
        domain: such as "retail".
        task_set: of the domain; defaults to the domain's own. "telecom_small" has no train tasks.
        sides: model and user. Defaults to the stubs, which need no key.
        rates: of the stub.
        limits: number of tasks of each split. Defaults to all.

    Attributes:
        reading_tools: names of the agent's tools that only read.
        rates: of the stub.

    Raises:
        ConfigurationError: the benchmark is not installed, or has no such domain.
    """

    def __init__(
        self,
        domain: str,
        *,
        task_set: str | None = None,
        sides: ModelAndUser | None = None,
        rates: Rates | None = None,
        limits: TaskLimits | None = None,
    ) -> None:
        if not has_package("tau2"):
            raise ConfigurationError(INSTALL)
        self._registry = import_module("tau2.registry").registry
        self._domain, self._sides = domain, sides
        self.rates = rates or Rates()
        chosen = task_set or domain
        try:
            self._new_environment = self._registry.get_env_constructor(domain)
            tasks = list(self._registry.get_tasks_loader(chosen)())
        except (KeyError, OSError, ValueError) as error:
            raise ConfigurationError(f"tau2-bench cannot load {chosen!r}: {error}") from error
        self._tasks = self._split(tasks, chosen, limits or TaskLimits())
        self.name = f"tau2 {chosen}"
        if sides is None:
            self.name += " by stub"
        environment = self._new_environment()
        self.reading_tools = reading_tools(environment)
        self._all = {tool.name for tool in environment.get_tools()}

    def _split(self, tasks: Sequence[Any], task_set: str, limits: TaskLimits) -> list[EvalTask]:
        """Return the first tasks of each split, train tasks first; without splits all are test tasks."""
        # A set of tasks may have no splits.
        loader = self._registry.get_task_splits_loader(task_set)
        train_ids = set()
        if loader is not None:
            train_ids.update(loader().get("train", ()))
        train: list[EvalTask] = []
        test: list[EvalTask] = []
        for task in tasks:
            if task.id in train_ids:
                train.append(EvalTask(str(task.id), "train", data=task))
            else:
                test.append(EvalTask(str(task.id), "test", data=task))
        return [*train[: limits.train], *test[: limits.test]]

    @property
    def changing_tools(self) -> set[str]:
        """Return the names of the agent's tools that may change something."""
        return self._all - self.reading_tools

    def tasks(self) -> Sequence[EvalTask]:
        """Return the tasks, those of the train split first."""
        return self._tasks

    def identity(self) -> str:
        """Return a digest of the tasks and of the stub's rates."""
        return digest("tau2", self._domain, repr(self.rates), *(task.id for task in self._tasks))

    def play(self, run: EvalRun) -> TaskOutcome:
        """Run one conversation, and score it."""
        task = run.task.data
        environment = self._new_environment()
        look_ups = LookUps(environment)
        stub: StubModel | None = None
        if self._sides is None:
            stub = self._stub(run, look_ups)
            model: BaseChatModel = StubChatModel(script=stub)
            user: Any = StubUser(task)
        else:
            model, user = self._sides.model(run), self._sides.user(run, environment)
        agent = ToolMemAgent(run, environment, model, look_ups)
        orchestrator = import_module("tau2.orchestrator.orchestrator").Orchestrator(
            domain=self._domain, agent=agent, user=user, environment=environment, task=task, seed=run.seed,
            max_steps=200,  # the benchmark's default is 100
        )  # fmt: skip
        kinds = import_module("tau2.evaluator.evaluator").EvaluationType
        kind = kinds.ALL
        if stub is not None:
            # Without a key free texts are not judged: only state, actions and information, each required.
            kind = kinds.ALL_IGNORE_BASIS
        simulation = import_module("tau2.runner.simulation").run_simulation(orchestrator, evaluation_type=kind)
        details = {
            "reward": simulation.reward_info.reward,
            "ended": str(getattr(simulation.termination_reason, "value", simulation.termination_reason)),
            "changes": self._changes(simulation.messages),
            "wrong_results": look_ups.wrong,
            "shown_early": look_ups.early,
        }
        if stub is not None:
            details["hints_followed"] = stub.hints_followed
            details["changes_in_hints"] = stub.changes_in_hints
        return TaskOutcome(float(simulation.reward_info.reward), run.messages, details)

    def _stub(self, run: EvalRun, look_ups: LookUps) -> StubModel:
        criteria = run.task.data.evaluation_criteria
        plan = StubPlan(criteria.actions or [], criteria.communicate_info or [], self.reading_tools, self._all)
        return StubModel(plan, self.rates, run.seed, look_ups.check)

    def _changes(self, messages: Sequence[Any]) -> list[str]:
        """Return the changing calls of both sides, as sorted texts."""
        changes: list[str] = []
        for message in messages:
            # Not every message has the field, and of those that have it most hold None.
            for call in getattr(message, "tool_calls", None) or ():
                # Tools of the user's device are unknown here, so all of their calls count.
                if call.name not in self.reading_tools:
                    changes.append(f"{call.requestor} {call_text(call.name, call.arguments)}")
        return sorted(changes)


@dataclass(slots=True)
class SafetyReport:
    """The runs of an arm, compared with the same runs of another.

    Attributes:
        arm: the arm.
        pairs: runs in both.
        rewards_changed: tasks with another reward.
        changes_differ: tasks whose changes are not the same multiset.
        wrong_results: results in the model's request that are not the environment's.
        shown_early: results that the model was shown before it asked.
        hints_followed: calls that the stub made because of a hint.
        changes_in_hints: changing tools that hints named, in past records, and the task does not have.
        model_calls_before: of the other arm.
        model_calls: of this arm.
    """

    arm: str
    pairs: int = 0
    rewards_changed: list[str] = field(default_factory=list)
    changes_differ: list[str] = field(default_factory=list)
    wrong_results: int = 0
    shown_early: int = 0
    hints_followed: int = 0
    changes_in_hints: int = 0
    model_calls_before: int = 0
    model_calls: int = 0


def safety_of(arm: str, against: str, records: Sequence[RunRecord]) -> SafetyReport:
    """Compare the test runs of two arms task by task."""
    safety = SafetyReport(arm)
    for pair in pairs_of(arm, against, records):
        own, other = pair.own, pair.other
        safety.pairs += 1
        safety.model_calls_before += other.usage.model_calls
        safety.model_calls += own.usage.model_calls
        if own.score != other.score:
            safety.rewards_changed.append(own.task)
        # As multisets: the order of changes may differ, but a change made twice is another result.
        if Counter(own.details.get("changes", ())) != Counter(other.details.get("changes", ())):
            safety.changes_differ.append(own.task)
        safety.wrong_results += len(own.details.get("wrong_results", ()))
        safety.shown_early += len(own.details.get("shown_early", ()))
        safety.hints_followed += own.details.get("hints_followed", 0)
        safety.changes_in_hints += len(own.details.get("changes_in_hints", ()))
    return safety


# --- the agent ---

INSTRUCTIONS: Final = """<instructions>
You are a customer service agent that helps the user according to the <policy> provided below.
In each turn you can either send a message to the user or make a tool call, not both at the same time.
Be helpful, and always follow the policy.
</instructions>
<policy>
{policy}
</policy>"""
MAX_OWN_STEPS: Final = 20
"""Limit of steps in a row with only the memory's tools."""


@dataclass(frozen=True, slots=True)
class ShownText:
    """A result in a request: a later request may have another text for the same call."""

    call_id: str
    text: str


class LookUps:
    """Compares each result that the model is shown with the environment's own.

    Attributes:
        wrong: calls whose result in the model's request is not the environment's.
        early: calls whose result the model was shown before it asked.
    """

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._given: dict[str, str] = {}
        self._checked: set[ShownText] = set()
        self.wrong: list[str] = []
        self.early: list[str] = []

    def given(self, call_id: str, content: str) -> None:
        """Record a result of the orchestrator."""
        self._given[call_id] = content

    def check(self, messages: Sequence[BaseMessage]) -> None:
        """Check the exchanges of a request."""
        calls: dict[Any, Any] = {}
        for message in messages:
            for call in getattr(message, "tool_calls", ()):
                calls[call["id"]] = call
            if isinstance(message, ToolMessage) and message.tool_call_id in calls:
                self._check_result(calls[message.tool_call_id], message)

    def _check_result(self, call: Any, message: ToolMessage) -> None:
        """Compare a result with the environment's own; each text of a call counts once."""
        shown = ShownText(message.tool_call_id, message.text)
        if shown in self._checked or not self._environment.tools.has_tool(call["name"]):
            return
        self._checked.add(shown)
        text = call_text(call["name"], call["args"])
        expected = self._given.get(message.tool_call_id)
        # The orchestrator did not execute it, so the memory did: a look-up, which may be repeated.
        if expected is None:
            self.early.append(text)
            expected = answer_of(self._environment, call["name"], call["args"])
        if message.text != expected:
            self.wrong.append(text)


def answer_of(environment: Any, name: str, args: Mapping[str, Any]) -> str:
    """Return the environment's answer to a call of the agent."""
    call = import_module("tau2.data_model.message").ToolCall(id="", name=name, arguments=dict(args))
    return str(environment.get_response(call).content)


def tools_of(environment: Any) -> list[BaseTool]:
    """Return an environment's tools for LangChain; those that only read are marked so."""
    reading = reading_tools(environment)
    tools: list[BaseTool] = []
    for original in environment.get_tools():
        metadata = None
        if original.name in reading:
            metadata = {"read_only": True}
        tools.append(_langchain_tool(environment, original, metadata))
    return tools


def _langchain_tool(environment: Any, original: Any, metadata: dict[str, Any] | None) -> BaseTool:
    schema = original.openai_schema["function"]

    # Called only by the memory, for look-ups before the model asks: the orchestrator executes the model's calls.
    def call(**args: Any) -> str:
        return answer_of(environment, original.name, args)

    return StructuredTool.from_function(
        call,
        name=schema["name"],
        description=schema.get("description", ""),
        args_schema=schema["parameters"],
        infer_schema=False,
        metadata=metadata,
    )


def reading_tools(environment: Any) -> set[str]:
    """Return the names of the agent's tools that only read."""
    types = import_module("tau2.environment.toolkit").get_tool_types(environment.tools)
    reading: set[str] = set()
    for name, kind in types.items():
        # The benchmark's kinds are an enum: read, write, think, generic.
        if str(getattr(kind, "value", kind)) == "read":
            reading.add(name)
    return reading


class ToolMemAgent:
    """A half-duplex agent of the benchmark.

    Args:
        run: the run.
        environment: of the task.
        model: the chat model.
        look_ups: is given the results of the orchestrator.
    """

    def __init__(self, run: EvalRun, environment: Any, model: BaseChatModel, look_ups: LookUps) -> None:
        self.tools, self.domain_policy = environment.get_tools(), environment.get_policy()
        self._look_ups = look_ups
        self._messages = import_module("tau2.data_model.message")
        self._names = {tool.name for tool in self.tools}
        self._config: Any = {"configurable": {"thread_id": run.thread_id}, "recursion_limit": RECURSION_LIMIT}
        self._run = run
        self._graph: Any = create_agent(
            run.model(model),
            tools_of(environment),
            system_prompt=INSTRUCTIONS.format(policy=self.domain_policy),
            middleware=run.middleware(),
            checkpointer=InMemorySaver(),
            # The orchestrator executes the calls, and the graph takes its results (`_put_results`).
            interrupt_before=["tools"],
        )

    # --- the orchestrator's protocol ---

    def get_init_state(self, message_history: Sequence[Any] | None = None) -> list[Any]:
        """Start a conversation; the opening words are the benchmark's own."""
        opening = []
        for message in message_history or ():
            if message.content:
                opening.append(AIMessage(message.content, id="opening"))
        self._graph.update_state(self._config, {"messages": opening}, as_node="__start__")
        return []

    def generate_next_message(self, message: Any, state: list[Any]) -> tuple[Any, list[Any]]:
        """Return the agent's next message to the user or the environment."""
        # None: the graph continues where it stopped, before its tools.
        given: Any = None
        if message.role == "user":
            number = len(self._run.messages)
            given = {"messages": [HumanMessage(message.content, id=f"{self._run.thread_id}-{number}")]}
        else:
            # Several results come in one message.
            self._put_results(getattr(message, "tool_messages", None) or [message])
        for _ in range(MAX_OWN_STEPS):
            # Rows that the memory stores in the background affect hints of this thread too: without this wait two
            # starts of one evaluation got different hints, and the second did not find the kept answers of the first.
            if self._run.memory is not None:
                self._run.memory.core.jobs.flush()
            self._run.messages = list(self._graph.invoke(given, self._config)["messages"])
            answer = self._run.messages[-1]
            calls = list(getattr(answer, "tool_calls", ()))
            outside = [call for call in calls if call["name"] in self._names]
            if not isinstance(answer, AIMessage) or outside or not calls:
                break
            given = None  # the memory's own tools run in the graph, such as `search_tools`
        return self._outgoing(self._run.messages[-1], outside), state

    def stop(self, message: Any = None, state: Any = None) -> None:
        """Do nothing: the conversation is over."""

    def is_stop(self, message: Any) -> bool:
        """Return False: the user ends the conversation."""
        return False

    def set_seed(self, seed: int) -> None:
        """Do nothing: the run's seed is the model's."""

    # --- messages ---

    def _put_results(self, results: Sequence[Any]) -> None:
        names: dict[str, str] = {}
        for call in getattr(self._run.messages[-1], "tool_calls", ()):
            names[call["id"]] = call["name"]
        messages = []
        for result in results:
            self._look_ups.given(result.id, result.content or "")
            status: Any = "error" if result.error else "success"
            messages.append(
                ToolMessage(result.content or "", tool_call_id=result.id, name=names.get(result.id), status=status)
            )
        # As if the node of the tools had run: the graph continues with the model.
        self._graph.update_state(self._config, {"messages": messages}, as_node="tools")

    def _outgoing(self, answer: BaseMessage, calls: Sequence[Any]) -> Any:
        if not calls:
            # The benchmark strips messages, and refuses empty ones.
            content = answer.text if answer.text.strip() else "…"
            return self._messages.AssistantMessage(role="assistant", content=content)
        made = []
        for call in calls:
            made.append(
                self._messages.ToolCall(id=call["id"], name=call["name"], arguments=call["args"], requestor="assistant")
            )
        marked = None
        if made_by_memory(answer):
            marked = {"toolmem": True}
        return self._messages.AssistantMessage(
            role="assistant", content=answer.text or None, tool_calls=made, raw_data=marked
        )
