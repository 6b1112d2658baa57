"""The lessons of a memory: gathered in the background, shown in place of the runs they sum up, undone, shared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem.base.errors import ConfigurationError, InputError
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.base.twins import twin
from langgraph_toolmem.core.users import User
from langgraph_toolmem.entries.entry import Entry, entry_id
from langgraph_toolmem.entries.lesson import Lesson, LessonKind, Scope, lesson_of, of_team, renewed, said_alike
from langgraph_toolmem.entries.policy import RecallPolicy
from langgraph_toolmem.entries.recall import Recall
from langgraph_toolmem.entries.recollection import RecalledEntry
from langgraph_toolmem.entries.rows import EntryRows

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Core
    from langgraph_toolmem.core.rows import Rows
    from langgraph_toolmem.graph.operations import Forgotten
    from langgraph_toolmem.stores.job_queue import Job

LESSON: Final = "lesson"
"""The kind of jobs."""
PER_KIND: Final = 3
"""Lessons of a user on alike requests."""
BATCH: Final = 20
"""Runs that are looked at in one job."""
SAMPLE: Final = 2_000
"""Runs in which words are looked for that several users say."""


class Lessons:
    """What alike runs say together. ``lessons()`` is `find`.

    Args:
        core: of the memory.
        entries: the runs.
        recall: tells which are alike.
    """

    def __init__(self, core: Core, entries: EntryRows, recall: Recall) -> None:
        self._core, self._entries, self._recall = core, entries, recall
        self.rows: Rows[Lesson] = core.rows(LessonKind(), method=entries.method)

    # --- asked by a person ---

    def find(self, *ids: str, user_id: str | None = None, scope: Scope = "user") -> list[Lesson]:
        """The lessons with these ids that are there, or all; those that were undone or retired too.

        Args:
            ids: of lessons.
            user_id: whose lessons.
            scope: "team": those that all users are shown; nobody need be named.

        Raises:
            NamespaceError: the namespace needs a user id.
            StorageError: they cannot be read.
        """
        place = self._place(user_id, scope)
        return self.rows.get(ids, place) if ids else list(self.rows.all(place, retired=True))

    def undo(self, lesson_id: str, *, user_id: str | None = None, scope: Scope = "user") -> Lesson:
        """Takes a lesson back: its runs are shown by themselves again, as they were, and no lesson is made of them or
        of runs like them any more. What a team was shown of it goes too.

        Raises:
            InputError: there is no such lesson.
            NamespaceError, StorageError: as for `find`.
        """
        place = self._place(user_id, scope)
        found = self.rows.change([lesson_id], lambda lesson: replace(lesson, undone=True), place)
        if not found:
            raise _unknown(lesson_id)
        if scope == "user":
            uncovered = lambda entry: entry if entry.critique else replace(entry, critique_of="", blamed="")  # noqa: E731
            self._entries.change(map(entry_id, found[0].sources), uncovered, place)
            self.rows.forget_of(lesson_id, self._core.users.team)
        return found[0]

    def share(self, lesson_id: str, *, scope: Scope = "team", user_id: str | None = None) -> Lesson:
        """Marks a lesson as one that all users of the namespace may be shown: its words as they are now, masked.

        Two that are alike are one: `Lesson.parts`. A mark is taken back with ``scope="user"``.

        Args:
            lesson_id: of a user's lesson.
            scope: "team" or "user".
            user_id: whose it is.

        Returns:
            What the team is shown; with "user" the lesson itself.

        Raises:
            InputError: there is no such lesson, it was undone, or values of the user cannot be told from other words.
            NamespaceError, StorageError: as for `find`.
        """
        user, team = self._place(user_id, "user"), self._place(user_id, scope)
        lesson = next(iter(self.rows.get([lesson_id], user)), None)
        if lesson is None or lesson.undone:
            raise _unknown(lesson_id)
        self.rows.forget_of(lesson_id, self._core.users.team)
        if scope == "user":
            return lesson
        from langgraph_toolmem.entries.masking import masked

        runs = self._entries.get([entry_id(run) for run in lesson.sources], user)
        everybody = self._entries.sample(None if self._entries.apart else user, SAMPLE)
        part = masked(lesson, runs, everybody, self._core.catalogue.specs)
        fits = lambda other: (other.failed, other.tools, other.undone) == (part.failed, part.tools, False)  # noqa: E731
        near = self.rows.near(part.asked, team, fits=fits)
        same = next((each.lesson for each in self._recall.of_lessons(part.asked, near, user, RecallPolicy())), None)
        made = of_team([part, *(same.parts if same else ())], same) or part
        self.rows.put([made], team)
        return made

    __call__ = find
    afind, aundo, ashare = twin(find), twin(undo), twin(share)

    def _place(self, user_id: str | None, scope: Scope) -> User:
        if scope not in ("user", "team"):
            raise ConfigurationError(f"scope is 'user' or 'team', not {scope!r}.")
        return self._core.users.team if scope == "team" else self._core.users.of(user_id)

    # --- shown ---

    def in_place(
        self, query: str, found: Sequence[RecalledEntry], user: User, policy: RecallPolicy
    ) -> list[RecalledEntry]:
        """What is shown of the runs that are recalled: lessons in place of those that they sum up, and the team's."""
        ids = list(dict.fromkeys(each.entry.lesson for each in found if each.entry.lesson))
        known = {lesson.id: lesson for lesson in self.rows.get(ids, user)} if ids else {}
        # A critique may name values: it is shown with the run that it is about.
        runs = {each.entry.run: each.entry for each in found}
        away = [entry_id(lesson.words_of) for lesson in known.values() if lesson.words_of not in {"", *runs}]
        runs |= {entry.run: entry for entry in (self._entries.get(away, user) if away else ())}
        shown: list[RecalledEntry] = []
        seen: set[str] = set()
        for each in found:
            lesson = known.get(each.entry.lesson)
            if lesson is None or lesson.undone or lesson.failed != each.entry.failed:
                shown.append(each)
            elif lesson.id not in seen:
                seen.add(lesson.id)
                if not lesson.retired:
                    entry = lesson.told(runs.get(lesson.words_of, each.entry))
                    shown.append(replace(each, entry=entry, lesson=lesson))
        team = self._core.users.team
        if self.rows.count(team):
            fits = lambda each: not each.undone and seen.isdisjoint(part.id for part in each.parts)  # noqa: E731
            shown += self._recall.of_lessons(query, self.rows.near(query, team, fits=fits), user, policy)
        return sorted(shown, key=lambda each: -each.score)[: policy.max_n]

    def key(self, each: RecalledEntry, user: User) -> str:
        """The name of what is shown in the ledger."""
        lesson = each.lesson
        if lesson is None:
            return self._entries.key(each.entry.id, user)
        return self.rows.key(lesson.id, self._core.users.team if lesson.scope == "team" else user)

    # --- kept ---

    def ask(self, entries: Sequence[Entry], namespace: tuple[str, ...]) -> None:
        """Has runs with a verdict looked at in the background."""
        by_user: dict[str, list[str]] = {}
        for entry in entries:
            if entry.score is not None:
                by_user.setdefault(entry.user, []).append(entry.id)
        for user, ids in by_user.items():
            how: dict[str, Any] = {"user": user, "namespace": namespace, "line": digest(LESSON, *namespace)}
            for start in range(0, len(ids), BATCH):
                self._core.jobs.put(LESSON, {"entries": ids[start : start + BATCH]}, **how)

    def gather(self, job: Job) -> Callable[[], object] | None:
        """Looks at runs: each joins a lesson, makes one with others, or stays alone; done again, nothing changes.
        Returns what undoes it."""
        user = User(None, job.user or None, tuple(job.payload["namespace"]))
        for key in job.payload["entries"]:
            for entry in self._entries.get([key], user):
                self._gather(entry, user)
        return partial(self.rows.forget_of, job.user, user) if job.user else None

    def covering(self, entry: Entry, user: User) -> Entry | None:
        """A run that failed alike and has its critique, so that none need be asked for; None if there is none."""
        others = [each for each in self._recall.alike(entry, user) if each.critique and _same(entry, each)]
        if entry.comment:  # a word of the user that the critic did not have is worth another critique
            others = [each for each in others if each.comment]
        undone = {lesson.id for lesson in self._of([entry, *others], user).values() if lesson.undone}
        return next((each for each in others if each.lesson not in undone), None)

    def lost(self, runs: Collection[str], user: User) -> None:
        """Runs have no entry any longer: what they taught goes out of lessons."""
        for run in runs:
            for lesson in self.rows.of(run, user):
                self._renew(lesson, self._runs(lesson, user), user, times=lesson.times - 1)
            self.rows.forget_of(run, self._core.users.team)

    def forget(self, user: User, gone: Forgotten) -> int:
        """Removes a user's lessons, and the user's share in those of a team; or the share of runs. How many."""
        if not gone.user:
            of_team = 0 if gone.before is not None else self.rows.forget(self._core.users.team, gone)
            return self.rows.forget(user, gone) + of_team
        of_team = self.rows.forget_of(user.digest or "", self._core.users.team, scrub=True)
        return self.rows.forget(user) + of_team

    def _gather(self, entry: Entry, user: User) -> None:
        lesson = self._of([entry], user).get(entry.lesson)
        if lesson is not None and lesson.takes(entry):
            self._renew(lesson, self._runs(lesson, user), user)
            return
        if entry.lesson:
            self._point([entry], "", user)
        if lesson is not None:
            others = [each for each in self._runs(lesson, user) if each.id != entry.id]
            self._renew(lesson, others, user, times=lesson.times - 1)
        alike = self._recall.alike(entry, user)
        lessons = self._of(alike, user)
        # One that was killed had written the lesson, perhaps, but not yet which are its runs.
        begun = [each for each in self.rows.of(entry.run, user) if each.id != entry.lesson]
        known = {each.id: each for each in begun} | {
            each.lesson: lessons[each.lesson] for each in alike if each.lesson in lessons
        }
        for lesson in known.values():
            if lesson.takes(entry):
                runs = [
                    entry,
                    *(each for each in self._runs(lesson, user) if lesson.takes(each) and each.id != entry.id),
                ]
                self._point(runs, lesson.id, user)
                self._renew(lesson, runs, user, times=lesson.times + (entry.run not in lesson.sources))
                return
        free = [each for each in alike if each.lesson not in lessons and _same(entry, each)]
        if free and sum(not lesson.undone for lesson in lessons.values()) < PER_KIND:
            head = min([*free, entry], key=lambda each: (each.time, each.id))
            runs = [head, *(each for each in [*free, entry] if each.id != head.id and _same(head, each))]
            if len(runs) > 1:
                made = lesson_of(head, runs)
                self.rows.put([made], user)
                self._point(runs, made.id, user)

    def _renew(self, lesson: Lesson, runs: Sequence[Entry], user: User, *, times: int | None = None) -> None:
        """Makes a lesson anew of its runs as they are now; one without runs goes."""
        if runs:
            count = lesson.times if times is None else times
            self.rows.change([lesson.id], lambda old: renewed(old, runs, times=count), user)
        else:
            self.rows.remove([lesson.id], user)

    def _runs(self, lesson: Lesson, user: User) -> list[Entry]:
        return self._entries.get([entry_id(run) for run in lesson.sources], user)

    def _point(self, entries: Sequence[Entry], lesson_id: str, user: User) -> None:
        self._entries.change([each.id for each in entries], lambda entry: replace(entry, lesson=lesson_id), user)

    def _of(self, entries: Sequence[Entry], user: User) -> dict[str, Lesson]:
        ids = sorted({each.lesson for each in entries} - {""})
        return {lesson.id: lesson for lesson in self.rows.get(ids, user)} if ids else {}


def _same(one: Entry, other: Entry) -> bool:
    """Whether two alike requests ended alike."""
    same = (one.failed, one.user, one.tools) == (other.failed, other.user, other.tools)
    return same and said_alike(one.comment, other.comment)


def _unknown(lesson_id: str) -> InputError:
    return InputError(f"There is no lesson {lesson_id!r}: `lessons()` has their ids; one that was undone is no more.")
