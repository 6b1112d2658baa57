"""Input of the command line: options that commands share, and what they name: a log, tools, a policy, a memory."""

from __future__ import annotations

import importlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from langgraph_toolmem.base.errors import ConfigurationError, InputError
from langgraph_toolmem.base.text import count
from langgraph_toolmem.cli.terminal import note

if TYPE_CHECKING:
    from langgraph_toolmem.core.method import Method
    from langgraph_toolmem.inertia.policy import InertiaPolicy
    from langgraph_toolmem.memory import ToolMemory
    from langgraph_toolmem.report.report import TokenPrice
    from langgraph_toolmem.runs.logs import RunLog

LogFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="Recorded runs: messages of OpenAI, Anthropic or LangChain (JSONL, may be gzipped), LangSmith's export, "
        "OpenTelemetry spans, or LangGraph's checkpoints (sqlite:///FILE, postgresql://…).",
    ),
]
MemoryFolder = Annotated[
    Path, typer.Option("--memory", "--path", metavar="FOLDER", help="The folder of a memory.", show_default=False)
]
ToolsFile = Annotated[
    Path | None,
    typer.Option("--tools", metavar="FILE", help="Tool schemas (JSON), to refuse calls that break them."),
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
Lenient = Annotated[bool, typer.Option("--lenient", help="Leave malformed lines out instead of stopping.")]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]

OWN_METHODS: Final = "TOOLMEM_METHODS"
"""Environment variable with methods of one's own, ``package.module:Class``, commas between them."""
POLICY_HELP: Final = (
    "`calibrated` (acts by its track record), `paper` (AutoTool as published), a JSON file, or `name=value` "
    "pairs with commas, also after one of the two words: `paper,alpha=0.3`."
)
PROBLEMS_SHOWN: Final = 5
_NEXT_SETTING: Final = re.compile(r"\s*,(?=\s*\w+\s*=)\s*")
"""A comma before `name=`; other commas belong to a list of tool names."""


def read_tools_file(path: Path | None) -> list[dict[str, Any]] | None:
    """Read tool schemas: a list of tools, an object with `tools`, or an OpenAPI document (JSON or YAML)."""
    if path is None:
        return None
    from langgraph_toolmem.navigator.openapi import read_openapi
    from langgraph_toolmem.runs.tools import changes_of

    value = {"paths": {}} if path.suffix in (".yaml", ".yml") else _read_json(path)
    if isinstance(value, dict) and "tools" not in value and isinstance(value.get("paths"), dict):
        return [{"name": spec.name, **changes_of(spec, {})} for spec in read_openapi(path)]
    if isinstance(value, dict):
        value = value.get("tools")
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InputError(f"{path} must hold a list of tool schemas, an object with 'tools', or an OpenAPI document")
    return value


def read_policy(text: str) -> InertiaPolicy:
    """Return the policy that `--policy` describes."""
    from langgraph_toolmem.inertia.policy import InertiaPolicy

    first, *pairs = _NEXT_SETTING.split(text.strip())
    if "=" in first:
        pairs, first = [first, *pairs], "calibrated"
    if first in ("paper", "calibrated"):
        settings: dict[str, Any] = {"kind": first}
    elif Path(first).suffix == ".json":
        settings = _read_json(Path(first))
        if not isinstance(settings, dict):
            raise ConfigurationError(f"{first} must hold one JSON object with the policy's settings")
    else:
        raise ConfigurationError(
            f"--policy {first!r} is none of: calibrated, paper, a file that ends in .json, name=value"
        )
    several = {"only"} | {name for name, value in InertiaPolicy().to_dict().items() if isinstance(value, list)}
    settings |= dict(_setting(pair, several) for pair in pairs)
    if "environment" in settings:
        raise ConfigurationError("'environment' is Python code; it cannot be given on the command line")
    return InertiaPolicy.from_dict(settings)


