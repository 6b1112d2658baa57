"""Only logs: what would a memory have saved, and a memory that starts with what they teach.

Run it: ``python -m examples.replay_logs``. The same from the shell::

    toolmem replay runs.jsonl --tools tools.json
    toolmem import runs.jsonl --tools tools.json --memory .toolmem
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from langchain_core.messages import convert_to_openai_messages
from langchain_core.utils.function_calling import convert_to_openai_tool

from examples.desk import DONE, TOOLS, past_run, requests
from langgraph_toolmem import ToolMemory
from langgraph_toolmem.offline.replay import replay
from langgraph_toolmem.runs.logs import load_runs

RUNS = 120


def write_logs(folder: Path) -> Path:
    """Runs as an application may log them: one a line, messages in OpenAI's format."""
    file = folder / "runs.jsonl"
    with file.open("w", encoding="utf-8") as out:
        for i, text in enumerate(requests(RUNS)):
            messages = convert_to_openai_messages(past_run(text))
            out.write(json.dumps({"id": f"run-{i}", "messages": messages, "success": True}) + "\n")
    # OpenAI's format has no place for tags; without them the memory does not know which tools only look.
    schemas = [{**convert_to_openai_tool(tool), "tags": tool.tags} for tool in TOOLS]
    (folder / "tools.json").write_text(json.dumps(schemas), encoding="utf-8")
    return file


def main() -> None:
    """Writes logs, replays them, and imports them."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        log = load_runs(write_logs(folder))
        DONE.clear()

        print("What a memory would have saved, had it been there (no model, no tool is called):")
        found = replay(log.runs, tools=TOOLS)
        print(f"  {found.runs} runs, {found.turns} model turns")
        print(f"  {found.right} could have been skipped, {found.wrong} would have been skipped with another call")
        for name, tally in found.by_tool.items():
            print(f"  {name}: {tally.right} of {tally.calls} calls")
        for chain, count in found.chains[:2]:
            print(f"  {count} times: {' -> '.join(chain)}")

        print("\nA memory that starts with these runs:")
        with ToolMemory(folder / "memory", tools=TOOLS) as memory:
            for run in log.runs:
                memory.finish(run.messages, thread_id=run.thread_id, success=run.success, user_id=run.user_id)
            proposal = memory.inertia.predict([("user", "Where is the order of Zoe?")])
            assert proposal is not None
            print(f"  {proposal.tool}({proposal.args}) at {proposal.confidence:.0%}; act: {proposal.act}")
            print(f"  because: {proposal.evidence}")


if __name__ == "__main__":
    main()
