"""Every snippet of the README runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RECIPES = sorted((ROOT / "docs" / "recipes").glob("*.md"))  # tests/apps/test_recipes.py runs their snippets


def snippets(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if snippets(page)], ids=lambda page: page.name)
def test_the_snippets_of_a_page_run_one_after_the_other(
    page: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for number, snippet in enumerate(snippets(page)):
        exec(compile(snippet, f"{page.name} snippet {number}", "exec"), names)
        printed = capsys.readouterr().out
        if page.name == "start.md" and "print(memory.report())" in snippet:
            saved = re.search(r"^Saved (\d+) of (\d+) model calls", printed)
            assert saved is not None
            assert int(saved[1]) > 100
        if "print(entry.query" in snippet:
            assert "The shop of Ann does not load 0.0 It was the certificate" in printed
        if '# "nothing like this' in snippet:
            assert printed.strip() == "nothing like this has been seen yet"


def test_the_readme_is_short() -> None:
    assert len(PAGES[0].read_bytes()) <= 6_000


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*PAGES, *RECIPES]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_architecture_names_what_is_there_and_follows_one_message_through_few_files() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    modules = [
        *ROOT.glob("langgraph_toolmem/**/*.py"),
        *ROOT.glob("examples/**/*.py"),
        *ROOT.glob("benchmarks/*.py"),
        *ROOT.glob("tests/unit/*.py"),
    ]
    known = {word for path in modules for word in re.findall(r"\w+", f"{path} {path.read_text(encoding='utf-8')}")}
    assert {word for code in re.findall(r"`([^`\n]+)`", page) for word in re.findall(r"\w{2,}", code)} - known == set()
    followed = page.partition("## One message")[2].partition("\n## ")[0]
    assert 10 < len(set(re.findall(r"\]\((\.\./[^)]*)\)", followed))) <= 20


@pytest.mark.slow
def test_the_site_is_built_and_nothing_in_it_leads_nowhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="needs mkdocs (extra `dev-all`)")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    calm = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=calm, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made = {page.parent.name: page.read_text("utf-8") for page in (tmp_path / "site").rglob("index.html")}
    from langgraph_toolmem import __all__ as names
    from langgraph_toolmem.cli.app import app

    for name in set(names) - {"__version__"}:
        assert f'id="langgraph_toolmem.{name}"' in made["api"], name
    for command in app.registered_commands:
        assert f"toolmem {command.name or command.callback.__name__.rstrip('_')}" in made["cli"]  # type: ignore[union-attr]


def test_commands_of_the_readme_exist() -> None:
    from typer.testing import CliRunner

    from langgraph_toolmem.cli.app import app

    told = "".join(page.read_text(encoding="utf-8") for page in [*PAGES, *RECIPES] if page.name != "architecture.md")
    for command in set(re.findall(r"`toolmem ([a-z]+)", told)):
        assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0, command


def test_the_tests_named_in_tables_exist() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", (ROOT / "tests" / "README.md").read_text(encoding="utf-8"))
    assert len(named) > 20
    missing = [f"{file}::{name}" for file, name in named if f"def {name}(" not in (ROOT / "tests" / file).read_text()]
    assert missing == []
