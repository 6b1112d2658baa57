"""Random trials of the memory: hints that are withheld, and whole episodes that are held out.

**Hints.** Each hint is withheld at random now and then, and is kept only if it helps (`HintTrials`).

Once a method has shown enough hints, each of its items is withheld in a share of the episodes in which it would have
been shown. The draw depends on the method, the item and the episode only: it applies to all model calls of the episode,
and a replay draws the same. A withheld item keeps its room in the request, so that the draw does not affect other
items.

The outcome of an episode is its score, the model calls and the errors that came after the item's first draw. The effect
of an item is the difference between the means with and without it, in standard deviations of the outcome. A few draws
prove little, so an effect is estimated in three levels, each of them the prior of the next: all items of a method; all
items at one kind of request; the item at that kind of request. A level is normal around the one before it, with the
spread of `TrialSettings.spreads`.

The kind of a request is the last tool that the nearest past request called: it is known before the draw.

**Episodes.** A held-out episode runs without hints and shortcuts, so that the report can measure the memory's effect
(`Holdout`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

from langgraph_toolmem.base.caches import drop_oldest
from langgraph_toolmem.base.checks import is_share
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.text import digest, fraction_of
from langgraph_toolmem.core.ledger import ALL
from langgraph_toolmem.core.method import Section
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.events import Event, Forgotten, PlainRecord, Record, Verdict, plain_parts, record_parts
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Core, Evidence
    from langgraph_toolmem.graph.state import RunState
    from langgraph_toolmem.runs.run import Run, Turn


@dataclass(frozen=True, slots=True)
class TrialSettings:
    """The numbers of draws that decide on an item.

    Attributes:
        enough_shown: model turns, or runs, with hints of a method from which its items are withheld now and then.
        runs: episodes whose outcome may still change; counts of older ones are final.
        items: of a method with outcomes, for each kind of request; those drawn first are dropped.
        spreads: standard deviations of true effects: of a method, of a kind of request around it, of an item around
            that.
        sure: least probability of an effect's sign. Every episode is another test: at 0.975, without a least number of
            draws, 5 of 12 helpful hints of `benchmarks.hints` were lost (four seeds, all hints followed).
        least_withheld: episodes without an item, or without others at its kind of request, before it is judged.
        unlikely: probability of helping below which an item with enough trials is not worth its tokens.
        tried: episodes with an item that are enough trials.
        all_tried: the same for all items at a kind of request together, if each is shown too rarely.
        reported: effects in the report.
        held_out: episodes with a draw of `Holdout`; the oldest are dropped.
    """

    enough_shown: int = 100
    runs: int = 10_000
    items: int = 20_000
    spreads: tuple[float, float, float] = (0.2, 0.2, 0.4)
    sure: float = 0.99
    least_withheld: int = 15
    unlikely: float = 0.7
    tried: int = 400
    all_tried: int = 4_000
    reported: int = 10
    held_out: int = 20_000


# Chosen on the simulation of `benchmarks.hints`: if agents follow every hint, 9 of 9 harmful hints are gone after 107
# showings (median), and 9 of 9 helpful ones stay. If agents follow half of the hints, 6 of 9 helpful ones stay.
TRIAL_SETTINGS: Final = TrialSettings()

Standing = Literal["tried", "helps", "hurts", "idle"]
"""The result of the trial so far; an item that hurts or has no effect is no longer shown."""
Outcome = Literal["score", "errors", "calls"]
BETTER: Final[Mapping[Outcome, int]] = {"score": 1, "errors": -1, "calls": -1}
"""The direction that is better, in the order in which outcomes decide."""
_NORMAL: Final = NormalDist()
_ARM: Final = shapes.Scalar(frozenset({int, bool}), below=2)
"""1 if an item is shown, 0 if it is withheld."""


@dataclass(slots=True)
class HintsDrawn(Event):
    """Items of a method for a request: each is shown (1) or withheld (0) in this episode.

    Attributes:
        run: the episode.
        about: the kind of request; "" if unknown.
        items: the draws.
        calls, errors: of the episode before the draw.
    """

    kind = "hints_drawn"
    cells: ClassVar = {"items": shapes.RowsOf(_ARM)}
    method: str
    run: str
    about: str
    items: dict[str, int]
    calls: int
    errors: int
    user: str | None


@dataclass(slots=True)
class DrawnRunWent(Event):
    """A model turn of an episode with draws, and the number of its calls that failed."""

    kind = "drawn_run_went"
    run: str
    calls: int
    errors: int
    user: str | None


@dataclass(slots=True)
class ItemDraw(PlainRecord):
    """The draw of an item in an episode, with the episode's calls and errors before it."""

    shown: int
    calls: int
    errors: int


