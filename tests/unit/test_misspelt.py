"""What a developer misspells is named, with what may have been meant."""

from __future__ import annotations

import pytest
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import ValidationError

from langgraph_toolmem import (
    Bound,
    Entries,
    Inertia,
    InertiaPolicy,
    InertiaSettings,
    Prefetch,
    RecallPolicy,
    ToolMemory,
)  # fmt: skip
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.extend import Method
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.nodes import InertiaShortcut, Recorder


class Own(Method):
    """A method of a stranger's."""

    name = "own"

    def __init__(self, *, depth: int = 3) -> None:
        self.depth = depth


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda m: InertiaShortcut(m, [], polcy=1), "InertiaShortcut has no option 'polcy'; did you mean 'policy'"),
        (lambda m: Recorder(m, message_key=1), "Recorder has no option 'message_key'; did you mean 'messages_"),
        (lambda _: ToolMemory.ephemeral(metods=[]), "ToolMemory has no option 'metods'; did you mean 'methods'?"),
        (lambda _: Inertia(polcy=None), "Inertia has no option 'polcy'; did you mean 'policy'?"),
        (lambda _: Entries(critc=None), "Entries has no option 'critc'; did you mean 'critic'?"),
        (lambda _: Own(dept=1), "Own has no option 'dept'; did you mean 'depth'?"),
        (lambda _: InertiaPolicy(shadw=True), "InertiaPolicy has no option 'shadw'; did you mean 'shadow'?"),
        (lambda _: Bound(min_precison=1), "Bound has no option 'min_precison'; did you mean 'min_precision'?"),
        (lambda _: Prefetch(xyz=1), "Prefetch has no option 'xyz'; its options: at_most"),
        (lambda _: RecallPolicy(kin="paper"), "RecallPolicy has no option 'kin'; did you mean 'kind'?"),
        (lambda m: tool_memory_middleware(m, recal=1), "tool_memory_middleware has no option 'recal'; did you"),
        (lambda m: tool_memory_middleware(m, inside=[[]]), "inside[0] is a list; write a star"),
    ],
)  # fmt: skip
def test_an_option_that_is_not_there_is_named_with_the_nearest(made, said):
    with ToolMemory.ephemeral() as memory, pytest.raises(ConfigurationError) as caught:
        made(memory)
    assert str(caught.value).startswith(said)


def test_a_misspelt_key_of_a_context_is_refused_before_the_run_and_others_are_the_hosts():
    graph = StateGraph(MessagesState, context_schema=InertiaSettings)
    graph.add_node("a", lambda _state: {"messages": []})
    graph.add_edge(START, "a")
    app = graph.compile()

    with pytest.raises(ValidationError, match="InertiaSettings has no 'inertia_mod'; did you mean 'inertia_mode'"):
        app.invoke({"messages": []}, context={"inertia_mod": "shadow"})
    app.invoke({"messages": []}, context={"inertia_mode": "shadow", "tenant": "acme"})
