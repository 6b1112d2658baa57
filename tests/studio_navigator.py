"""A graph that only the test of ``langgraph dev`` exposes: the office's navigator, which asks back and waits."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from navi_script import ask, decision, do, say

from examples.office import PROMPT, Office, make_database
from langgraph_toolmem import ToolMemory
from langgraph_toolmem.nodes import create_navi_subgraph
from langgraph_toolmem.testing import ScriptedChatModel

_tools = Office().tools()
_sender, _person = list(make_database(0)["people"].values())[:2]
_email = Office().list_emails(_sender["email"])["emails"][0]["id"]
_rounds = (
    do("find_person", name=_sender["name"]),
    do("list_emails", sender=_sender["email"]),
    do("find_person", name=_person["name"]),
    do("forward_email", email_id=_email, to=_person["email"]),
    say("I forwarded it."),
)
_made: list[int] = []


def _decide(messages: list[BaseMessage], _: list[dict[str, Any]]) -> AIMessage:
    """Ask back first, then decide one call a round."""
    _made.append(len(messages))
    return decision(ask("To whom shall it be forwarded?") if len(_made) == 1 else _rounds[len(_made) - 2])


graph = create_navi_subgraph(
    ScriptedChatModel(script=_decide), _tools, ToolMemory.ephemeral(tools=_tools), instructions=PROMPT
)