@dataclass(slots=True)
class DrawnRun(PlainRecord):
    """An episode with draws.

    Attributes:
        user: digest of its user; "" if unknown.
        about: the kind of its request.
        calls, errors: so far.
        score: None before any feedback.
        weight: of the score.
        draws: method -> item -> draw.
    """

    user: str = ""
    about: str = ""
    calls: int = 0
    errors: int = 0
    score: float | None = None
    weight: float = 0.0
    draws: dict[str, dict[str, ItemDraw]] = field(default_factory=dict)

    def to_plain(self) -> list[Any]:
        return [self.user, self.about, self.calls, self.errors, self.score, self.weight, plain_parts(self.draws)]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> DrawnRun:
        user, about, calls, errors, score, weight, draws = plain
        return cls(user, about, calls, errors, score, weight, record_parts(ItemDraw, draws))


@dataclass(slots=True)
class OutcomeSums:
    """Number, sum and sum of squares of an outcome over episodes. Feedback may count in part."""

    number: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    def add(self, part: float, value: float, sign: int) -> None:
        self.number += sign * part
        self.total += sign * part * value
        self.squares += sign * part * value * value

    def without(self, other: OutcomeSums) -> OutcomeSums:
        return OutcomeSums(self.number - other.number, self.total - other.total, self.squares - other.squares)


Arm: TypeAlias = dict[Outcome, OutcomeSums]


def _no_outcomes() -> Arm:
    return {outcome: OutcomeSums() for outcome in BETTER}


@dataclass(slots=True)
class TrialSums(PlainRecord):
    """The outcomes of the episodes without an item, and of those with it. On disk: one list of all numbers."""

    withheld: Arm = field(default_factory=_no_outcomes)
    shown: Arm = field(default_factory=_no_outcomes)

    @property
    def without_it(self) -> float:
        """The number of episodes without the item: of the model calls, which every episode has."""
        return self.withheld["calls"].number

    @property
    def with_it(self) -> float:
        """The number of episodes with the item."""
        return self.shown["calls"].number

    def without(self, part: TrialSums) -> TrialSums:
        left = TrialSums()
        for outcome in BETTER:
            left.withheld[outcome] = self.withheld[outcome].without(part.withheld[outcome])
            left.shown[outcome] = self.shown[outcome].without(part.shown[outcome])
        return left

    def to_plain(self) -> list[float]:
        plain: list[float] = []
        for sums in (*self.withheld.values(), *self.shown.values()):
            plain += [sums.number, sums.total, sums.squares]
        return plain

    @classmethod
    def from_plain(cls, plain: list[float]) -> TrialSums:
        loaded = cls()
        numbers = iter(plain)
        for sums in (*loaded.withheld.values(), *loaded.shown.values()):
            sums.number, sums.total, sums.squares = next(numbers), next(numbers), next(numbers)
        return loaded


