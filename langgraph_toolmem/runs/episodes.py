"""Where one request in a thread ends and the next begins.

A *thread* is a conversation; an *episode* is one request in it: from the message that asks for something to its answer,
with the questions back, the user's replies and the confirmations ("yes, please") that lie between. A user message opens
an episode, unless

1. it asks for nothing (thanks, yes, a greeting, a mark such as ``###STOP###``), and a request came before it;
2. nothing but greetings came before it in its episode, or nobody has answered the message before it;
3. the model's last words ask the user for something ("Which one?", "Please confirm …"; not "Anything else?"), and the
   message replies: it begins with yes or no, or asks for nothing of its own, or is about what was being talked of.

No model is asked. What was found once for a message stays, however much of the thread is still there when it is read
again: the memory keeps it (`core.episodes`).
"""

from __future__ import annotations

from collections.abc import Sequence

from langgraph_toolmem.runs.run import Turn, UserMessage
from langgraph_toolmem.runs.talk import asks_nothing, replies


def opens(text: str, before: Sequence[UserMessage | Turn]) -> bool:
    """Whether a user message begins an episode.

    Args:
        text: what it says.
        before: the current episode so far.
    """
    said = [event.text for event in before if isinstance(event, UserMessage)]
    if asks_nothing(text) or (said and all(map(asks_nothing, said))):
        return False
    last = before[-1] if before else None
    if not isinstance(last, Turn):
        return last is None
    return bool(last.steps) or not replies(text, last.text, said)
