"""Does a memory live through damaged files of its vector index?

    python -m benchmarks.damage
    python -m benchmarks.damage --damages 1000 --seed 7 --json damages.json

A folder with two indexes is filled, each time one file of one index is damaged, and a process of its own opens it,
searches for texts that are there, reads all rows, writes one and closes; then another one does. Three folders take
turns: one that was closed, one whose process was killed after it wrote, and one whose notes are lost.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from langchain_core.embeddings import Embeddings

from langgraph_toolmem.search.embedders import resolve_embedder
from langgraph_toolmem.stores.hnsw_files import FILES
from langgraph_toolmem.stores.integrity import NOTE, set_aside
from langgraph_toolmem.stores.vectors import VectorItem, VectorStore

ROWS: Final = 2600
LEFT: Final = ROWS - 100
"""A hundred rows are deleted again."""
ASKED: Final = 60
"""Texts that are searched for."""
NUMBERS: Final = 24
SECONDS: Final = 60
"""A process that takes longer hangs."""
OWNERS: Final = ("me", "you")
FOLDERS: Final = ("closed", "killed", "without notes")


class Hashed(Embeddings):
    """An embedder that is the same everywhere: a text's hash as numbers."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Numbers between -1 and 1."""
        digests = (blake2b(text.encode(), digest_size=NUMBERS).digest() for text in texts)
        return [[byte / 127.5 - 1 for byte in digest] for digest in digests]

    def embed_query(self, text: str) -> list[float]:
        """As `embed_documents`."""
        return self.embed_documents([text])[0]


def namespace(owner: str) -> tuple[str, ...]:
    """Of a user's texts."""
    return "toolmem", owner


def store(folder: Path, owner: str) -> VectorStore:
    """A user's texts in that folder."""
    return VectorStore(folder, embedder=resolve_embedder(Hashed()), namespace=namespace(owner))


def items(rows: Iterable[int], owner: str, wording: str = "text {} of {}") -> list[VectorItem]:
    """A user's rows; each user has other texts."""
    return [VectorItem(f"row-{row}", wording.format(row, owner), {"row": row}) for row in rows]