class TrialTable(Table):
    """The draws of recent episodes, and the sums of all outcomes.

    Attributes:
        runs: by episode.
        sums: method -> kind of request -> item. ALL as kind of request, or as item, sums over the others.
    """

    name = "trials"
    parts: ClassVar = {
        "runs": shapes.RowsOf(
            shapes.RecordOf(
                (
                    shapes.TEXT,
                    shapes.TEXT,
                    shapes.WHOLE,
                    shapes.WHOLE,
                    shapes.OrNone(shapes.NUMBER),
                    shapes.NUMBER,
                    shapes.RowsOf(shapes.RowsOf(shapes.RecordOf((_ARM, shapes.WHOLE, shapes.WHOLE)))),
                )
            )
        ),
        "sums": shapes.RowsOf(shapes.RowsOf(shapes.RowsOf(shapes.numbers(6 * len(BETTER))))),
    }
    record_kinds: ClassVar = {"runs": DrawnRun, "sums": TrialSums}

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.runs: dict[str, DrawnRun] = {}
        self.sums: dict[str, dict[str, dict[str, TrialSums]]] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {HintsDrawn: self._draw, DrawnRunWent: self._go_on, Verdict: self._judge_again}

    def _run(self, run: str, user: str | None) -> DrawnRun:
        drawn = self.runs.get(run)
        if drawn is None:
            drawn = self.runs[run] = DrawnRun(user or "")
            drop_oldest(self.runs, TRIAL_SETTINGS.runs)
        return drawn

    def _draw(
        self, method: str, run: str, about: str, items: dict[str, int], calls: int, errors: int, user: str | None
    ) -> None:
        # Taken away, changed and counted again: the sums never hold an outcome twice.
        drawn = self._run(run, user)
        self._count(drawn, -1)
        drawn.about = drawn.about or about
        draws = drawn.draws.setdefault(method, {})
        for item, shown in items.items():
            draws.setdefault(item, ItemDraw(shown, calls, errors))
        self._count(drawn, 1)
        self._judge(run)

    def _go_on(self, run: str, calls: int, errors: int, user: str | None) -> None:
        drawn = self._run(run, user)
        self._count(drawn, -1)
        drawn.calls += calls
        drawn.errors += errors
        self._count(drawn, 1)

    def _judge_again(self, run: str, *_: object) -> None:
        self._judge(run)

    def _judge(self, run: str) -> None:
        drawn, feedback = self.runs.get(run), self.graph.verdict(run)
        if drawn is None or feedback is None:
            return
        self._count(drawn, -1)
        drawn.score, drawn.weight = feedback.score, feedback.weight
        self._count(drawn, 1)

    def _count(self, run: DrawnRun, sign: int) -> None:
        """Add an episode's outcome to the sums, or take it away.

        Items of one episode share its outcome, but their draws are independent, and so are their differences.
        """
        for method, items in run.draws.items():
            for item, draw in items.items():
                # A set: a request of unknown kind ("") is the same as ALL, and counts once.
                for about in {run.about, ALL}:
                    for key in (item, ALL):
                        sums = self._sums_of(method, about, key)
                        if draw.shown:
                            _add_outcome(sums.shown, run, draw, sign)
                        else:
                            _add_outcome(sums.withheld, run, draw, sign)

    def _sums_of(self, method: str, about: str, item: str) -> TrialSums:
        items = self.sums.setdefault(method, {}).setdefault(about, {})
        if item not in items:
            items[item] = TrialSums()
            if len(items) > TRIAL_SETTINGS.items:
                # The sums over all items are among the oldest, and must stay.
                del items[next(key for key in items if key not in (ALL, item))]
        return items[item]

    def forget(self, gone: Forgotten) -> int:
        for run, drawn in list(self.runs.items()):
            if gone.has(run, drawn.user):
                del self.runs[run]
        return 0


def _add_outcome(arm: Arm, run: DrawnRun, draw: ItemDraw, sign: int) -> None:
    """Add an episode's outcome since a draw to one arm, or take it away."""
    if run.score is not None:
        arm["score"].add(run.weight, run.score, sign)
    arm["errors"].add(1.0, run.errors - draw.errors, sign)
    arm["calls"].add(1.0, run.calls - draw.calls, sign)


class Estimate(NamedTuple):
    """An effect in standard deviations of the outcome, positive if the outcome is better with the item."""

    mean: float
    deviation: float

    @property
    def helps(self) -> float:
        """Return the probability that the item helps."""
        return _NORMAL.cdf(self.mean / self.deviation)


class Effect(NamedTuple):
    """The effect of an item at a kind of request.

    Attributes:
        shown, withheld: episodes with it and without.
        low, high: 95 % interval of the effect on the outcome that decides.
        outcome: the deciding outcome.
        standing: of the item.
    """

    method: str
    about: str
    item: str
    shown: float
    withheld: float
    outcome: Outcome
    value: float
    low: float
    high: float
    standing: Standing


