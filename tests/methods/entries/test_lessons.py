"""Lessons: eight equal mistakes are one critic's call and one line; undone, retired, shared, forgotten, killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import histories as h
import pytest

from langgraph_toolmem import ConfigurationError, Entries, NamespaceError, ToolMemory
from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.core.users import user_digest
from langgraph_toolmem.entries.critique import Critique
from langgraph_toolmem.entries.entry import Entry
from langgraph_toolmem.entries.lesson import Lesson
from langgraph_toolmem.entries.recollection import Recollection
from langgraph_toolmem.entries.render import to_prompt

NAMES = ("Ann", "Ben", "Cleo", "Dora", "Emil", "Finn", "Gita", "Hugo")
PER_USER = ("toolmem", "{user_id}")
TOOLS = [h.schema("send_mail", "to"), h.schema("find_person", "name")]


class Critic:
    """Counts; names the first value of the run, as careless critics do."""

    def __init__(self, instead: str = "Look the address up first.") -> None:
        self.asked: list[str] = []
        self.instead = instead

    def __call__(self, entry: Entry, similar: Sequence[Entry], /) -> Critique:
        self.asked.append(entry.query)
        return Critique(went_wrong=f"The mail went to {entry.calls[0].args['to']}.", call=1, instead=self.instead)


def mail(whom: str, what: str = "send the weekly report to {}") -> list[Any]:
    return h.history(h.user(what.format(whom)), h.call("send_mail", {"to": whom}), h.words())


def fail(memory: ToolMemory, names: Sequence[str] = NAMES, user: str | None = None, **verdict: Any) -> None:
    for name in names:
        memory.finish(mail(name), thread_id=f"{user}-{name}", user_id=user, **{"success": False, **verdict})
    assert memory.flush()


def shown(memory: ToolMemory, user: str | None = None, whom: str = "Zoe") -> Recollection:
    return memory.entries.recollect(mail(whom)[:1], thread_id="new", user_id=user, budget=300)


def only(memory: ToolMemory, **where: Any) -> Lesson:
    [lesson] = memory.entries.lessons(**where)
    return lesson


def test_eight_equal_mistakes_are_one_critics_call_and_one_line() -> None:
    critic = Critic()
    with ToolMemory.ephemeral(methods=[Entries(critic=critic)]) as memory:
        fail(memory)
        prompt = to_prompt(shown(memory))
        lesson = only(memory)
        assert memory.entries.lessons(lesson.id, "nothing") == [lesson]
        entries = memory.entries.recall("send the weekly report to Zoe")
    assert critic.asked == ["send the weekly report to Ann"]
    assert prompt.count("Critique:") == prompt.count("Request:") == 1
    assert 'Request: "send the weekly report to Ann" (8 runs like it)' in prompt  # the run that the words are about
    assert "Look the address up first." in prompt
    assert (lesson.times, len(lesson.sources), lesson.failed, lesson.by_critic) == (8, 8, True, True)
    assert len(entries) == 8  # they are still there
    assert {entry.blamed for entry in entries} == {"send_mail"}  # preferences are counted as before


def test_successes_are_one_line_and_other_requests_calls_and_comments_stay_apart() -> None:
    with ToolMemory.ephemeral(methods=[Entries()]) as memory:
        fail(memory, NAMES[:3], success=True)
        fail(memory, NAMES[3:5], comment="not Dora but Dorothea was meant")
        fail(memory, NAMES[5:7], comment="far too late in the evening")
        memory.finish(mail("Ida", "what is the weather like in {}"), thread_id="w", success=False)
        assert memory.flush()
        lessons = {(each.failed, each.comment): each for each in memory.entries.lessons()}
        prompt = to_prompt(shown(memory))
    assert {key: each.times for key, each in lessons.items()} == {
        (False, ""): 3,
        (True, "not Dora but Dorothea was meant"): 2,
        (True, "far too late in the evening"): 2,
    }
    assert prompt.count("Request:") == 3
    assert "weather" not in prompt


def test_lessons_on_alike_requests_are_few() -> None:
    comments = ("too early", "wrong person", "no attachment here", "bad language used", "twice the same thing")
    with ToolMemory.ephemeral(methods=[Entries()]) as memory:
        for number, comment in enumerate(comments):
            fail(memory, [f"{name}{number}" for name in ("Kim", "Lea")], comment=comment)
        assert len(memory.entries.lessons()) == 3


def test_a_verdict_that_turns_takes_a_run_out() -> None:
    with ToolMemory.ephemeral(methods=[Entries()]) as memory:
        fail(memory, NAMES[:3], comment="the wrong address")
        memory.feedback("None-Ann", score=1.0)
        assert memory.flush()
        lesson = only(memory)
        assert (lesson.times, lesson.query, lesson.words) == (2, "send the weekly report to Ben", "the wrong address")
        good = [each for each in shown(memory).entries if each.entry.good]
        assert [(each.entry.query, each.lesson) for each in good] == [("send the weekly report to Ann", None)]


def test_a_lesson_is_undone_and_stays_so() -> None:
    critic = Critic()
    with ToolMemory.ephemeral(methods=[Entries(critic=critic)]) as memory:
        fail(memory, NAMES[:4])
        lesson = only(memory)
        with pytest.raises(InputError, match="no lesson"):
            memory.entries.lessons.undo("nothing")
        assert asyncio.run(memory.entries.lessons.aundo(lesson.id)).undone
        assert len(shown(memory).entries) == 4
        entries = memory.entries.recall("send the weekly report to Zoe")
        assert sorted(entry.wants_critique for entry in entries) == [False, True, True, True]
        fail(memory, NAMES[4:6])  # neither by these is it made again, nor do its critiques speak for them
        assert only(memory).undone
        assert len(shown(memory).entries) == 6
        assert len(critic.asked) == 3


def test_a_lesson_that_hurts_is_retired_with_its_runs() -> None:
    with ToolMemory.ephemeral(methods=[Entries()]) as memory:
        fail(memory, NAMES[:3])
        for number in range(6):
            found = memory.entries.recollect(mail(f"Zoe{number}")[:1], thread_id=f"z{number}", budget=300)
            assert len(found.entries) == 1
            memory.core.verdicts.judge(memory.core.read(mail(f"Zoe{number}")[:1], f"z{number}").digest, 0.0, None, None)
        lesson = only(memory)
        assert (lesson.recalled, lesson.helped, lesson.hurt, lesson.retired) == (6, 0, 6, True)
        assert shown(memory).entries == ()
        memory.entries.lessons.undo(lesson.id)
        assert len(shown(memory).entries) == 3


def test_what_is_forgotten_leaves_lessons_too(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, methods=[Entries(critic=Critic())], tools=TOOLS) as memory:  # one namespace for all
        fail(memory, NAMES[:3], "u")
        fail(memory, NAMES[3:6], "v")
        first, second = sorted(memory.entries.lessons(), key=lambda each: each.time)
        assert [each.user for each in (first, second)] == [user_digest("u"), user_digest("v")]
        assert {each.lesson.id for each in shown(memory, "v").entries if each.lesson} == {second.id}  # not u's
        for lesson in (first, second):
            memory.entries.lessons.share(lesson.id)
        team = only(memory, scope="team")
        assert (team.times, len(team.parts)) == (6, 2)
        memory.forget(user_id="u")
        assert only(memory).id == second.id
        left = only(memory, scope="team")
        assert (left.id, left.times, [part.id for part in left.parts]) == (team.id, 3, [second.id])
        memory.forget(user_id="v")
        assert memory.entries.lessons() == memory.entries.lessons(scope="team") == []
    held = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"The mail went to" not in held


def test_a_team_is_shown_lessons_without_any_value() -> None:
    critic = Critic("Do not trust kim or KIM-77; look the address of a person up with find_person first.")
    with ToolMemory.ephemeral(methods=[Entries(critic=critic)], namespace=PER_USER, tools=TOOLS) as memory:
        lessons = memory.entries.lessons
        fail(memory, ("kim", "kim's boss", "ann.lee@x.org"), "u")
        lesson = only(memory, user_id="u")
        assert lesson.scope == "user"  # never by default
        assert shown(memory, "w").entries == ()
        with pytest.raises(InputError, match="may be a value"):  # nobody else says such words: what is a name?
            lessons.share(lesson.id, user_id="u")
        assert lessons(scope="team") == []
        for name in ("Olga", "kim"):  # a name that two users know is no word of both
            memory.finish(mail(name), thread_id=f"v-{name}", user_id="v")
        assert memory.flush()
        team = lessons.share(lesson.id, user_id="u")
        assert team.query == "send the weekly report to <TEXT>"
        found = shown(memory, "w")
        [each] = found.entries
        prompt = to_prompt(found).lower()
        assert each.lesson is not None
        assert each.lesson.id == team.id
        assert "find_person first" in prompt
        assert "send_mail()" in prompt
        assert not [word for word in ("kim", "boss", "ann", "lee", "77", "x.org") if word in prompt]
        assert len(shown(memory, "u").entries) == 1  # to its user, their own
        with pytest.raises(NamespaceError):
            lessons.share(lesson.id)
        with pytest.raises(ConfigurationError, match="scope"):
            lessons.share(lesson.id, scope="all", user_id="u")  # type: ignore[arg-type]
        lessons.share(lesson.id, scope="user", user_id="u")
        assert shown(memory, "w").entries == ()


def test_a_users_own_words_are_no_lesson_for_a_team() -> None:
    with ToolMemory.ephemeral(methods=[Entries()], namespace=PER_USER, tools=TOOLS) as memory:
        fail(memory, NAMES[:3], "u", comment="send the report")
        fail(memory, NAMES[:3], "v", comment="send the report")
        with pytest.raises(InputError, match="own words"):
            memory.entries.lessons.share(only(memory, user_id="u").id, user_id="u")


KILLED = """
import os, signal, sys
from langgraph_toolmem import Entries, ToolMemory
from langgraph_toolmem.core.rows import Rows
from langgraph_toolmem.entries.critique import Critique

