"""`make_tasks`: requests to the office in random order, each with a checker of the final state."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from .check import Change, state_is_right
from .kinds import KINDS
from .office import Office
from .plan import Call, Direct, Kind, Slots, World

LEAST = 2  # times that every kind comes up, where there is room


@dataclass(frozen=True)
class Task:
    """One request to a fresh office.

    Attributes:
        id: "t001" and so on, in order.
        kind: name of the kind.
        request: what the user writes.
        seed: the office's seed; reset it to this before the task.
        slots: what varies in the request.
        expected: the changes that solve it.
    """

    id: str
    kind: str
    request: str
    seed: int
    slots: Slots = field(repr=False)
    expected: tuple[Change, ...] = field(repr=False)
    _world: World = field(repr=False, compare=False)

    def checker(self, office: Office) -> bool:
        """Whether the office's state is what it should be after this task, and nothing else has changed."""
        return state_is_right(self._world.database, office.state(), self.expected)

    def script(self) -> list[Call]:
        """The ideal calls, found by carrying out the plan on an office of its own."""
        do = Direct(Office(self.seed).tools())
        next(kind for kind in KINDS if kind.name == self.kind).plan(do, self.slots)
        return do.calls


def make_tasks(n: int = 200, seed: int = 0, *, office_seed: int = 0) -> list[Task]:
    """Tasks of all kinds in random order.

    As in a real office some kinds come up often and some rarely (`Kind.weight`); with 200 tasks each of the
    kinds comes up at least twice.

    Args:
        n: how many.
        seed: seed of kinds, order, wordings and entities.
        office_seed: seed of the office they are about.
    """
    rng = random.Random(seed)
    world = World(office_seed)
    kinds = [kind for kind in KINDS for _ in range(min(LEAST, n // len(KINDS)))]
    kinds += rng.choices(KINDS, [kind.weight for kind in KINDS], k=n - len(kinds))
    rng.shuffle(kinds)
    tasks: list[Task] = []
    seen: Counter[str] = Counter()
    for number, kind in enumerate(kinds, start=1):
        task = _make(f"t{number:03}", kind, rng, world)
        # Nobody asks for the very same thing all day: draw again a few times when a text repeats.
        for _ in range(5):
            if not seen[task.request]:
                break
            task = _make(task.id, kind, rng, world)
        seen[task.request] += 1
        tasks.append(task)
    return tasks


def _make(task_id: str, kind: Kind, rng: random.Random, world: World) -> Task:
    slots = kind.pick(rng, world)
    request = rng.choice(kind.wordings).format(**slots)
    return Task(task_id, kind.name, request, world.seed, slots, tuple(kind.expect(world, slots)), world)