def estimate(levels: Iterable[TrialSums | None], outcome: Outcome) -> Estimate:
    """Return the effect of the last of several levels, each of them the prior of the next.

    Args:
        levels: the sums of each level, without what the next level counts.
        outcome: which of the outcomes.
    """
    mean, variance = 0.0, 0.0
    for sums, spread in zip(levels, TRIAL_SETTINGS.spreads, strict=False):
        variance += spread * spread
        if sums is None:
            continue
        difference = _difference(sums.withheld[outcome], sums.shown[outcome])
        if difference is None:
            continue
        # The posterior of a normal prior (the level before, with its spread) and a normal observation.
        trust = variance / (variance + difference.variance)
        mean += trust * (BETTER[outcome] * difference.value - mean)
        variance *= 1 - trust
    return Estimate(mean, math.sqrt(variance))


class _Difference(NamedTuple):
    """A difference of means in standard deviations, and its variance."""

    value: float
    variance: float


def _difference(withheld: OutcomeSums, shown: OutcomeSums) -> _Difference | None:
    """Return the difference of an outcome's means with and without an item; None without two arms."""
    n0, n1 = withheld.number, shown.number
    if min(n0, n1) < 0.5:
        return None
    mean0, mean1 = withheld.total / n0, shown.total / n1
    total = withheld.squares + shown.squares - n0 * mean0 * mean0 - n1 * mean1 * mean1
    # Half an observation of a variance of 1/4 keeps few equal outcomes from looking certain.
    variance = (max(total, 0.0) + 0.125) / (n0 + n1 + 0.5)
    # In standard deviations of the outcome, a mean of n episodes has the variance 1/n.
    return _Difference((mean1 - mean0) / math.sqrt(variance), 1 / n0 + 1 / n1)


@dataclass(frozen=True, slots=True)
class TrialLevels:
    """The sums from which an effect is estimated, each without those of the next level; None without draws."""

    method: TrialSums | None
    kind: TrialSums | None
    item: TrialSums | None


