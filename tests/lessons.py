"""A sixth method for the contract suites: comments on runs that went wrong, shown at similar requests."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from langgraph_toolmem.extend import (
    Call,
    Core,
    EndedRun,
    Forgotten,
    Hit,
    JudgedRun,
    Method,
    RowKind,
    SearchHit,
    Section,
    Step,
    StepOutput,
    User,
    VectorItem,
)


class Lesson(NamedTuple):
    """What was asked for in a run, and what somebody said about it; "" while nobody complained."""

    run: str
    request: str
    comment: str


class LessonRows(RowKind[Lesson]):
    """Lessons are found by the request."""

    name = "lesson"

    def row(self, item: Lesson) -> VectorItem:
        return VectorItem(item.run, item.request, {"comment": item.comment})

    def item(self, row: Hit) -> Lesson:
        return Lesson(row.id, row.text, row.metadata["comment"])


class LessonStep(Step["Lessons"]):
    """Tells the lessons of similar requests, once per user turn."""

    role: ClassVar[str] = "lessons"
    about: ClassVar[str] = "tells what people said about similar requests that went wrong; calls no model"
    scope = "turn"

    def compute(self, call: Call) -> StepOutput:
        """The lessons near to what is asked for; the ledger notes that they are shown."""
        run, user = self.core.read(call.messages, call.thread_id), self.core.users.of(call.user_id)
        found = self.method.near(run.request, user)
        shown: dict[str, str | None] = {each.id: None for each in found}
        self.core.ledger.shown("lessons", shown, run=run.digest, user_id=call.user_id)
        lines = [f'- About "{each.item.request}" somebody said: "{each.item.comment}"' for each in found]
        return StepOutput("\n".join(["Similar requests went wrong before:", *lines]) if lines else "")


class Lessons(Method):
    """The method. `alike`: from which cosine on a request is similar."""

    name: ClassVar[str] = "lessons"
    steps: ClassVar[tuple[type[Any], ...]] = (LessonStep,)

    def __init__(self, alike: float = 0.3) -> None:
        self.alike = alike

    def open(self, core: Core) -> None:
        super().open(core)
        self.rows = core.rows(LessonRows())

    def near(self, request: str, user: User) -> list[SearchHit[Lesson]]:
        """The three lessons nearest to a request."""
        found = self.rows.near(request, user)
        return [each for each in found if each.item.comment and each.similarity >= self.alike][:3]

    def ended(self, ended: EndedRun) -> None:
        bad = ended.score is not None and ended.score < 0.5
        if (request := ended.run.request) and not self.core.read_only:
            self.rows.put([Lesson(ended.run.digest, request, (bad and ended.comment) or "")], ended.user)

    def judged(self, judged: JudgedRun) -> None:
        user = self.core.users.of(judged.user_id)
        comment = judged.comment if judged.score < 0.5 else None
        self.rows.put((each._replace(comment=comment or "") for each in self.rows.get([judged.run], user)), user)

    def forget(self, user: User, gone: Forgotten) -> int:
        return self.rows.forget(user, gone)

    def report(self) -> Section:
        sums = self.core.ledger.figures(self.name)
        shown, helped, hurt = sums["runs"], sums["helped"], sums["hurt"]
        words = f"Lessons were shown in {shown:,} runs; {helped:,} of these went well, {hurt:,} badly."
        return Section("Lessons", sums, (words,))
