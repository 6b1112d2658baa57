"""Decisions with their prompts, kept to fine-tune a small decider. Opt-in, because prompts contain users' words.

``create_navi_subgraph(model, tools, memory, keep_decisions=True)`` fills ``memory.navigator.decisions``, and
``memory.navigator.decisions.export("train.jsonl")`` writes the good ones. As in NaviAgent (arXiv 2506.19500), training
uses successful runs, and of these only decisions whose parts all went well.

A line is ``{"messages": [system, user, assistant]}``: the prompt as it was sent, and the decision as JSON text with
``"weight": 1``, the only message to learn. OpenAI's fine-tuning and Axolotl's ``chat_template`` take such lines;
TRL needs ``assistant_only_loss=True``. Run the trained model with ``create_navi_subgraph(..., method="json_schema")``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from langgraph_toolmem.base.checks import is_share
from langgraph_toolmem.base.errors import ConfigurationError, InputError
from langgraph_toolmem.base.text import digest, dumps
from langgraph_toolmem.core.core import Core
from langgraph_toolmem.core.users import user_digest
from langgraph_toolmem.graph.events import GOOD, Forgotten
from langgraph_toolmem.stores.database import Database
from langgraph_toolmem.stores.snapshot import replace_file
from langgraph_toolmem.text.embedders import clean

MAX_DECISIONS: Final = 10_000
"""Limit of kept decisions; the oldest are dropped. One takes about 10 KB."""


class DecisionLog(Database):
    """A table of decisions in the memory's database; safe for several threads and processes.

    A decision is on disk when `add` returns. A node that runs again replaces its own decision.

    If memory is separated by user, decisions without a user are not kept, because they could not be forgotten.
    """

    tables: ClassVar[Mapping[str, str]] = {
        "decisions": """
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            run TEXT NOT NULL,
            step INTEGER NOT NULL,
            prompt TEXT NOT NULL,
            user TEXT NOT NULL,
            time REAL NOT NULL,
            good INTEGER,
            line TEXT NOT NULL,
            UNIQUE (run, step, prompt)
        """
    }

    def __init__(self, core: Core) -> None:
        super().__init__(
            core.folder,
            read_only=core.read_only,
            busy=1.0,  # seconds: the agent waits
            problems=core.store.problems,  # both tables are in memory.db
        )
        self._core = core

    def add(
        self,
        run: str,
        step: int,
        messages: Sequence[Mapping[str, Any]],
        decision: Mapping[str, Any],
        *,
        user_id: str | None = None,
        good: bool | None = None,
    ) -> None:
        """Keep a decision: the prompt in chat format, and the decision as JSON values.

        Args:
            run: digest of the run.
            step: its number in the run.
            good: True if all its parts went well; None if its calls are still to be made.

        Raises:
            StorageError: the file cannot be written.
        """
        # The host may have named the run's user elsewhere, such as in `finish`.
        user = user_digest(user_id) or self._core.graph.owner(run) or ""
        if self.read_only or (self._core.users.apart and not user):
            return
        text = dumps(decision, ensure_ascii=False)
        line = {"messages": [*messages, {"role": "assistant", "content": text, "weight": 1}]}
        # ASCII: some readers of JSONL end a line at U+2028, and half a surrogate pair is invalid in UTF-8.
        ascii_line = dumps(json.loads(clean(json.dumps(line, ensure_ascii=False))))
        row = (run, step, digest("prompt", json.dumps(messages)), user, self._core.now(), good, ascii_line)
        with self.writing() as database:
            database.execute(
                "INSERT OR REPLACE INTO decisions (run, step, prompt, user, time, good, line) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                row,
            )
            database.execute(
                "DELETE FROM decisions WHERE seq <= (SELECT max(seq) FROM decisions) - ?", (MAX_DECISIONS,)
            )

    def judge(self, run: str, step: int, good: bool) -> None:
        """Record the outcome of the calls of the latest decision with this number. Raises StorageError like `add`."""
        if self.read_only or self.empty:
            return
        with self.writing() as database:
            database.execute(
                "UPDATE decisions SET good = ? WHERE good IS NULL AND seq = "
                "(SELECT max(seq) FROM decisions WHERE run = ? AND step = ?)",
                (good, run, step),
            )

    def export(self, path: Path | str, *, min_score: float | None = GOOD) -> int:
        """Write good decisions as JSONL, each once; return the number of lines.

        Lines contain users' words. They contain ids of users, runs or threads only if a prompt does.

        Args:
            path: of a new file.
            min_score: least score of a run, 0 to 1. If None, runs without feedback count as well.

        Raises:
            ConfigurationError: `min_score` is out of range.
            InputError: there are no decisions to write, the file exists, or it cannot be written.
            StorageError: the log cannot be read.
        """
        path = Path(path)
        if min_score is not None and not is_share(min_score):
            raise ConfigurationError(f"min_score must be a number from 0 to 1 or None, got {min_score!r}.")
        if path.exists():
            raise InputError(f"{path} exists. Name another file.")
        lines = self._good_lines(min_score)
        if not lines:
            raise InputError(
                f"None of {len(self)} kept decisions is left to write. create_navi_subgraph(..., keep_decisions=True) "
                "keeps them, with a user id where the namespace has a place for one. Give feedback on runs "
                "(memory.finish(..., success=True), memory.feedback), or pass min_score=None."
            )
        try:
            replace_file(path, "".join(f"{line}\n" for line in lines).encode("ascii"))
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror or error}.") from error
        return len(lines)

    def _good_lines(self, min_score: float | None) -> list[str]:
        """Return the lines of good decisions in runs with at least this score, the oldest first, each once."""
        is_chosen: dict[tuple[str, str], bool] = {}
        lines: dict[str, None] = {}
        for run, user, line in self.ask("SELECT run, user, line FROM decisions WHERE good ORDER BY seq"):
            if (run, user) not in is_chosen:
                score = self._core.feedback_of(run, user or None).score
                is_chosen[run, user] = min_score is None or (score is not None and score >= min_score)
            if is_chosen[run, user]:
                lines[line] = None
        return list(lines)

    def __len__(self) -> int:
        """Return the number of kept decisions."""
        return sum(number for (number,) in self.ask("SELECT count(*) FROM decisions"))

    def forget(self, gone: Forgotten) -> int:
        """Delete decisions of a user, of runs, or before a time, from the file and its log; return their number.

        Raises StorageError where another process reads the file all the time: call it again.
        """
        if self.empty:
            return 0
        # Decisions of another user in these runs are kept, those without a user are deleted.
        of_nobody = ""
        if gone.user:
            of_nobody = "user = '' AND "
        with self.writing() as database:
            deleted = 0
            if gone.user:
                deleted += database.execute("DELETE FROM decisions WHERE user = ?", (gone.user,)).rowcount
            if gone.before is not None:
                deleted += database.execute("DELETE FROM decisions WHERE time < ?", (gone.before,)).rowcount
            for run in gone.runs:
                deleted += database.execute(f"DELETE FROM decisions WHERE {of_nobody}run = ?", (run,)).rowcount
        # For a user also without deletions now: an earlier call may have failed between the two steps.
        if deleted or gone.before is None:
            self.scrub()
        return deleted
