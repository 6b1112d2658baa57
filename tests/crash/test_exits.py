"""Programs that never close their memory: their exit status is their own, and no acknowledged run is lost."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from exits import ENDS, ended
from places import ROOT

from langgraph_toolmem.base import threads

STARTING, WRITING = (2, 0.0), (10, 1.0)
"""Runs, and seconds to wait: Chroma is being imported, and rows are being written."""
MOMENTS = [("end", STARTING), *((end, WRITING) for end in ENDS)]
THREADS = """
import atexit, sys, threading, time
from langgraph_toolmem.base import threads
threads.STOP_SECONDS = 0.05

def native():
    with threads.native():
        time.sleep(0.5)
        print("out", flush=True)

def late():
    time.sleep(0.2)
    try:
        with threads.native():
            print("in", flush=True)
    except Exception as error:
        print(type(error).__name__, flush=True)

class Owner:
    def stop(self, end):
        print("told", flush=True)
        raise ValueError("nobody else minds")

@atexit.register
def after():
    with threads.native():  # the main thread may close what it likes
        print("after", flush=True)

owner = Owner()
threads.at_exit(owner)
threads.at_exit(owner)
for do in (native, late):
    threads.start(do.__name__, do)
atexit.register(print, "before", flush=True)
sys.exit(7)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "moment"), MOMENTS, ids=lambda value: value if isinstance(value, str) else str(value[0])
)
def test_a_program_that_does_not_close_its_memory(tmp_path: Path, end: str, moment: tuple[int, float]) -> None:
    if (end in ("worker", "child") and not hasattr(os, "fork")) or (sys.platform == "win32" and ENDS[end] in (4, -15)):
        pytest.skip("no such end here")
    if end == "server" and importlib.util.find_spec("uvicorn") is None:
        pytest.skip("uvicorn is not installed")
    found = ended(tmp_path / "memory", end, *moment)
    assert found.status == ENDS[end], found.said
    assert len(found.acknowledged) == moment[0] or end == "signal"
    assert found.acknowledged
    assert not found.lost
    assert found.seconds < threads.NATIVE_SECONDS


def test_native_code_is_awaited_and_only_the_main_thread_enters_it_later() -> None:
    done = subprocess.run([sys.executable, "-c", THREADS], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split()) == (7, ["before", "told", "StorageError", "out", "after"]), (
        done.stderr
    )
