"""Recipes: each app of docs/recipes does with the memory what it does without, with few lines and fewer model calls."""

from __future__ import annotations

import re
from typing import Any

import pytest
from langchain_core.messages import AIMessage, convert_to_messages
from openai_server import OpenAIStubServer

from benchmarks.recipes import (
    FOLDER,
    OPENAI,
    RECIPES,
    Outcome,
    Recipe,
    Shop,
    blocks_of,
    changed_lines,
    changes_of,
    run_page,
    with_option,
    without_memory,
)

ALL = {recipe.name: recipe for recipe in (*RECIPES, OPENAI)}
AGENTS = {"server": 4}
LONGEST = 40
REQUESTS = 36
OLD_AGENT = "create_react_agent has been moved"


def needed(recipe: Recipe) -> None:
    for package in recipe.needs:
        pytest.importorskip(package, reason=f"needs {package}")


def both(recipe: Recipe, option: str = "default", number: int = REQUESTS) -> tuple[Outcome, Outcome]:
    """Run a page without the memory and with it."""
    block, *later = blocks_of(recipe.name)
    plain = run_page(recipe, without_memory(block), number)
    return plain, run_page(recipe, with_option(block, option), number, later=later)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_recipe_does_what_the_plain_app_does_with_fewer_model_calls(
    recipe: Recipe, capsys: pytest.CaptureFixture[str]
) -> None:
    needed(recipe)
    plain, helped = both(recipe)
    assert len(plain.executions) >= REQUESTS
    assert helped.finals == plain.finals
    if recipe.parallel == 1:
        assert helped.executions == plain.executions
    assert sorted(helped.executions) == sorted(plain.executions)
    assert helped.asked < plain.asked
    assert [warning for warning in helped.warned if OLD_AGENT not in warning] == []
    if helped.report is not None:
        assert helped.report.problems == ()
        assert helped.report.wrong == 0
    CHECKS.get(recipe.name, looked_at)(helped.names, capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("option", ["context", "prefetch"])
@pytest.mark.parametrize("name", ["deepagents", "supervisor", "swarm", "notebook"])
def test_no_option_changes_what_is_done_or_answered(name: str, option: str) -> None:
    needed(ALL[name])
    plain, helped = both(ALL[name], option)
    assert changes_of(helped) == changes_of(plain)
    assert [final[-1] for final in helped.finals] == [final[-1] for final in plain.finals]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_recipe_of_openai_works_over_its_protocol(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needed(OPENAI)
    block, *later = blocks_of("openai")
    outcomes = []
    for code in (without_memory(block), block):
        shop = Shop()

        def reply(body: dict[str, Any], shop: Shop = shop) -> AIMessage:
            return shop.reply(named(convert_to_messages(body["messages"])), body.get("tools", []))

        with OpenAIStubServer(reply) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            monkeypatch.setenv("OPENAI_API_KEY", "unused")
            blocks = later if code is block else []
            outcomes.append(run_page(OPENAI, code, REQUESTS, later=blocks, shop=shop))
            for request in server.requests:
                assert "toolmem" not in str(request), "the provider gets no mark of the memory"
    plain, helped = outcomes
    assert helped.finals == plain.finals
    assert helped.executions == plain.executions
    assert helped.asked < plain.asked
    assert helped.warned == plain.warned
    assert re.search(r"Saved \d+ of \d+ model calls", capsys.readouterr().out)


AFTER = """
memory.flush()
first.observe([("user", "Hello"), ("assistant", "Hi.")], user_id="ann")
turns = first.report().turns
first.close()
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_cell_of_a_notebook_may_be_run_again() -> None:
    block = blocks_of("notebook")[0]
    plain = run_page(ALL["notebook"], without_memory(block), 9)
    helped = run_page(ALL["notebook"], f"{block}\nfirst = memory\n{block}", 9, later=[AFTER])
    assert helped.finals == plain.finals
    assert helped.warned == plain.warned
    assert helped.report is not None
    assert helped.report.problems == ()
    assert helped.names["turns"] > helped.asked, "the first memory knows what the second one learned"


def named(messages: list[Any]) -> list[Any]:
    """Give results the names of their calls, which OpenAI's protocol leaves out."""
    names = {call["id"]: call["name"] for message in messages for call in getattr(message, "tool_calls", ())}
    for message in messages:
        if message.type == "tool":
            message.name = names[message.tool_call_id]
    return messages


# --- pages ---


@pytest.mark.parametrize("name", ALL)
def test_a_page_is_short_and_changes_few_lines(name: str) -> None:
    page = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= LONGEST
    block = blocks_of(name)[0]
    changed = changed_lines(block)
    assert 0 < len(changed) <= 5
    agents = len(re.findall(r"create_(?:deep_)?agent\(|\"system_prompt\"", without_memory(block)))
    if agents and name not in ("server", "langmem"):  # a context schema and a store besides
        assert len(changed) <= 2 + agents
    assert "memory" not in re.sub(r"create_\w+_memory_tool|memories|langgraph\.\w+\.memory", "", without_memory(block))


def test_every_page_has_a_recipe_and_a_place_in_the_table_and_in_the_site() -> None:
    pages = {page.stem for page in FOLDER.glob("*.md")} - {"index"}
    assert pages == set(ALL)
    table = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\(([a-z-]+)\.md\)", table)) == pages
    site = (FOLDER.parents[1] / "mkdocs.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"recipes/([a-z-]+)\.md", site)) == pages | {"index"}


# --- after the requests ---


def looked_at(_: dict[str, Any], __: str) -> None:
    """Pages without a block of their own after the requests."""


def of_langmem(names: dict[str, Any], _: str) -> None:
    assert "refund_order" in names["found"], "the search of langmem finds a run"


def of_sentence_transformers(names: dict[str, Any], _: str) -> None:
    assert names["found"][0] == "refund_order"


def of_networkx(names: dict[str, Any], printed: str) -> None:
    assert names["before_refund"] >= {"find_customer", "list_orders"}
    assert re.search(r"list_orders.customer_id comes from \$\.customer_id of find_customer: \d", printed)


CHECKS = {"langmem": of_langmem, "sentence-transformers": of_sentence_transformers, "networkx": of_networkx}
