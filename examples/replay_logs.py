"""Only logs: what a memory would have saved, and a memory that starts with what the logs teach.

Run it: ``python -m examples.replay_logs``. The same from the shell::

    toolmem replay runs.jsonl --reads find_customer
    toolmem import runs.jsonl --memory .toolmem
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.offline.replay import replay
from langgraph_toolmem.runs.logs import load_runs


def logged(number: int) -> dict[str, Any]:
    """Return a run as an application may log it: one a line, messages in OpenAI's format."""
    function = {"name": "find_customer", "arguments": json.dumps({"name": f"customer{number}"})}
    return {
        "id": f"run-{number}",
        "success": True,
        "messages": [
            {"role": "user", "content": f"What is the id of customer{number}"},
            {"role": "assistant", "tool_calls": [{"id": "call-1", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "call-1", "content": f"C-{number}"},
            {"role": "assistant", "content": f"It is C-{number}."},
        ],
    }


if __name__ == "__main__":  # write logs, replay them, and start a memory with them
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "runs.jsonl"
        file.write_text("\n".join(json.dumps(logged(number)) for number in range(120)), encoding="utf-8")
        runs = load_runs(file).runs

        found = replay(runs, reads={"find_customer"})
        print(f"{found.runs} runs, {found.turns} model turns: {found.right} calls made right, {found.wrong} wrong")

        with ToolMemory(Path(folder) / "memory", reads={"find_customer"}) as memory:
            for run in runs:
                memory.finish(run.messages, thread_id=run.thread_id, success=run.success)
            proposal = memory.inertia.predict([("user", "What is the id of Zoe")])
            assert proposal is not None
            print(f"{proposal.tool}({proposal.args}) with probability {proposal.confidence:.2f}: {proposal.evidence}")