def fill(folder: Path, kill: int) -> None:
    """Two indexes of `LEFT` rows; with `kill`, this process ends without closing them."""
    with store(folder, "me") as mine:
        for owner in OWNERS:
            mine.scoped(namespace(owner)).upsert("entries", items(range(ROWS // 2), owner, "first {} of {}"))
    with store(folder, "me") as mine:
        for owner in OWNERS:
            each = mine.scoped(namespace(owner))
            each.upsert("entries", items(range(ROWS), owner))
            each.delete("entries", [f"row-{row}" for row in range(LEFT, ROWS)])
        if kill:
            os._exit(0)


def look(folder: Path, seed: int) -> dict[str, Any]:
    """What a process sees in the folder; it writes and closes too."""
    wrong, lost = 0, 0
    with store(folder, "me") as mine:
        for owner in OWNERS:
            each = mine.scoped(namespace(owner))
            expected = {item.id: item.text for item in items(range(LEFT), owner)}
            for key in random.Random(seed).sample(sorted(expected), ASKED):
                wrong += [hit.id for hit in each.query("entries", expected[key], k=1)] != [key]
            wrong += len(each.query("entries", "anything", k=10)) != 10
            lost += {hit.id: hit.text for hit in each.get("entries")} != expected
            each.upsert("entries", items([ROWS], owner))
            wrong += [hit.id for hit in each.query("entries", f"text {ROWS} of {owner}", k=1)] != [f"row-{ROWS}"]
            each.delete("entries", [f"row-{ROWS}"])
            lost += each.count("entries") != LEFT
    return {"wrong": wrong, "lost": lost, "set_aside": len(set_aside(folder))}


def child(what: Callable[[Path, int], object], folder: Path, number: int) -> None:
    """`fill` or `look` in a process of its own, which leaves what it saw and said beside the folder."""
    logging.basicConfig(level=logging.WARNING, filename=folder.with_suffix(".log"))
    folder.with_suffix(".json").write_text(json.dumps(what(folder, number)))


def in_child(what: Callable[[Path, int], object], folder: Path, number: int) -> str:
    """How the process ended: "well", "crash", "hang" or "error"."""
    # Processes are forked from one that has imported Chroma, and never opened it.
    methods = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if "forkserver" in methods:
        context.set_forkserver_preload(["chromadb", "langgraph_toolmem.stores.vectors"])
    process = context.Process(target=child, args=(what, folder, number))
    process.start()
    process.join(SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
        return "hang"
    return "crash" if process.exitcode < 0 else "error" if process.exitcode else "well"


# -- damages: each changes one file --


def _cut(file: Path, chance: random.Random, _: Path) -> None:
    os.truncate(file, chance.choice([0, chance.randrange(file.stat().st_size), file.stat().st_size - 1]))


def _flip(file: Path, chance: random.Random, _: Path) -> None:
    data = bytearray(file.read_bytes())
    for _n in range(chance.choice([1, 1, 1, 8, 64])):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)


def _over(file: Path, chance: random.Random, filling: Callable[[int], bytes]) -> None:
    data = bytearray(file.read_bytes())
    start = chance.randrange(len(data))
    size = min(len(data) - start, chance.choice([4, 16, 512, 4096, 65536]))
    data[start : start + size] = filling(size)
    file.write_bytes(data)


def _zero(file: Path, chance: random.Random, _: Path) -> None:
    _over(file, chance, bytes)


def _garbage(file: Path, chance: random.Random, _: Path) -> None:
    _over(file, chance, chance.randbytes)


def _remove(file: Path, _: random.Random, __: Path) -> None:
    file.unlink()


def _swap(file: Path, chance: random.Random, other: Path) -> None:
    shutil.copy(other / chance.choice([file.name, file.name, *FILES]), file)


def _longer(file: Path, chance: random.Random, _: Path) -> None:
    with file.open("ab") as opened:
        opened.write(chance.randbytes(chance.choice([1, 4, 4096])))


DAMAGES: Final[dict[str, Callable[[Path, random.Random, Path], None]]] = {
    "cut off": _cut,
    "bits flipped": _flip,
    "zeros": _zero,
    "garbage": _garbage,
    "removed": _remove,
    "another's file": _swap,
    "longer": _longer,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a damage.

    Attributes:
        folder: which of `FOLDERS`.
        ended: "well", "crash", "hang" or "error".
        noticed: whether the index was set aside.
        lost: rows were missing, or had another text.
        wrong: searches that did not find the text they asked for.
        said: what the processes logged.
    """

    seed: int
    folder: str
    damage: str
    file: str
    ended: str = "well"
    noticed: bool = False
    lost: bool = False
    wrong: int = 0
    said: str = ""

    @property
    def is_good(self) -> bool:
        """Nothing was lost, and nobody was stopped."""
        return self.ended == "well" and not self.lost


def templates(where: Path) -> None:
    """The folders that are damaged, made once."""
    closed, killed, without = (where / name for name in FOLDERS)
    for folder, kill in (closed, 0), (killed, 1):
        in_child(fill, folder, kill)
    shutil.copytree(closed, without)
    (without / NOTE).unlink()


def segments(folder: Path) -> list[Path]:
    """Folders of the indexes that were written."""
    return sorted(file.parent for file in (folder / "chroma").glob(f"*/{FILES[-1]}"))


def one(where: Path, seed: int) -> Outcome:
    """One damage to a copy of a folder of `templates`; the seed says which. Two processes look, one after the other."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(dir=where) as place:
        folder = Path(place) / "memory"
        shutil.copytree(where / FOLDERS[seed % len(FOLDERS)], folder)
        segment, other = chance.sample(segments(folder), 2)
        file, damage = segment / chance.choice(FILES), chance.choice(list(DAMAGES))
        DAMAGES[damage](file, chance, other)
        found = Outcome(seed, FOLDERS[seed % len(FOLDERS)], damage, file.name)
        for _ in range(2):
            ended = in_child(look, folder, seed)
            said = folder.with_suffix(".log").read_text()
            if ended != "well":
                return replace(found, ended=ended, said=said)
            seen = json.loads(folder.with_suffix(".json").read_text())
            found = replace(
                found,
                noticed=seen["set_aside"] > 0,
                lost=found.lost or seen["lost"] > 0,
                wrong=found.wrong + seen["wrong"],
                said=said,
            )
        return found


def run(where: Path, seeds: Sequence[int], processes: int) -> Iterator[Outcome]:
    """Each damage's outcome, in the seeds' order."""
    with ThreadPoolExecutor(processes) as pool:
        yield from pool.map(lambda seed: one(where, seed), seeds)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--damages", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the first damage; the others follow")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as place:
        templates(Path(place))
        for outcome in run(Path(place), range(options.seed, options.seed + options.damages), options.processes):
            outcomes.append(outcome)
            if not outcome.is_good or outcome.wrong:
                print(f"\n{outcome}", file=sys.stderr)
            print(f"\r{len(outcomes)} of {options.damages}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print("| folder | damages | crashes | hangs | errors | rows lost | answers wrong | noticed |")
    print("|---|---|---|---|---|---|---|---|")
    for name in (*FOLDERS, "all"):
        of = [each for each in outcomes if name in (each.folder, "all")]
        ends = Counter(each.ended for each in of)
        figures = [len(of), ends["crash"], ends["hang"], ends["error"]]
        figures += [sum(each.lost for each in of), sum(each.wrong > 0 for each in of), sum(each.noticed for each in of)]
        print("| " + " | ".join([name, *map(str, figures)]) + " |")
    holds = all(each.is_good for each in outcomes)
    print(f"\nno process ends or hangs, and no row is lost: {'holds' if holds else 'MISSED'}")
    right = all(not each.wrong for each in outcomes if each.folder == FOLDERS[0])
    print(f"after a clean close every search finds what it asks for: {'holds' if right else 'MISSED'}")
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
