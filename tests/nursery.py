"""A process that forks programs for tests; run as a script with the descriptor of a socket.

It has imported the package and Chroma, which takes an interpreter of its own seconds, and compiled the expressions of
values, which takes a tenth of one. It opens nothing and starts no thread, so a program begins as in a preloaded app
(``gunicorn --preload``) and ends as any other. A keeper per program waits for it and sends its exit status: the tests'
process is not its parent.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import struct
import sys
import types
from contextlib import suppress
from typing import Final

PRELOADED: Final = (
    "chromadb.api.rust",
    "langchain.agents",
    "langgraph_toolmem.middleware",
    "langgraph_toolmem.atoms.planning",
    "langgraph_toolmem.entries.recall",
    "langgraph_toolmem.navigator.plan.planner",
    "langgraph_toolmem.navigator.tool_search",
    "desk",
    "planted",
)
MOST_BYTES: Final = 1 << 20
"""Size of a request: the program, its arguments and environment."""
NUMBER: Final = struct.Struct("i")


def next_program(requests: socket.socket) -> str | None:
    """Fork a program for each request. Return its text in the new process, and None in this one at the end."""
    while True:
        message, descriptors, *_ = socket.recv_fds(requests, MOST_BYTES, 4)
        if not message:
            return None
        *streams, answers = descriptors
        if not os.fork():
            requests.close()
            if keep(streams, answers):
                os._exit(0)
            given = json.loads(message)
            os.environ.clear()
            os.environ.update(given["environ"])
            sys.argv = ["-c", *given["argv"]]
            return str(given["code"])
        for descriptor in descriptors:
            os.close(descriptor)
        with suppress(ChildProcessError):  # no keeper is left
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue


def keep(streams: list[int], answers: int) -> bool:
    """Fork the program, send its number and its exit status; return False in the program."""
    program = os.fork()
    if not program:
        os.close(answers)
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
            os.close(descriptor)
        return False
    for number, descriptor in enumerate(streams):
        os.close(descriptor)
        os.close(number)  # else who reads the program's output waits for the keeper
    os.write(answers, NUMBER.pack(program))
    os.write(answers, NUMBER.pack(os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])))
    return True


if __name__ == "__main__":
    for name in PRELOADED:
        importlib.import_module(name)
    values = importlib.import_module("langgraph_toolmem.text.values")
    for kinds in (values.KINDS, values.RANKED, values.WHOLE_VALUES):
        values.scanner(kinds)
    code = next_program(socket.socket(fileno=int(sys.argv[1])))
    if code is not None:
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(code, "<program>", "exec"), main.__dict__)
