"""What is published: metadata, links of the README, notes of a release, the workflow, the moving picture."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from places import ROOT

from benchmarks.picture import COLUMNS, COMMAND, FILE, lines_of, picture_of

REPOSITORY = "https://example.org/o/langgraph-toolmem"
OUTPUT = (
    """

120 requests to an office agent
┏━━━━━┓
│ <b> & "with" │
"""
    + "x " * 80
    + """

The log of the runs without it: demo/runs.jsonl
"""
)


def module_of(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = made
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def release() -> Any:
    return module_of(ROOT / ".ci" / "release.py")


# --- metadata ---


def test_every_python_that_is_supported_is_a_classifier() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r"Python :: (3\.\d+)", text) == ["3.10", "3.11", "3.12", "3.13", "3.14"]
    assert text.count("repository =") == 1, "the address has one place"
    assert "/langgraph-toolmem" not in text.replace("OWNER/langgraph-toolmem", "")


def test_urls_and_links_of_the_readme_stem_from_one_constant() -> None:
    pytest.importorskip("hatchling", reason="needs hatchling")
    hook = module_of(ROOT / "hatch_build.py")
    assert hook.urls_of("") == {}
    assert {url.startswith(REPOSITORY) for url in hook.urls_of(REPOSITORY).values()} == {True}
    text = "[a](docs/a.md#b) ![moving](docs/demo.svg) [out](https://x.org/y) [here](#top)"
    assert hook.readme_of(text, "") == text
    assert hook.readme_of(text, REPOSITORY) == (
        f"[a]({REPOSITORY}/blob/main/docs/a.md#b) ![moving]({REPOSITORY}/raw/main/docs/demo.svg) "
        "[out](https://x.org/y) [here](#top)"
    )
    readme = hook.readme_of((ROOT / "README.md").read_text(encoding="utf-8"), REPOSITORY)
    assert not re.findall(r"\]\((?!https?:|#)[^)]+\)", readme)


# --- a release ---

CHANGELOG = "# Changelog\n\n## 0.2.0 (2030-01-02)\n\n- new\n\n**Also**\n\n- more\n\n## 0.1.0 (unreleased)\n\n- old\n"


def test_the_notes_are_the_section_of_the_version(release: Any) -> None:
    assert release.notes_of(CHANGELOG, "0.2.0") == "- new\n\n**Also**\n\n- more\n"
    for version, why in (("0.1.0", "unreleased"), ("0.3.0", "no section"), ("0.2", "no section")):
        with pytest.raises(release.MissingError, match=why):
            release.notes_of(CHANGELOG, version)


def test_a_release_names_all_that_is_missing_and_sets_no_tag(
    release: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = []

    def fails() -> None:
        raise release.MissingError("no network")

    def works() -> None:
        done.append("works")

    monkeypatch.setattr(release, "STEPS", (fails, works))
    monkeypatch.setattr(release, "tag", lambda: done.append("tag"))
    assert release.main([]) == 1
    assert done == ["works"]
    assert re.search(r"MISSING +fails: no network\ndone +works\nno tag", capsys.readouterr().out)
    monkeypatch.setattr(release, "STEPS", (works,))
    assert release.main([]) == 0
    assert done == ["works", "works", "tag"]


def test_a_command_that_fails_is_named_with_its_last_words(release: Any) -> None:
    with pytest.raises(release.MissingError, match="out of luck"):
        release.run(sys.executable, "-c", "raise SystemExit('out of luck')")


def test_the_workflow_publishes_a_tag_without_a_stored_token() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
    assert workflow[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads `on` as True
    jobs = workflow["jobs"]
    assert {name for name, job in jobs.items() if "id-token" in job.get("permissions", {})} == {"publish"}
    assert jobs["publish"]["needs"] == "build"
    assert "secrets." not in str(workflow)
    commands = [step["run"] for step in jobs["build"]["steps"] if "run" in step]
    assert any("_version.py" in command for command in commands), "the tag is compared with the version"
    version = re.search(r"python -c '(.+)'", " ".join(commands))
    assert version is not None
    printed = subprocess.run([sys.executable, "-c", version[1]], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", printed.stdout)


# --- the moving picture ---


def test_lines_of_the_picture_end_where_files_are_named() -> None:
    lines = lines_of(OUTPUT)
    assert lines[:3] == ["120 requests to an office agent", "┏━━━━━┓", '│ <b> & "with" │']
    assert max(map(len, lines)) <= COLUMNS
    assert not any("runs.jsonl" in line for line in lines)


def test_the_picture_shows_the_lines_as_they_are() -> None:
    drawn = ElementTree.fromstring(picture_of(lines_of(OUTPUT)))
    texts = [text.text or "" for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "".join(texts[: len(COMMAND) + 2]) == f"$ {COMMAND}"
    assert texts[len(COMMAND) + 2 :] == [line.rstrip() for line in lines_of(OUTPUT)]


def test_the_picture_of_the_readme_is_small_and_safe() -> None:
    assert "(docs/demo.svg)" in (ROOT / "README.md").read_text(encoding="utf-8")
    text = FILE.read_text(encoding="utf-8")
    assert len(text.encode()) <= 60_000
    drawn = ElementTree.fromstring(text)
    assert {element.tag.rpartition("}")[2] for element in drawn.iter()} == {"svg", "style", "rect", "text"}
    assert "prefers-reduced-motion" in text
    assert not re.findall(r"(?<!\")https?:|/tmp|/home|url\(", text)
    said = drawn.get("aria-label", "")
    assert re.search(r"120 requests to an office agent .*unasked.* done right", said)
