"""Every snippet of the README runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippet_runs(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(SNIPPETS[number], f"README snippet {number}", "exec"), {"__name__": "readme"})
    printed = capsys.readouterr().out
    if "print(memory.report())" in SNIPPETS[number]:
        taken = re.search(r"(\d+) of them taken without the model", printed)
        assert taken is not None
        assert int(taken[1]) > 100
    if "print(decision.reason)" in SNIPPETS[number]:
        assert printed.strip() == "nothing like this has been seen yet"


def test_commands_of_the_readme_exist() -> None:
    from typer.testing import CliRunner

    from langgraph_toolmem.cli.app import app

    for command in set(re.findall(r"`toolmem ([a-z]+)", README.read_text(encoding="utf-8"))):
        assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0, command
