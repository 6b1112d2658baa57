"""Runs that look one order up, for tests with processes of their own."""

from __future__ import annotations

from typing import Any


def order(who: str, number: object) -> list[Any]:
    """Return the messages of a run."""
    call = {"id": f"c{number}", "type": "function", "function": {"name": "get", "arguments": f'{{"of": "{number}"}}'}}
    return [
        ("user", f"Send order {number} of {who}"),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": "ok"},
        ("assistant", "Sent."),
    ]
