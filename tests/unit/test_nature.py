"""What tools do to the world, by mark, name, description and parameters: no tool that changes something passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.types import Command

from langgraph_toolmem.runs.tools import ToolSpec, read_tools
from langgraph_toolmem.words.nature import change_in_text, nature_of

DATA = Path(__file__).parents[3] / "shared" / "data"


def spec(name: str, about: str = "", *params: str, **extra: Any) -> ToolSpec:
    properties = {p.partition(":")[0]: {"type": p.partition(":")[2] or "string"} for p in params}
    schema = {"type": "object", "properties": properties}
    return read_tools([{"name": name, "description": about, "parameters": schema, **extra}])[name]


def kind(name: str, about: str = "", *params: str, **extra: Any) -> str:
    return nature_of(spec(name, about, *params, **extra)).kind


READING = """
get_order list_orders search_emails email.search_emails calendar.get_event_information_by_id findUserById getURLInfo
mcp__shop__get_order shop/orders/list_open fetch_page read_file view_booking describe_table query_metric has_access
lookup_account look_up_account get_last_update get_update_history list_changes list_updates get_post search_posts
list_deleted_items get_deleted_items get_booking_and_customer_names count_visits check_availability check_order
calculate is_open get_reset_status get_closed_issues list_open_orders get_or_find_user get_login_status browse_catalog
get_check_in_time view_order search_order get_set GET_ORDER get find_email_address get_posts_and_comments ls cat
""".split()  # noqa: SIM905


@pytest.mark.parametrize("name", READING)
def test_a_verb_that_reads_at_the_head_of_the_last_segment_reads(name: str):
    nature = nature_of(spec(name))

    assert (nature.kind, nature.by_name) == ("reads", True), nature.why
    assert nature_of(spec(name), trust_names=False).kind == "changes"


CHANGING = """
get_or_create get_or_create_cart getOrCreateCart find_or_create findOrCreateUser get_and_lock get_item_and_lock
fetch_and_clear fetch_and_ack search_and_replace find_and_modify findOneAndUpdate read_and_delete list_delete
list_update list_set_value list_add_item view_reset get_or_init find_or_make get_and_increment read_then_archive
check_in check_out checkIn check_in_guest checkout check_off check_task show_notification display_message read_aloud
get_next_job get_next_task order refund_payment send_email update_order post_tweet latest_order engaged_users_count
orders.update delete/get_all track_event resolve_ticket select_seat convert_lead run_query execute_sql verify_code
download_file export_report poll_queue pull_message upsert_row user_get_or_create cart__get_or_create_cart think
get_order_and_cancel search_query_save mark_read getset claim_next_job open_door set_value ask_user summarise_and_send
""".split()  # noqa: SIM905


@pytest.mark.parametrize("name", CHANGING)
def test_any_other_name_changes_something(name: str):
    assert kind(name) in ("changes", "destroys")


DEEDS = [
    "Fetches the next message and marks it as read.",
    "Returns the cart. Creates one if missing.",
    "Returns the cart; creates one if it is missing.",
    "Get the seat map and reserve the best seat.",
    "Gets a seat and reserves it for ten minutes.",
    "Reads the queue. The message is removed afterwards.",
    "Reads a mail. The mail is then marked as read.",
    "Get a quote by creating a draft order.",
    "Gets the token, then rotates the key.",
    "Looks up the customer and also sends a welcome mail",
    "Fetch and clear all alerts.",
    "Gets the inbox, deletes spam.",
    "If the cart does not exist it is created.",
    "Use this to cancel an order.",
    "Returns the report. Your account will be charged.",
    "Gets a lease on the lock, which locks the row.",
    "Does not delete the row but archives it.",
    "Reads the counter. Has side effects.",
    "Check the guest in: assigns a room.",
    "Gets the invoice and emails it to the customer.",
    "Increments the counter and returns it.",
    "Get the coupon\n\nConsumes it.",
    "Returns an id. Automatically books the slot.",
    "Retrieves and locks the next job.",
]


@pytest.mark.parametrize("about", DEEDS)
def test_a_deed_in_the_description_is_seen(about: str):
    assert change_in_text(about)
    assert kind("get_thing", about) == "changes"


HARMLESS = [
    "Get an order. Does not change anything.",
    "Lists recently added items, newest first.",
    "Returns the order with its updated_at. Updated at is in UTC.",
    "Gets the product id needed to place or cancel an order.",
    "Find orders that were cancelled or refunded.",
    "Whether the account is locked, and since when.",
    "Lists the changes of a document.",
    "This tool belongs to the shop, which allows users to place orders, cancel orders and mail. Gets an order.",
    "Reads without modifying anything. It has no side effects.",
    "Find user id by email. If the user is not found, the function will return an error message.",
    "Returns posts, comments and likes of a user.",
    "Get the status of a booking: whether it is confirmed.",
    "Data is updated every hour. Results are ordered by date.",
    "Never creates a cart.",
    "Searches mails. Returns those last modified after a date.",
    "This API enables you to find airports.",
]


@pytest.mark.parametrize("about", HARMLESS)
def test_harmless_words_are_no_deeds(about: str):
    assert change_in_text(about) == ""
    assert kind("get_thing", about) == "reads"


@pytest.mark.parametrize(
    "parameter",
    """
    delete new_value confirm mark_as_read:boolean create_if_missing:boolean lock:boolean sql action method
    remove_after updateExisting:boolean overwrite:boolean reserve:boolean body acknowledge:boolean
    """.split(),  # noqa: SIM905
)
def test_a_parameter_for_a_change_is_seen(parameter: str):
    assert kind("get_thing", "Gets a thing.", "id", parameter) == "changes"


@pytest.mark.parametrize(
    "parameter",
    """
    include_deleted:boolean includeRemoved:boolean lastModifiedAfter created_after updated_since order_by order_id
    post_id sort_order query message_id set_id country_code limit:integer
    """.split(),  # noqa: SIM905
)
def test_a_harmless_parameter_is_none(parameter: str):
    assert kind("get_thing", "Gets a thing.", "id", parameter) == "reads"


def test_a_choice_of_deeds_reads_only_if_all_of_them_read():
    def with_choice(*choices: str) -> str:
        return nature_of(read_tools([{"name": "query_cart", "parameters": schema(choices)}])["query_cart"]).kind

    def schema(choices: Any) -> dict[str, Any]:
        return {"type": "object", "properties": {"action": {"type": "string", "enum": list(choices)}}}

    assert with_choice("get", "list") == "reads"
    assert with_choice("get", "clear") == "changes"


@pytest.mark.parametrize("name", ["delete_email", "cancelOrder", "mails.wipe", "user_remove", "fetch_and_clear", "rm"])
def test_what_destroys_by_name_where_nothing_is_marked(name: str):
    assert kind(name) == "destroys"
    assert kind(name, annotations={"destructiveHint": False, "readOnlyHint": False}) == "changes"
    assert kind(name, tags=["read_only"]) == "reads"


@pytest.mark.parametrize("mark", ["Destructive", "DESTRUCTIVE", "destructive", "destructive-hint"][:3])
def test_marks_count_in_any_case(mark: str):
    assert kind("get_thing", tags=[mark]) == "destroys"
    assert kind("get_thing", metadata={}, **{mark: True}) == "destroys"


@pytest.mark.parametrize("mark", ["read_only", "READ-ONLY", "readOnly", "readonly", "Read Only"])
def test_a_read_only_mark_counts_in_any_spelling(mark: str):
    assert kind("wipe_all", tags=[mark]) == "reads"
    assert not nature_of(spec("wipe_all", tags=[mark])).by_name
    assert nature_of(spec("wipe_all", tags=[mark]), trust_names=False).kind == "reads"
    assert kind("get_thing", **{mark: False}) == "changes"


@pytest.mark.parametrize(
    "name",
    """
    transfer_to_human_agents transfer_to_bob handoff_to_sales submit submit_answer finish final_answer goto
    """.split(),  # noqa: SIM905
)
def test_what_hands_over_or_ends_the_run_steers_it(name: str):
    assert kind(name) == kind(name, tags=["read_only"]) == "controls"


def steers(text: str) -> Command[Any]:
    """Gets a thing."""
    return Command(goto=text)


async def asteers(text: str) -> Command[Any]:
    """Gets a thing."""
    return Command(goto=text)


def plain(text: str) -> str:
    """Gets a thing."""
    return text


class Own(BaseTool):
    name: str = "get_thing"
    description: str = "Gets a thing."

    def _run(self, text: str) -> Command[Any]:
        return Command(goto=text)


@pytest.mark.parametrize(
    "made",
    [
        StructuredTool.from_function(steers, name="get_thing"),
        StructuredTool.from_function(coroutine=asteers, name="get_thing"),
        Own(),
        StructuredTool.from_function(plain, name="get_thing", return_direct=True),
        tool("get_thing", return_direct=True)(plain),
    ],
)
def test_what_returns_a_command_or_directly_steers_the_run(made: BaseTool):
    assert nature_of(read_tools([made])["get_thing"]).kind == "controls"


def test_what_was_only_called_is_not_described():
    called = ToolSpec("get_thing", "", {"type": "object", "properties": {}}, seen=False)

    assert nature_of(called).kind == "changes"
    assert "nobody described it" in nature_of(called).why


NATURES = sorted(DATA.glob("*/nature.json"))


@pytest.mark.skipif(not NATURES, reason="the recorded runs are not there")
def test_on_recorded_catalogues_no_tool_that_changes_something_reads_by_name():
    found = right = 0
    for path in NATURES:
        known, tools = json.loads(path.read_text()), json.loads((path.parent / "tools.json").read_text())
        bare = [{k: v for k, v in each.get("function", each).items() if k != "annotations"} for each in tools]
        reads = {name for name, each in read_tools(bare).items() if nature_of(each).kind == "reads"}
        assert reads <= set(known["reads"]), path
        if "bfcl" not in str(path):  # half of its tools are formulas ("mean"), which nobody can tell by a verb
            found, right = found + len(reads), right + len(known["reads"])
    assert found >= 0.85 * right
