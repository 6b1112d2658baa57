"""An agent for tau2-bench's orchestrator: `create_agent` on a LangChain chat model, with the memory at the model.

The orchestrator executes the calls. So the graph stops before its tools, the calls leave as an assistant message, and
their results are put into the state as if the tools had run. Tools of the memory itself run in the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_toolmem.base.text import canonical
from langgraph_toolmem.evaluation.run import RECURSION_LIMIT, EvalRun, made_by_memory

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
        text = f"{call['name']} {canonical(call['args'])}"
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
    """

    def __init__(self, run: EvalRun, environment: Any, model: BaseChatModel) -> None:
        self.tools, self.domain_policy = environment.get_tools(), environment.get_policy()
        self.look_ups = LookUps(environment)
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
            self.look_ups.given(result.id, result.content or "")
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
