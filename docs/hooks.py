"""Pages of the site that are generated from other files, and links from pages to files of the repository."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files
from typer.cli import get_docs_for_click
from typer.main import get_command

import langgraph_toolmem
from langgraph_toolmem.cli.app import app

ROOT: Final = Path(__file__).parents[1]
MADE_OF: Final = {"index.md": "README.md", "benchmarks.md": "benchmarks/README.md", "changelog.md": "CHANGELOG.md"}
MODULES: Final = ("nodes", "middleware", "extend", "testing")
"""Modules in the reference, after the package itself."""
_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    for name, source in MADE_OF.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=_relinked(text, source, name)))
    files.append(File.generated(config, "reference/api.md", content="\n".join(_api())))
    files.append(File.generated(config, "reference/cli.md", content=_commands()))
    files.append(File.generated(config, "examples.md", content="\n".join(_examples())))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Change the links of a page."""
    name = page.file.src_uri
    return markdown if page.file.generated_by else _relinked(markdown, f"docs/{name}", name)


def _relinked(text: str, source: str, name: str) -> str:
    """Return a page's text with links between pages; a link to a file without a page becomes text."""
    pages = {made_of: page for page, made_of in MADE_OF.items()}

    def to_page(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[2]))
        if target.startswith("docs/") and target.endswith((".md", ".png", ".svg")):
            page = target.removeprefix("docs/")
        elif target.startswith("examples"):
            page = "examples.md"
        elif target in pages:
            page = pages[target]
        else:
            return link[1] if (ROOT / target).exists() else link[0]
        anchor = link[3] or (f"#{_anchor(target)}" if target.endswith(".py") else "")
        return f"[{link[1]}]({posixpath.relpath(page, posixpath.dirname(name) or '.')}{anchor})"

    return _LINK.sub(to_page, text)


def _api() -> Iterator[str]:
    yield "# Python\n\n## langgraph_toolmem\n"
    yield from (f"::: langgraph_toolmem.{name}\n" for name in langgraph_toolmem.__all__ if name != "__version__")
    for module in MODULES:
        name = f"langgraph_toolmem.{module}"
        yield f"## {name}\n\n::: {name}\n    options:\n      show_root_heading: false\n"


def _commands() -> str:
    from typer import Context

    command = get_command(app)
    docs = get_docs_for_click(obj=command, ctx=Context(command, info_name="toolmem"), name="toolmem")
    return re.sub(r"^# `toolmem`", "# Command line", docs)


def _examples() -> Iterator[str]:
    yield _relinked((ROOT / "examples/README.md").read_text(encoding="utf-8"), "examples/README.md", "examples.md")
    for path in sorted((ROOT / "examples").rglob("*.py")):
        if path.name != "__init__.py" and not path.name.startswith("test_"):
            name = path.relative_to(ROOT).as_posix()
            yield f"\n## {name} {{ #{_anchor(name)} }}\n\n```python\n{path.read_text(encoding='utf-8')}```"


def _anchor(path: str) -> str:
    return re.sub(r"\W+", "-", path)
