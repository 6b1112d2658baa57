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

from collections.abc import Mapping, Sequence
from dataclasses import replace

from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.runs.run import Turn, UserMessage
from langgraph_toolmem.runs.talk import asks_nothing, replies


def in_episodes(
    events: Sequence[UserMessage | Turn], known: Mapping[str, str], before: str = ""
) -> tuple[UserMessage | Turn, ...]:
    """The events of a thread, each with its episode.

    Args:
        events: in order.
        known: user messages that were read before (their keys) and their episodes.
        before: key of the user message before the first event, where the head is missing; "" if it is unknown.
    """
    found: list[UserMessage | Turn] = []
    episode, start = known.get(before, ""), 0
    for index, event in enumerate(events):
        if isinstance(event, UserMessage):
            known_as = known.get(event.key)
            if known_as is None and (not episode or opens(event.text, events[start:index])):
                known_as = digest("episode", event.key)
            if known_as is not None and known_as != episode:
                episode, start = known_as, index
        elif not episode and not found:
            episode = digest("episode", event.key)  # nobody knows what it answered
        found.append(replace(event, episode=episode))
    return tuple(found)


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
