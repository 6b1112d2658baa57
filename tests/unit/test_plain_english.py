"""Plain English in docstrings, messages and docs: no riddles, no metaphors, no question words at the start."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from modules import modules, one_worker
from places import ROOT

pytestmark = one_worker
QUESTIONS = ("What ", "Whether ", "How ", "Which ", "Where ", "Who ")
BANNED = {
    r"(is|are|was) (told|heard)( of)?\b": "name the actor: reports, is notified",
    r"heard of\b": "last seen",
    r"what (became|comes|came) of": "the result of",
    r"stands? further (in|out)": "inside, outside",
    r"the record is sure": "confidence",
    r"fore(see|sees|seen|saw)\b": "predict",
    r"nothing is done": "is disabled",
    r"a request unlike": "an unfamiliar request",
    r"\b(run|runs|ran|running) ahead\b": "prefetch",
    r"\bat hand\b": "available",
    r"\bset aside\b": "quarantined",
    r"\b(made|built) anew\b": "rebuilt",
    r"\breckoned\b": "estimated",
    r"\btwins?\b": "async variant",
    r"\bstrangers?\b": "unfamiliar request",
    r"\bbeside\b(?![:`])": "next to, with",
    r"\bfrom \d?\.\d+ on\b": "at least",
    r"\bvouch": "confirm",
    r"\bto the letter\b": "identical",
    r"\bhow manyth\b": "ordinal",
    r"\bthe gravest\b": "the most restrictive",
    r"\bthumbs?-down\b": "bad feedback",
    r"\bsurer\b": "more likely, with higher confidence",
    r"\blets? go\b": "release, delete",
    r"\bthe (less|more|fewer)\b[^.;]{3,60}, the\b": "as … grows, … falls",
    r"\bwhoever\b": "name the reader or caller",
}
HEADING = re.compile(r"\b(house|rooms?|gears?|shelf|shelves|twins?|strangers?)\b", re.IGNORECASE)
PAGES = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("*/README.md")]


@cache
def texts() -> list[tuple[Path, str]]:
    """What people read: docstrings and messages of the modules, and the pages."""
    constants = [
        (path, node.value)
        for path, _, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
    ]
    pages = [(path, path.read_text(encoding="utf-8")) for path in PAGES]
    return [(path, " ".join(text.split())) for path, text in constants + pages]


@pytest.mark.parametrize("phrase", BANNED)
def test_banned_phrases_are_not_written(phrase: str) -> None:
    pattern = re.compile(phrase, re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}: …{text[max(0, each.start() - 40) : each.end() + 30]}…"
        for path, text in texts()
        for each in pattern.finditer(text)
    ]
    assert not found, f"write {BANNED[phrase]!r}:\n" + "\n".join(found)


def test_no_docstring_begins_with_a_question_word() -> None:
    """Those of constants and fields count too: any string that stands as a statement."""
    found = [
        f"{path.relative_to(ROOT)}: {text.splitlines()[0]}"
        for path, _, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if (text := node.value.value.strip()).startswith(QUESTIONS)
    ]
    assert not found, "\n".join(found)


def test_headings_name_their_topic() -> None:
    headings = [
        f"{path.name}: {line}" for path in PAGES for line in path.read_text("utf-8").splitlines() if line[:1] == "#"
    ]
    assert not [line for line in headings if HEADING.search(line)]
