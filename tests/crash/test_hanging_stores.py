"""Postgres and Chroma that are stopped (SIGSTOP) and go on: no step waits for them, and nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from desk import EAGER, Desk, build, history, run, script, thread
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from servers import MissingError, Postgres, chroma_clients, chroma_run, postgres_run
from shells import asked

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel

MOST = 1.5
"""Seconds that all steps of a run may take while both hang: some tens of steps, some times 50 ms, the rest CPU."""


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    pytest.importorskip("langgraph.store.postgres", reason="langgraph-checkpoint-postgres is missing")
    try:
        with postgres_run() as server:
            yield server
    except MissingError as why:
        pytest.skip(str(why))


@pytest.fixture
def chroma(tmp_path: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    (tmp_path / "server").mkdir()
    with chroma_run(tmp_path / "server") as found:
        yield found


@pytest.fixture
def pool(postgres: Postgres) -> Iterator[Any]:
    from langgraph.store.postgres import PostgresStore
    from psycopg.rows import dict_row
    from psycopg_pool import ConnectionPool

    how = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    with ConnectionPool(postgres.dsn, min_size=1, max_size=4, kwargs=how) as connections:
        store = PostgresStore(connections)  # type: ignore[arg-type]
        store.setup()
        yield store


@pytest.mark.parametrize("folder", [True, pytest.param(False, marks=pytest.mark.long)])
def test_runs_go_on_while_both_servers_hang_and_all_of_them_is_there_afterwards(
    folder: bool, postgres: Postgres, pool: Any, chroma: tuple[int, Any], tmp_path: Path
) -> None:
    port, server = chroma
    desk = Desk()
    here = tmp_path / "memory" if folder else None
    space: dict[str, Any] = {"store": pool, "graph_namespace": ("hang", str(folder)), "tools": desk.tools}
    with chroma_clients() as connect:
        memory = ToolMemory(here, chroma=connect(port), **space)
        middleware = tool_memory_middleware(memory, shortcut=EAGER, recall=True, suggest=True, planning=True)
        model = ScriptedChatModel(script=script)
        agent = create_agent(model, desk.tools, middleware=middleware, checkpointer=InMemorySaver())
        graph, _ = build(memory, desk.tools, policy=EAGER, checkpointer=InMemorySaver())
        for number in range(3):
            agent.invoke(asked(number), thread(f"before-{number}"))
            memory.finish(history(100 + number), thread_id=f"kept-{number}", success=True)
        assert memory.flush()
        try:
            postgres.signal(signal.SIGSTOP)
            server.send_signal(signal.SIGSTOP)
            took = []
            for number in range(4):
                for go in (
                    lambda n: agent.invoke(asked(n), thread(f"hang-{n}")),
                    lambda n: asyncio.run(agent.ainvoke(asked(n), thread(f"ahang-{n}"))),
                    lambda n: run(graph, n),
                    lambda n: memory.finish(history(200 + n), thread_id=f"hung-{n}", success=True),
                ):
                    begun = time.monotonic()
                    go(number)
                    took.append(time.monotonic() - begun)
            assert max(took) < MOST, took
            time.sleep(2.1)
            problems = " ".join(memory.report().problems)
            assert "The shared store (PostgresStore) has not answered" in problems
            assert "events wait" in problems
            assert "a step went on without" in problems
            assert "Chroma" in problems
            with pytest.raises(StorageError):
                memory.entries.recall("find the customer")
        finally:
            postgres.signal(signal.SIGCONT)
            server.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + 100
        while memory.core.jobs.queue.report()["pending"] and time.monotonic() < deadline:
            memory.flush(timeout=0.5)
        memory.close()
        assert not any("lost" in problem for problem in memory.report().problems)
        with ToolMemory(None, chroma=connect(port), **space) as fresh:
            # 3 + 4 + 4 runs of the agent and 4 of the graph and 3 + 4 finished ones, of four turns each.
            assert fresh.report().turns == 4 * (3 + 4 + 4 + 4 + 3 + 4)
            assert fresh.core.vectors.scoped(("toolmem",)).count("entries") >= 7
