"""Every snippet of the README runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from places import ROOT

README = ROOT / "README.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.filterwarnings("error")
@pytest.mark.slow
def test_the_snippets_run_one_after_the_other(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "readme"}
    reports = 0
    for number, snippet in enumerate(SNIPPETS):
        exec(compile(snippet, f"README snippet {number}", "exec"), names)
        printed = capsys.readouterr().out
        if "print(memory.report())" in snippet:
            reports += 1
            taken = re.search(r"(\d+) of them taken without the model", printed)
            assert taken is not None
            assert int(taken[1]) > 100
        if "print(entry.query" in snippet:
            assert "The shop of Ann does not load 0.0 It was the certificate" in printed
        if "print(decision.reason)" in snippet:
            assert printed.strip() == "nothing like this has been seen yet"
    assert reports == 2
    assert len(SNIPPETS) > 4


def test_commands_of_the_readme_exist() -> None:
    from typer.testing import CliRunner

    from langgraph_toolmem.cli.app import app

    for command in set(re.findall(r"`toolmem ([a-z]+)", README.read_text(encoding="utf-8"))):
        assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0, command
