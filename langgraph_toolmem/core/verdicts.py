"""Verdicts on episodes: from the agent at its end, or later, from whatever process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf, nextafter
from typing import Final

from langgraph_toolmem.base.checks import is_share
from langgraph_toolmem.base.errors import ConfigurationError, NamespaceError
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.core.episodes import Episodes
from langgraph_toolmem.core.evidence import Evidence
from langgraph_toolmem.core.jobs import Jobs
from langgraph_toolmem.core.method import JudgedRun, Listener
from langgraph_toolmem.core.users import user_digest
from langgraph_toolmem.graph.operations import Record, Verdict, precedence
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
        jobs: carry verdicts from process to process.
        listeners: the methods, in their order.
    """

    def __init__(self, evidence: Evidence, episodes: Episodes, jobs: Jobs, listeners: Sequence[Listener]) -> None:
        self._evidence, self._episodes = evidence, episodes
        self._jobs, self._listeners = jobs, listeners
        evidence.graph.overruled.clear()  # while the folder was read
        evidence.at_refresh = self._catch_up
        if not evidence.read_only:
            jobs.handle(VERDICT, self._take_verdicts)

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
        if evidence.read_only and self._jobs.queue.folder is None:
            raise ConfigurationError("A read-only memory without a folder has nowhere to leave a verdict.")
        evidence.refresh(at_once=True)
        with evidence.lock:
            run = self._episodes.named(thread_id, episode, self.others(thread_id, user_id))
        if evidence.users.apart and not user_id and self._jobs.queue.place_of(run)[0] is None:
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
        user = user_digest(user_id or None) or self._jobs.queue.place_of(run)[1] or evidence.known_owner(run)
        self._jobs.put(VERDICT, said, run=run, user=user, line=digest(run))

    def judge(self, run: str, score: float, comment: str | None, user_id: str | None) -> None:
        """A verdict on a run (its digest): for the graph, the ledger and the methods."""
        self.note(run, score, comment, user_id or None)
        self._tell(JudgedRun(run, score, comment, user_id or None))

    def tell_again(self, run: str, user_id: str | None) -> None:
        """Tells the methods of the verdict that stands: it came while they were told of something else."""
        with self._evidence.lock:
            stands = self._evidence.graph.verdict(run)
        if stands is not None:
            self._tell(JudgedRun(run, stands[0], stands[1], user_id))

    def _catch_up(self) -> None:
        """Tells the methods of verdicts of other workers that took the place of those they were told of."""
        evidence = self._evidence
        if evidence.graph.overruled:
            with evidence.lock:
                runs = sorted(evidence.graph.overruled)
                evidence.graph.overruled.clear()
            for run in runs:
                self.tell_again(run, None)

    def note(
        self,
        run: str,
        score: float,
        comment: str | None,
        user_id: str | None,
        *,
        weight: float = 1.0,
    ) -> None:
        """A verdict for the graph. Nobody named: it is by the one whose run it is, so that `forget`
        finds it.

        It is later than any that is known here, whatever the clocks say; `precedence` decides whether it stands.
        """
        evidence = self._evidence
        with evidence.lock:
            evidence.store.refresh()
            stands = evidence.graph.verdict(run)
            when = evidence.now() if stands is None else max(evidence.now(), nextafter(stands[-1], inf))
            author = user_digest(user_id) or evidence.graph.owner(run)
            said = score, comment[:MAX_COMMENT] if comment else None, author, weight, when
            if stands is not None and precedence(*said) < precedence(*stands):
                return
            record: Record = [Verdict(run, *said)]
            for each in self._listeners:
                record += each.verdict(run, score)
            evidence.apply(None, record, user=author, run=run)
            evidence.graph.overruled.discard(run)  # the methods are told of this one

    def _take_verdicts(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            said = job.payload
            self.judge(job.run, said["score"], said["comment"], said["user_id"])

    def _tell(self, judged: JudgedRun) -> None:
        for each in self._listeners:
            self._evidence.quietly(f"{each.name} could not take in a run", partial(each.judged, judged))
