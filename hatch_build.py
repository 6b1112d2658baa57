"""Metadata of the package that depends on where its repository is: URLs, and links of the README.

The one place to fill in is ``repository`` in ``[tool.hatch.metadata.hooks.custom]`` of pyproject.toml. While it is
empty, the package has no URLs, and the README's links stay relative.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PAGES = {
    "Homepage": "",
    "Documentation": "/tree/main/docs",
    "Changelog": "/blob/main/CHANGELOG.md",
    "Issues": "/issues",
}
_LINK = re.compile(r"(!?\[[^\]]*\])\((?!https?:|#|mailto:)([^)]+)\)")


class RepositoryHook(MetadataHookInterface):
    """Adds ``urls`` and ``readme``, which pyproject.toml declares as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        repository = self.config.get("repository", "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": readme_of(text, repository)}
        metadata["urls"] = urls_of(repository)


def urls_of(repository: str) -> dict[str, str]:
    """Return the project's URLs; none without a repository."""
    return {name: repository + path for name, path in PAGES.items()} if repository else {}


def readme_of(text: str, repository: str) -> str:
    """Return a README whose links work outside the repository; pictures need the raw file."""
    if not repository:
        return text

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link[1].startswith("!") else "blob"
        return f"{link[1]}({repository}/{kind}/main/{link[2]})"

    return _LINK.sub(absolute, text)