def critic(entry, similar):
    os.write(1, b"asked\\n")
    return Critique(went_wrong="The wrong person.", call=1, instead="Look the address up.")

plain, made = Rows.put, []
def put(self, items, user, **options):
    found = plain(self, items, user, **options)
    if self.kind.name == "lessons":
        os.kill(os.getpid(), signal.SIGKILL)  # written; its runs do not point to it yet
    return found
Rows.put = put

import histories as h
memory = ToolMemory(sys.argv[1], methods=[Entries(critic=critic)])
for name in ("Ann", "Ben", "Cleo", "Dora"):
    history = h.history(h.user(f"send the weekly report to {name}"), h.call("send_mail", {"to": name}), h.words())
    memory.finish(history, thread_id=f"None-{name}", success=False)
memory.flush()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_killed_in_the_middle_there_is_one_lesson(tmp_path: Path) -> None:
    where = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    child = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, env=where)
    assert child.returncode == -signal.SIGKILL, child.stderr
    critic = Critic()
    with ToolMemory(tmp_path, methods=[Entries(critic=critic)]) as memory:
        fail(memory, NAMES[:4])  # what was not acknowledged is said again
        lesson = only(memory)
        assert (lesson.times, len(lesson.sources), lesson.by_critic) == (4, 4, True)
        assert len(shown(memory).entries) == 1
    assert child.stdout.count("asked") + len(critic.asked) == 1
