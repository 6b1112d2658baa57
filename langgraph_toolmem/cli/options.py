"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

LogFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="Recorded runs: messages of OpenAI, Anthropic or LangChain (JSONL, may be gzipped), LangSmith's export, "
        "OpenTelemetry spans, tau2-bench results, or LangGraph's checkpoints (sqlite:///FILE, postgresql://…).",
    ),
]
MemoryFolder = Annotated[
    Path, typer.Option("--memory", "--path", metavar="FOLDER", help="The folder of a memory.", show_default=False)
]
ToolsFile = Annotated[
    Path | None,
    typer.Option("--tools", metavar="FILE", help="Tool schemas (JSON), to refuse calls that break them."),
]
Reads = Annotated[
    list[str] | None,
    typer.Option("--reads", metavar="NAME", help="A tool that only reads, or a pattern such as `list_*`; repeatable."),
]
UserId = Annotated[
    str | None, typer.Option("--user-id", metavar="ID", help="Whose personal memory, where it is kept apart by user.")
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        metavar="A/B",
        help="Of personal memory, such as toolmem/{user_id} [default: as the agent had it in this folder].",
    ),
]
Embeddings = Annotated[str, typer.Option("--embeddings", metavar="SPEC", help="The embedder, as the agent has it.")]
WithPrefetch = Annotated[
    bool, typer.Option("--prefetch", help="Say what running look-ups while the model thinks would have saved.")
]
ToolSeconds = Annotated[
    float, typer.Option("--tool-seconds", min=0.0, help="With --prefetch: how long a tool call takes, in seconds.")
]
Lenient = Annotated[bool, typer.Option("--lenient", help="Leave malformed lines out instead of stopping.")]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
AtomModel = Annotated[
    str | None,
    typer.Option(
        "--atom-model",
        metavar="SPEC",
        help="The chat model that words atoms, `provider:model` [default: read off runs and schemas, no model].",
    ),
]