class HintTrials:
    """Draws the hints to withhold, and decides which hints to keep.

    Args:
        core: of the memory.
        share: of the episodes in which an item is withheld; 0 means never.

    Raises:
        ConfigurationError: the share is not a number from 0 to below 1/2.
    """

    def __init__(self, core: Core, share: float) -> None:
        if not is_share(share) or share > 0.5:
            raise ConfigurationError(f"`withhold` must be a share from 0 to 0.5, got {share!r}.")
        self._core = core
        self._share = share
        self._table = core.register(TrialTable)

    # --- items to keep ---

    def kind_of(self, state: RunState) -> str:
        """Return the kind of a run's request: the last tool that the nearest past request called; "" if unknown."""
        cases = self._core.graph.cases
        with self._core.lock:
            for case in cases.alike(state):
                calls = cases.cases[case].calls
                if calls:
                    return calls[max(calls)].tool
        return ALL

    def standings(self, method: str, state: RunState, items: Iterable[str]) -> dict[str, Standing]:
        """Return the standing of items at a request."""
        if method not in self._table.sums:
            return {}
        about = self.kind_of(state)
        with self._core.lock:
            return {item: self._standing(method, about, item) for item in items}

    def _standing(self, method: str, about: str, item: str) -> Standing:
        settings = TRIAL_SETTINGS
        levels = self._levels(method, about, item)
        of_kind, own = levels.kind or TrialSums(), levels.item or TrialSums()
        if max(of_kind.without_it, own.without_it) < settings.least_withheld:
            return "tried"
        all_levels = (levels.method, levels.kind, levels.item)
        chances = {outcome: estimate(all_levels, outcome).helps for outcome in BETTER}
        for chance in chances.values():
            if chance >= settings.sure:
                return "helps"
            # More calls for a better score are not harmful.
            if chance <= 1 - settings.sure and chances["score"] <= 0.5:
                return "hurts"
        if max(chances.values()) < settings.unlikely and _is_tried_enough(of_kind, own):
            return "idle"
        return "tried"

    def _levels(self, method: str, about: str, item: str) -> TrialLevels:
        kinds = self._table.sums.get(method, {})
        of_kind = kinds.get(about, {})
        own, kind, whole = of_kind.get(item), of_kind.get(ALL), kinds.get(ALL, {}).get(ALL)
        rest: TrialSums | None = None
        if about != ALL:
            rest = _less(whole, kind)
        return TrialLevels(rest, _less(kind, own), own)

    # --- draws ---

    def draw(self, method: str, run: Run, state: RunState, items: Iterable[str], user: str | None) -> set[str]:
        """Return the items that are withheld in an episode, and record the draws.

        Args:
            method: owner of the items.
            run: the present run.
            state: of the run.
            items: their keys, as they would be shown.
            user: digest of the user, if known.
        """
        items = list(items)
        if not items or not self._on(method):
            return set()
        name, core = run.digest, self._core
        with core.lock:
            drawn = self._table.runs.get(name) or DrawnRun()
            # Draws of earlier model calls stay valid: an item must not appear and disappear within an episode.
            before = drawn.draws.get(method, {})
            shown = {item: draw.shown for item, draw in before.items()}
            new = {item: self._shows(method, item, name) for item in items if item not in shown}
            if new:
                about = drawn.about or self.kind_of(state)
                user = user or core.graph.owner(name)
                draws = HintsDrawn(method, name, about, new, drawn.calls, drawn.errors, user)
                core.apply(None, [draws], user=user, run=name)
            shown |= new
            return {item for item in items if not shown[item]}

    def _on(self, method: str) -> bool:
        if self._share == 0 or self._core.read_only:
            return False
        figures = self._core.ledger.figures(method)
        return max(figures["shown"], figures["runs"]) >= TRIAL_SETTINGS.enough_shown

    def _shows(self, method: str, item: str, run: str) -> int:
        """Return 0 if an item is withheld in an episode, otherwise 1."""
        return int(fraction_of("withhold", method, item, run) >= self._share)

    def went(self, run: str, turn: Turn) -> Record:
        """Return the record of a model turn of an episode with draws. The caller holds the lock."""
        drawn = self._table.runs.get(run)
        if drawn is None or turn.chosen_by != "model":
            return []
        errors = sum(step.status == "failed" for step in turn.steps)
        return [DrawnRunWent(run, 1, errors, drawn.user or None)]

    # --- the report ---

    def effects(self) -> Iterator[Effect]:
        """Yield the effects of all items with draws, by method and kind of request; ALL: of all items there."""
        with self._core.lock:
            for method, kinds in self._table.sums.items():
                for about, items in kinds.items():
                    # With kinds of requests, the sums over them are only the prior of each.
                    if about == ALL and len(kinds) > 1:
                        continue
                    for item in items:
                        yield self._effect(method, about, item)

    def _effect(self, method: str, about: str, item: str) -> Effect:
        known = self._levels(method, about, item)
        levels = [known.method, known.kind, known.item]
        if item == ALL:
            # The item is the kind of request: there is no level between.
            levels = [known.method, known.item]
        decides: Outcome = next(iter(BETTER))
        for outcome in BETTER:
            chance = estimate(levels, outcome).helps
            if not 1 - TRIAL_SETTINGS.sure < chance < TRIAL_SETTINGS.sure:
                decides = outcome
                break
        mean, deviation = estimate(levels, decides)
        margin = _NORMAL.inv_cdf(0.975) * deviation
        own = known.item or TrialSums()
        standing: Standing = "tried"
        if item != ALL:
            standing = self._standing(method, about, item)
        return Effect(
            method=method,
            about=about,
            item=item,
            shown=own.with_it,
            withheld=own.without_it,
            outcome=decides,
            value=mean,
            low=mean - margin,
            high=mean + margin,
            standing=standing,
        )

    def report(self) -> Section | None:
        """Return how many hints are kept, and the effects with most trials; None before the first draw."""
        effects = sorted(self.effects(), key=_draws, reverse=True)
        if not effects:
            return None
        items: list[Effect] = []
        pools: list[Effect] = []
        counts = {"tried": 0, "helps": 0, "hurts": 0, "idle": 0}
        for effect in effects:
            if effect.item == ALL:
                pools.append(effect)
            else:
                items.append(effect)
                counts[effect.standing] += 1
        sentences = [
            f"Hints on trial: {counts['helps']:,} help, {counts['hurts']:,} hurt and {counts['idle']:,} do nothing "
            f"(both are no longer shown), {counts['tried']:,} are undecided."
        ]
        sentences += [_in_words(effect) for effect in pools[: TRIAL_SETTINGS.reported]]
        listed = (*pools, *items)[: 10 * TRIAL_SETTINGS.reported]
        figures = {**counts, "effects": [effect._asdict() for effect in listed]}
        return Section("Hints on trial", figures, tuple(sentences))


