"""Commands of methods: options, printing, JSON, the question before a change derive from what a `Command` declares.

The built-in ones are listed here by name, so that the command line starts without importing LangGraph. Methods of your
own are named in the environment: ``TOOLMEM_METHODS=package.module:Class`` (several with commas between them); what they
declare is imported when `toolmem` starts.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_type_hints

import typer

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.text import printable
from langgraph_toolmem.cli.inputs import adopt_tools, open_memory, read_tools_file
from langgraph_toolmem.cli.options import Embeddings, Json, MemoryFolder, Namespace, UserId
from langgraph_toolmem.cli.tables import table
from langgraph_toolmem.cli.terminal import answer_json, console, note
from langgraph_toolmem.core.contributions import Answer, Command

if TYPE_CHECKING:
    pass

DRY_RUN: Final = "Dry run: nothing was changed. Do it with --apply."

_Apply = Annotated[bool, typer.Option("--apply", help="Do it, after a question.")]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="With --apply: do not ask.")]
_Schemas = Annotated[
    Path | None,
    typer.Option(
        "--tools", metavar="FILE", help="Tool schemas or an OpenAPI document (JSON), besides those the memory saw."
    ),
]


def add_commands(app: typer.Typer, groups: dict[str, typer.Typer], method: str, commands: Iterable[Command]) -> None:
    """Adds what a method declares; a group that is not there yet is made."""
    for command in commands:
        target = app
        if command.group:
            if command.group not in groups:
                groups[command.group] = typer.Typer(rich_markup_mode=None)
                app.add_typer(groups[command.group], name=command.group)
            target = groups[command.group]
        target.command(command.name or command.run.__name__)(_function(method, command))


def _function(method: str, command: Command) -> Any:
    """The command as typer takes it."""
    hints = get_type_hints(command.run, include_extras=True)
    own = [
        each.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[each.name])
        for each in list(inspect.signature(command.run).parameters.values())[1:]
    ]
    personal = any(each.name == "user_id" for each in own)
    derived: list[tuple[str, Any, Any]] = [("memory", MemoryFolder, inspect.Parameter.empty)]
    if command.tools:
        derived.append(("tools", _Schemas, None))
    if personal:
        own = [each for each in own if each.name != "user_id"]
        derived += [
            ("user_id", UserId, None),
            ("namespace", Namespace, None),
            ("embeddings", Embeddings, "builtin"),
        ]
    if command.change is not None:
        derived += [("apply", _Apply, False), ("yes", _Yes, False)]
    derived.append(("as_json", Json, False))

    def run(**given: Any) -> None:
        folder, as_json = given.pop("memory"), given.pop("as_json")
        apply, yes = given.pop("apply", False), given.pop("yes", False)
        place: dict[str, Any] = {name: given.pop(name) for name in ("namespace", "embeddings") if name in given}
        schemas = read_tools_file(given.pop("tools", None))
        writes = command.writes is not None and command.writes(given)
        with _Opened(method, folder, not writes, place, schemas) as opened:
            answer = command.run(opened, **given)
        if not as_json:
            show(answer)
        if command.change is not None and answer.question:
            if apply:
                sure(answer.question, yes)
                with _Opened(method, folder, False, place, None) as opened:
                    answer = command.change(opened, answer, **given)
                if not as_json:
                    show(answer)
            elif not as_json:
                typer.echo(DRY_RUN)
        if as_json:
            answer_json(answer.plain)

    empty = inspect.Parameter.empty
    several = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, kind, default in derived
    ]
    parameters = [*own, *several]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters if each.annotation is not empty}
    run.__doc__ = command.run.__doc__
    return run


class _Opened:
    """The method of a memory, for the time of a ``with``."""

    def __init__(
        self, method: str, folder: Path, read_only: bool, place: Mapping[str, Any], schemas: list[dict[str, Any]] | None
    ) -> None:
        self._memory = open_memory(folder, read_only=read_only, **place)
        self._method = method
        adopt_tools(self._memory, schemas)

    def __enter__(self) -> Any:
        self._memory.__enter__()
        return self._memory.method(self._method)

    def __exit__(self, *error: Any) -> None:
        self._memory.__exit__(*error)


def show(answer: Answer) -> None:
    """Prints an answer for a person; remarks go to stderr."""
    out = console()
    for each in answer.shown:
        if isinstance(each, str):
            for line in each.splitlines() or [""]:
                out.print(printable(line), soft_wrap=True)
        else:
            table(out, each.title, each.columns, each.rows, each.most)
    for remark in answer.notes:
        note(remark)


def sure(question: str, yes: bool) -> None:
    """Asks, unless `yes`; ends the program if the answer is no."""
    if yes:
        return
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        raise ConfigurationError("nobody said yes, so nothing was changed; --yes answers in advance") from None
    if not agreed:
        note("Nothing was changed.")
        raise typer.Exit(1)
