"""Docstrings begin with what something is or does, never with a question word."""

from __future__ import annotations

import ast

from places import ROOT

RIDDLES = ("What ", "Whether ", "How ", "Which ", "Where ", "Who ")


def test_no_docstring_begins_with_a_question_word() -> None:
    found = []
    for path in sorted((ROOT / "langgraph_toolmem").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                text = ast.get_docstring(node) or ""
                if text.startswith(RIDDLES):
                    found.append(f"{path.relative_to(ROOT)}: {text.splitlines()[0]}")
    assert not found, "\n".join(found)


BANNED = (
    "is told of",
    "what became of",
    "stands further in",
    "stands further out",
    "the record is sure",
    "foreseen",
    "nothing is done",
    "a request unlike those the record is about",
)


def test_phrases_that_nobody_understands_are_not_written() -> None:
    texts = [*(ROOT / "langgraph_toolmem").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    found = [
        f"{path.relative_to(ROOT)}: {phrase}"
        for path in sorted(texts)
        for phrase in BANNED
        if phrase in path.read_text(encoding="utf-8").lower()
    ]
    assert not found, "\n".join(found)
