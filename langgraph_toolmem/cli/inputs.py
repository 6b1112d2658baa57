"""What a user names on the command line: a log, a tools file, a policy, a price, a memory folder."""

from __future__ import annotations

import importlib
import json
import os
import re
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem.base.errors import ConfigurationError, InputError
from langgraph_toolmem.base.models import resolve_model
from langgraph_toolmem.cli.terminal import note, progress

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langchain_core.language_models import BaseChatModel

    from langgraph_toolmem.atoms.writer import AtomWriter
    from langgraph_toolmem.core.method import Method
    from langgraph_toolmem.inertia.policy import InertiaPolicy
    from langgraph_toolmem.memory import ToolMemory
    from langgraph_toolmem.report.savings import TokenPrice
    from langgraph_toolmem.runs.logs import RunLog

OWN_METHODS: Final = "TOOLMEM_METHODS"
"""Environment variable with methods of one's own, ``package.module:Class``, commas between them."""

POLICY_HELP = (
    "`calibrated` (acts by its track record), `paper` (AutoTool as published), a JSON file, or `name=value` "
    "pairs with commas, also after one of the two words: `paper,alpha=0.3`."
)

_NEXT_SETTING = re.compile(r"\s*,(?=\s*\w+\s*=)\s*")
"""A comma before `name=`; other commas belong to a list of tool names."""


class By(str, Enum):
    """Length of the periods in which a record is told over time."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"


def read_tools_file(path: Path | None) -> list[dict[str, Any]] | None:
    """Tool schemas from a JSON file: a list of tools, an object with `tools`, or an OpenAPI document. None: no file.

    Raises:
        InputError: the file cannot be read as that.
    """
    if path is None:
        return None
    value = _read_json(path)
    if isinstance(value, dict) and "tools" not in value and isinstance(value.get("paths"), dict):
        from langgraph_toolmem.navigator.openapi import read_openapi
        from langgraph_toolmem.runs.tool_note import changes_of

        return [{"name": spec.name, **changes_of(spec, {})} for spec in read_openapi(value)]
    if isinstance(value, dict):
        value = value.get("tools")
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InputError(f"{path} must hold a list of tool schemas, an object with 'tools', or an OpenAPI document")
    return value


def read_policy(text: str, *, min_precision: float | None = None) -> InertiaPolicy:
    """The policy that `--policy` and `--min-precision` describe.

    Raises:
        ConfigurationError: no such policy, no such setting, or a value that cannot work.
        InputError: the file cannot be read.
    """
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
    if min_precision is not None:
        if settings.get("kind") == "paper":
            raise ConfigurationError("--min-precision is for the calibrated policy; the paper's has threshold=…")
        settings["min_precision"] = min_precision
    if "environment" in settings:
        raise ConfigurationError("'environment' is Python code; it cannot be given on the command line")
    return InertiaPolicy.from_dict(settings)


def own_methods() -> list[type[Method]]:
    """The methods that the environment names.

    Raises:
        ConfigurationError: one cannot be imported, or is no method.
    """
    found = []
    for each in filter(None, os.environ.get(OWN_METHODS, "").split(",")):
        module, _, name = each.strip().partition(":")
        try:
            kind = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigurationError(f"{OWN_METHODS} names {each!r}, which cannot be imported: {error}") from error
        if not hasattr(kind, "commands"):
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
    methods: Iterable[Method] = (),
) -> ToolMemory:
    """The memory in a folder; with `read_only`, it must be there already.

    Args:
        folder: of the memory.
        tools: schemas of its tools.
        read_only: look, but do not write.
        namespace: of personal memory, its labels with slashes between them; as it was in this folder if None.
        embeddings: the embedder as `--embeddings` names it.
        methods: in place of the default ones with their name, or of those that the environment names.

    Raises:
        InputError: there is no memory, or the path is a file.
        ConfigurationError: no such namespace or embedder can be.
        StorageError: it cannot be opened.
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
        methods=default_methods(*(kind() for kind in own_methods()), *methods),
    )


def adopt_tools(memory: ToolMemory, schemas: list[dict[str, Any]] | None) -> None:
    """Has the memory know the tools of a file beside those it saw."""
    from langgraph_toolmem.runs.tools import read_tools

    if schemas is not None:
        memory.core.refresh()
        memory.core.catalogue.adopt({**memory.core.catalogue.known, **read_tools(schemas)})


def read_model(text: str) -> BaseChatModel | None:
    """The chat model that `--summaries` names; None for `none` and `extractive`.

    Raises:
        ConfigurationError: it names none of these, or the model cannot be made.
        MissingExtraError: a package is missing.
    """
    if text in ("none", "extractive"):
        return None
    return resolve_model(text, name="--summaries", others=("none", "extractive"))


def read_atom_writer(text: str, most: int) -> AtomWriter:
    """What words atoms with the chat model that `--atom-model` names, in so many calls at most.

    Raises:
        ConfigurationError: it names none, the model cannot be made, or gives no structured output.
        MissingExtraError: a package is missing.
    """
    from langgraph_toolmem.atoms.writer import AtomWriter

    return AtomWriter(resolve_model(text, name="--atom-model"), most=most)


def check_folder(folder: Path) -> None:
    """Refuses what is not a folder that exists.

    Raises:
        InputError: there is nothing, or a file.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; --memory takes the folder of a memory")
    if not folder.is_dir():
        raise InputError(f"there is no memory at {folder}")


def read_price(text: str | None, currency: str | None) -> TokenPrice | None:
    """The price that `--price IN:OUT[:CACHED]` and `--currency` describe; None without a price.

    Raises:
        ConfigurationError: it is not two numbers, or there is a currency without a price.
    """
    from langgraph_toolmem.report.savings import TokenPrice

    if text is None:
        if currency is not None:
            raise ConfigurationError("--currency needs --price IN:OUT")
        return None
    try:
        paid_in, paid_out, *rest = map(float, text.split(":"))
        cached = None if not rest else float(*rest)
    except (ValueError, TypeError):
        raise ConfigurationError(
            f"--price {text!r} is not IN:OUT or IN:OUT:CACHED, money per million tokens, such as 2.5:10"
        ) from None
    return TokenPrice(paid_in, paid_out, "USD" if currency is None else currency, cached)


def load_log(file: str, *, lenient: bool, limit: int | None = None, quiet: bool) -> RunLog:
    """The runs of a log file, or of a checkpointer's database, with remarks on what was left out.

    Raises:
        InputError: it cannot be read, or holds no runs.
    """
    from langgraph_toolmem.cli.tables import skipped_notes
    from langgraph_toolmem.runs.checkpoints import without_password
    from langgraph_toolmem.runs.logs import load_runs

    size = Path(file).stat().st_size if Path(file).is_file() else 0
    with progress("reading", size, show=not quiet) as update:
        log = load_runs(file, lenient=lenient, limit=limit, on_line=update)
    for remark in skipped_notes(log.skipped, log.shared_ids):
        note(remark)
    if not log.runs:
        raise InputError(f"{without_password(file)} holds no runs" + (" that can be read" if log.skipped else ""))
    return log


def skipped_in_plain(log: RunLog) -> dict[str, Any]:
    """What was left out of a log, for JSON."""
    lines = [{"line": error.line, "problem": str(error)} for error in log.skipped]
    return {"skipped_lines": lines, "shared_ids": log.shared_ids}


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


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error})") from error
