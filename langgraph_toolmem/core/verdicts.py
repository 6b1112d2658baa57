"""Verdicts on episodes: from the agent at its end, or later, from whatever process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from langgraph_toolmem.base.checks import is_share
from langgraph_toolmem.base.errors import ConfigurationError, NamespaceError
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.core.episodes import Episodes
from langgraph_toolmem.core.evidence import Evidence
from langgraph_toolmem.core.jobs import Jobs
from langgraph_toolmem.core.ledger import Ledger
from langgraph_toolmem.core.listener import JudgedRun, Listener
from langgraph_toolmem.core.users import user_digest
from langgraph_toolmem.graph.evidence import COMMENT, SCORE
from langgraph_toolmem.graph.operations import JUDGE, Record, Verdict
from langgraph_toolmem.runs.run import Run
from langgraph_toolmem.stores.job_queue import Job

VERDICT: Final = "verdict"
"""The kind of job with which a verdict is left to the process that writes to the folder."""
MAX_COMMENT: Final = 500


class Verdicts:
    """Takes in verdicts; tells the methods.

    Args:
        evidence: of the memory.
        episodes: of each thread.
        ledger: told how episodes ended.
        jobs: carry verdicts from process to process.
        listeners: the methods, in their order.
    """

    def __init__(
        self, evidence: Evidence, episodes: Episodes, ledger: Ledger, jobs: Jobs, listeners: Sequence[Listener]
    ) -> None:
        self._evidence, self._episodes, self._ledger = evidence, episodes, ledger
        self._jobs, self._listeners = jobs, listeners
        if not evidence.read_only:
            jobs.handle(VERDICT, self._take_verdict)

    def is_whole(self, run: Run) -> bool:
        """Whether nothing of a thread is known: it is handed over whole, and a verdict is on all its episodes."""
        known = self._episodes.of(run.thread_id)
        if not known or run.truncated:
            return not known
        # Handed over whole once more, with the verdict that it had.
        share = 1 / len(run.episodes())
        return share < 1 and all(self._evidence.weight_of(each.digest) == share for each in run.episodes())

    def feedback(
        self,
        thread_id: str,
        *,
        score: float,
        comment: str | None = None,
        episode: str | int | None = None,
        user_id: str | None = None,
    ) -> str:
        """See `ToolMemory.feedback`; returns the digest of the episode that was judged."""
        if not is_share(score) and not isinstance(score, bool):
            raise ConfigurationError(f"score is from 0 (bad) to 1 (good), not {score!r}.")
        evidence = self._evidence
        evidence.refuse_if_closed()
        if evidence.read_only and not self._jobs.outlive:
            raise ConfigurationError("A read-only memory without a folder has nowhere to leave a verdict.")
        evidence.refresh(at_once=True)
        with evidence.lock:
            run = self._episodes.named(thread_id, episode, self.others(thread_id, user_id))
        if evidence.users.apart and not user_id and self._jobs.place_of(run) is None:
            raise NamespaceError(
                f"The namespace {evidence.users.namespace!r} needs a user id, and whose run {thread_id!r} is was not "
                "kept in this folder. Pass user_id=…"
            )
        self._judge_or_leave(run, score, comment, user_id)
        evidence.acknowledge()
        return run

    def others(self, thread_id: str, user_id: str | None) -> set[str]:
        """The episodes of a thread that are other users', where several have a thread of that id.

        Raises:
            NamespaceError: nobody is named, and it is the thread of several.
        """
        owners = {run: self._evidence.known_owner(run) for run in self._episodes.runs(thread_id)}
        users = set(owners.values()) - {""}
        if len(users) < 2:  # whoever looks at it may judge it
            return set()
        if not user_id:
            raise NamespaceError(f"{len(users)} users have a thread {thread_id!r}. Pass user_id=…")
        return {run for run, owner in owners.items() if owner not in ("", user_digest(user_id))}

    def _judge_or_leave(self, run: str, score: float, comment: str | None, user_id: str | None) -> None:
        evidence = self._evidence
        if not evidence.read_only:
            self.judge(run, float(score), comment, user_id)
            return
        said = {"score": float(score), "comment": comment or "", "user_id": user_id or ""}
        user = user_digest(user_id or None) or self._jobs.owner_of(run) or evidence.known_owner(run)
        self._jobs.put(VERDICT, said, run=run, user=user, line=digest(run))

    def judge(self, run: str, score: float, comment: str | None, user_id: str | None) -> None:
        """A verdict on a run (its digest): for the graph, the ledger and the methods."""
        self.note(run, score, comment, user_id or None)
        self._tell(JudgedRun(run, score, comment, user_id or None))

    def by_model(self, run: str, score: float, comment: str, weight: float) -> bool:
        """A model's verdict; whether it stands. A person's, before or after, does not yield to it."""
        self.note(run, score, comment, None, weight=weight, judge=True)
        stands = self._evidence.judge_of(run) > 0
        if stands:
            self._tell(JudgedRun(run, score, comment, None, weight))
        if stands and not self._evidence.judge_of(run):  # a person spoke while the methods were told
            self.tell_again(run, None)
        return stands

    def tell_again(self, run: str, user_id: str | None) -> None:
        """Tells the methods of the verdict that stands: it came while they were told of something else."""
        with self._evidence.lock:
            said = list(self._evidence.graph.runs[run])
            judge = self._evidence.judge_of(run)
        self._tell(JudgedRun(run, said[SCORE], said[COMMENT], user_id, judge))

    def note(
        self,
        run: str,
        score: float,
        comment: str | None,
        user_id: str | None,
        *,
        weight: float = 1.0,
        judge: bool = False,
    ) -> None:
        """A verdict for the graph and the ledger. Nobody named: it is by the one whose run it is, so that `forget`
        finds it.

        One of less weight (a share of a verdict on a whole thread) yields to one that is there, a model's to any
        person's, any model's to a person's.
        """
        evidence = self._evidence
        with evidence.lock:
            evidence.store.refresh()
            before, model = evidence.weight_of(run), evidence.judge_of(run) > 0
            if (before and judge and not model) or (weight < before and judge == model):
                return
            author = JUDGE if judge else user_digest(user_id) or evidence.graph.owner(run)
            record: Record = [Verdict(run, score, comment[:MAX_COMMENT] if comment else None, author, weight)]
            for each in self._listeners:
                record += each.verdict(run, score)
            record += self._ledger.judged(run, score, weight)
            evidence.apply(None, record)

    def _take_verdict(self, job: Job) -> None:
        said = job.payload
        self.judge(said["run"], said["score"], said["comment"], said["user_id"])

    def _tell(self, judged: JudgedRun) -> None:
        for each in self._listeners:
            self._evidence.quietly(f"{each.name} could not take in a run", partial(each.judged, judged))