def _draws(effect: Effect) -> float:
    return effect.shown + effect.withheld


def _in_words(effect: Effect) -> str:
    about = f" at requests that end with {effect.about}" if effect.about else ""
    return (
        f"Hints of {effect.method}{about}: {effect.outcome} better by {effect.value:+.2f} standard deviations "
        f"with them ({effect.low:+.2f} to {effect.high:+.2f}; shown in {effect.shown:,.0f} episodes, withheld in "
        f"{effect.withheld:,.0f})."
    )


def _is_tried_enough(of_kind: TrialSums, own: TrialSums) -> bool:
    settings = TRIAL_SETTINGS
    return own.with_it >= settings.tried or of_kind.with_it >= settings.all_tried


def _less(whole: TrialSums | None, part: TrialSums | None) -> TrialSums | None:
    if whole is None or part is None:
        return whole
    return whole.without(part)


# --- held-out episodes ---

HELD_OUT: Final = "this episode is held out, to see what the memory is worth: the model is asked"


@dataclass(slots=True)
class EpisodeSpent(Event):
    """A model call of an episode with the memory (held: 0) or held out (1), and its tokens; calls is 0 as it begins."""

    kind = "episode_spent"
    run: str
    held: int
    calls: int
    tokens: int


@dataclass(slots=True)
class SpentEpisode(PlainRecord):
    """The model calls and tokens of an episode with the memory (held: 0) or held out (1)."""

    held: int
    calls: int = 0
    tokens: int = 0


class HoldoutTable(Table):
    """``episodes`` in which the memory was asked, or would have been."""

    name = "holdout"
    parts: ClassVar = {"episodes": shapes.RowsOf(shapes.ListOf(shapes.WHOLE, (3,)))}
    record_kinds: ClassVar = {"episodes": SpentEpisode}

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.episodes: dict[str, SpentEpisode] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {EpisodeSpent: self._spend}

    def _spend(self, run: str, held: int, calls: int, tokens: int) -> None:
        spent = self.episodes.setdefault(run, SpentEpisode(held))
        spent.calls += calls
        spent.tokens += tokens
        drop_oldest(self.episodes, TRIAL_SETTINGS.held_out)

    def forget(self, gone: Forgotten) -> int:
        for run in gone.runs:
            self.episodes.pop(run, None)
        return 0


class Episode(NamedTuple):
    """An episode: True if it was held out, its model calls and tokens (in and out), and its score, if any."""

    held: bool
    calls: int
    tokens: int
    score: float | None


class Holdout:
    """A draw of a share of the episodes by their identity: every process draws the same."""

    def __init__(self, evidence: Evidence, share: float) -> None:
        if not is_share(share) or share == 1:
            raise ConfigurationError(f"`holdout` must be a share of the episodes from 0 to below 1, got {share!r}.")
        self._evidence, self._share = evidence, share
        self._table = evidence.register(HoldoutTable)

    @property
    def on(self) -> bool:
        return self._share > 0

    def draws(self, run: str) -> bool:
        """Return True if an episode is held out."""
        return fraction_of("holdout", 0, run) < self._share

    def begins(self, run: Run) -> bool:
        """Return True if the last episode of a history is held out; record once that the memory was asked."""
        name, evidence = run.digest, self._evidence
        with evidence.lock:
            # A drawn episode is not drawn again, also after the share was changed.
            known = self._table.episodes.get(name)
            if known is not None:
                return bool(known.held)
            drawn = self.draws(name)
            if not evidence.read_only:
                evidence.apply(digest("held", name), [EpisodeSpent(name, int(drawn), 0, 0)], run=name)
        return drawn

    def spent(self, run: str, turn: Turn) -> Record:
        """Return the record of a model turn's calls and tokens. The caller holds the lock."""
        known = self._table.episodes.get(run)
        if known is None or turn.chosen_by != "model":
            return []
        return [EpisodeSpent(run, known.held, 1, turn.input_tokens + turn.output_tokens)]

    def episodes(self) -> Iterator[Episode]:
        for name, spent in self._table.episodes.items():
            yield Episode(bool(spent.held), spent.calls, spent.tokens, self._evidence.graph.score(name))