def _setting(pair: str, several: set[str]) -> tuple[str, Any]:
    name, equals, value = (part.strip() for part in pair.partition("="))
    if not name or not equals:
        raise ConfigurationError(f"{pair!r} in --policy is not name=value")
    if name in several:
        return name, [item.strip() for item in value.split(",") if item.strip()]
    words = {"true": True, "false": False, "none": None, "null": None}
    if value.lower() in words:
        return name, words[value.lower()]
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def read_price(text: str | None, currency: str) -> TokenPrice | None:
    """Return the price that `--price IN:OUT[:CACHED]` describes."""
    from langgraph_toolmem.report.report import TokenPrice

    if text is None:
        return None
    try:
        paid_in, paid_out, *rest = map(float, text.split(":"))
        cached = None if not rest else float(*rest)
    except (ValueError, TypeError):
        raise ConfigurationError(
            f"--price {text!r} is not IN:OUT or IN:OUT:CACHED, money per million tokens, such as 2.5:10"
        ) from None
    return TokenPrice(paid_in, paid_out, currency, cached)


def own_methods() -> list[type[Method]]:
    """Return the methods that the environment names, so that their part of a memory is learned, told and forgotten."""
    from langgraph_toolmem.core.method import Method

    found = []
    for each in filter(None, os.environ.get(OWN_METHODS, "").split(",")):
        module, _, name = each.strip().partition(":")
        try:
            kind = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigurationError(f"{OWN_METHODS} names {each!r}, which cannot be imported: {error}") from error
        if not (isinstance(kind, type) and issubclass(kind, Method)):
            raise ConfigurationError(f"{OWN_METHODS} names {each!r}, which is no method of a memory")
        found.append(kind)
    return found


def open_memory(
    folder: Path,
    *,
    tools: list[dict[str, Any]] | None = None,
    read_only: bool = False,
    namespace: str | None = None,
    embeddings: str = "builtin",
) -> ToolMemory:
    """Open the memory in a folder; with `read_only`, it must be there already.

    The namespace has slashes between its labels; it defaults to that of the folder.
    """
    if read_only or folder.exists():
        check_folder(folder)
    from langgraph_toolmem.core.core import DEFAULT_NAMESPACE
    from langgraph_toolmem.core.users import namespace_kept
    from langgraph_toolmem.memory import ToolMemory, default_methods

    return ToolMemory(
        folder,
        tools=tools,
        read_only=read_only,
        namespace=tuple(namespace.split("/")) if namespace else namespace_kept(folder) or DEFAULT_NAMESPACE,
        embeddings=None if embeddings == "builtin" else embeddings,
        methods=default_methods(*(kind() for kind in own_methods())),
    )


def check_folder(folder: Path) -> None:
    """Refuse what is not a folder that exists."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; --memory takes the folder of a memory")
    if not folder.is_dir():
        raise InputError(f"there is no memory at {folder}")


def load_log(file: str, *, lenient: bool, limit: int | None = None) -> RunLog:
    """Read the runs of a log file, or of a checkpointer's database; remark on what was left out."""
    from langgraph_toolmem.runs.logs import load_runs, without_password

    log = load_runs(file, lenient=lenient, limit=limit)
    for error in log.skipped[:PROBLEMS_SHOWN]:
        note(f"left out: {error}")
    if (more := len(log.skipped) - PROBLEMS_SHOWN) > 0:
        note(f"left out: {more:,} more malformed lines")
    if log.shared_ids:
        note(f"note: {count(log.shared_ids, 'line')} had the id of an earlier line and counted as that run, seen later")
    if not log.runs:
        raise InputError(f"{without_password(file)} holds no runs" + (" that can be read" if log.skipped else ""))
    return log


def log_in_plain(file: str, log: RunLog) -> dict[str, Any]:
    """Return which log was read, and what was left out of it, for JSON."""
    from langgraph_toolmem.runs.logs import without_password

    lines = [{"line": error.line, "problem": str(error)} for error in log.skipped]
    return {"file": without_password(file), "skipped_lines": lines, "shared_ids": log.shared_ids}


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error})") from error
