"""A real Chromium without a window, for tests of pages."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_browser() -> str:
    """The program's path; Debian's package is installed once where that is possible, else the test is skipped."""
    if found := _installed():
        return found
    if os.name != "posix" or os.geteuid() != 0 or not shutil.which("apt-get"):
        pytest.skip("needs Chromium (Debian: apt-get install chromium)")
    # Workers of pytest-xdist come here together; the first one installs, the others wait for it.
    folder = Path(tempfile.gettempdir())
    failed = folder / f"toolmem-chromium-{os.getuid()}.failed"
    with FileLock(folder / f"toolmem-chromium-{os.getuid()}.lock"):
        if not _installed() and not failed.exists() and not _install():
            failed.touch()
    found = _installed()
    if not found:
        pytest.skip(f"Chromium could not be installed (remove {failed} to try again)")
    return found


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Chromium with a profile of its own, closed at the end."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    program = find_browser()
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, headless=True, args=list(_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


def _installed() -> str | None:
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


def _install() -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "chromium"]):
        try:
            done = subprocess.run(["apt-get", *command], env=environment, capture_output=True, timeout=600, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return False
        if done.returncode:
            return False
    return True
