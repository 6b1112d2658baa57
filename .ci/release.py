"""Make a release: build, check, install in bare environments, notes from CHANGELOG.md, tag.

    python .ci/release.py            # all of it; the tag only if nothing is missing
    python .ci/release.py --no-tag   # without the tag

Each step says what is missing or wrong, and the others go on: without a network the installs fail, and the rest is
still checked. Nothing is uploaded: .github/workflows/release.yml publishes from the tag.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
NOTES = DIST / "NOTES.md"


class MissingError(Exception):
    """Something that a step needs is not there, or a step failed."""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command; return its output.

    Raises:
        MissingError: it failed; with the last lines that it wrote.
    """
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        end = "\n    ".join((done.stdout + done.stderr).strip().splitlines()[-5:])
        raise MissingError(f"{' '.join(str(part) for part in command[:4])} … failed:\n    {end}")
    return done.stdout.strip()


def version() -> str:
    """Return the version in ``_version.py``."""
    text = (ROOT / "langgraph_toolmem" / "_version.py").read_text(encoding="utf-8")
    found = re.search(r'__version__ = "([^"]+)"', text)
    if found is None:
        raise MissingError("langgraph_toolmem/_version.py has no __version__")
    return found[1]


def notes_of(changelog: str, wanted: str) -> str:
    """Return the section of a version.

    Raises:
        MissingError: there is none, or it still says "unreleased".
    """
    found = re.search(rf"^## {re.escape(wanted)}(?![\w.])(.*)\n((?:(?!^## ).*\n?)*)", changelog, re.MULTILINE)
    if found is None:
        raise MissingError(f"CHANGELOG.md has no section {wanted}")
    if "unreleased" in found[1]:
        raise MissingError(f"CHANGELOG.md: write the date in place of 'unreleased' at {wanted}")
    return found[2].strip() + "\n"


def write_notes() -> None:
    """Write the notes of this version to dist/NOTES.md."""
    DIST.mkdir(exist_ok=True)
    NOTES.write_text(notes_of((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version()), encoding="utf-8")


def named_repository() -> None:
    """Check that the repository's address is filled in."""
    if re.search(r'^repository = ""', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE):
        raise MissingError("pyproject.toml: `repository` is empty, so the package has no links")


def build() -> None:
    """Build sdist and wheel from a clean folder."""
    if find_spec("build") is None:
        raise MissingError("`build` is not installed: python -m pip install build")
    shutil.rmtree(DIST, ignore_errors=True)
    alone = ("--no-isolation",) if find_spec("hatchling") else ()
    run(sys.executable, "-m", "build", *alone)


def files() -> list[Path]:
    """Return wheel and sdist."""
    found = [*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")]
    if len(found) != 2:
        raise MissingError("dist/ has no wheel and sdist")
    return found


def check() -> None:
    """Check metadata and README as the package index reads them."""
    if find_spec("twine") is None:
        raise MissingError("`twine` is not installed: python -m pip install twine")
    run(sys.executable, "-m", "twine", "check", "--strict", *files())


def install() -> None:
    """Install each file into a bare environment, and run the demo there."""
    for file in files():
        with tempfile.TemporaryDirectory() as folder:
            bare = Path(folder) / "bare"
            venv.create(bare, with_pip=True)
            python = bare / ("Scripts" if sys.platform == "win32" else "bin") / "python"
            run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", file, cwd=Path(folder))
            said = run(python.with_name("toolmem"), "--version", cwd=Path(folder))
            if version() not in said:
                raise MissingError(f"{file.name}: `toolmem --version` says {said!r}")
            run(python.with_name("toolmem"), "demo", "--tasks", "5", "--out", "demo", cwd=Path(folder))


def committed() -> None:
    """Check that all is committed."""
    if run("git", "status", "--porcelain"):
        raise MissingError("there are changes that are not committed")


def tag() -> None:
    """Tag this version with its notes."""
    if run("git", "tag", "--list", f"v{version()}"):
        raise MissingError(f"the tag v{version()} exists already: raise the version")
    run("git", "tag", "--annotate", f"v{version()}", "--cleanup=verbatim", "--file", NOTES)


STEPS = (committed, named_repository, build, check, install, write_notes)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--no-tag", action="store_true", help="leave out the tag")
    options = parser.parse_args(arguments)
    missing = 0
    for step in STEPS if options.no_tag else (*STEPS, tag):
        if step is tag and missing:
            print("no tag: something is missing")
            break
        try:
            step()
        except MissingError as problem:
            missing += 1
            print(f"MISSING  {step.__name__}: {problem}")
        else:
            print(f"done     {step.__name__}")
    if not missing and not options.no_tag:
        print(f"push it: git push origin v{version()}")
    return 1 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
