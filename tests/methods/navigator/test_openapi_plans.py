"""Plans over OpenAPI documents: ids come from lists, nothing is changed on the way, credentials are nobody's input."""

from __future__ import annotations

import copy

import pytest

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.history import Flow, History
from langgraph_toolmem.navigator.openapi import MAX_NAME, read_openapi
from langgraph_toolmem.navigator.plan.planner import Chain, plan
from tests.methods.navigator.openapi_documents import CHAT, LIBRARY, SHOP

SHOPS = ToolDependencyGraph(read_openapi(SHOP))


def chain_to(target: str, graph: ToolDependencyGraph = SHOPS, **more: object) -> Chain:
    chain = plan(graph, target, **more).chain  # type: ignore[arg-type]
    assert chain is not None
    return chain


def fed(chain: Chain) -> dict[str, tuple[str, str]]:
    return {feed.input: (feed.origin, feed.output) for feed in chain.steps[-1].feeds if feed.source == "step"}


def test_ids_come_from_the_lists_along_the_path_through_their_envelopes():
    chain = chain_to("updateLine")
    assert chain.tools == ("listCustomers", "listOrders", "listLines", "updateLine")
    assert fed(chain) == {
        "customer_id": ("listCustomers", "entries[].id"),
        "order_id": ("listOrders", "data[].id"),
        "line_number": ("listLines", "[].number"),
    }
    assert chain.complete


def test_nouns_of_several_words_and_an_id_without_a_name():
    graph = ToolDependencyGraph(read_openapi(LIBRARY))
    holds, assignments, end = graph.apis
    assert (holds, end) == ("get_legal-holds", "delete_assignments_id")
    assert chain_to(end, graph).tools == (holds, assignments, end)


def test_a_list_without_a_schema_gives_ids_though_it_filters_by_them():
    bare = {
        "/v1/reports.json": {"get": {"parameters": [{"name": "ids", "in": "query", "schema": {"type": "string"}}]}},
        "/v1/reports/{report_id}.json": {
            "put": {"parameters": [{"name": "report_id", "in": "path", "schema": {"type": "string"}}]}
        },
    }
    reading, target = read_openapi({"paths": bare})
    assert chain_to(target.name, ToolDependencyGraph([reading, target])).tools == (reading.name, target.name)


def test_an_id_may_be_called_otherwise():
    element = {"type": "object", "properties": {"gid": {"type": "string"}, "token": {"type": "string"}}}
    schema = {"type": "object", "properties": {"data": {"type": "array", "items": element}}}
    answer = {"200": {"content": {"application/json": {"schema": schema}}}}
    specs = read_openapi(
        {
            "paths": {
                "/tasks": {"get": {"operationId": "all", "responses": answer}},
                "/tasks/{task_gid}": {
                    "delete": {
                        "operationId": "end",
                        "parameters": [{"name": "task_gid", "in": "path", "schema": {"type": "string"}}],
                    }
                },
            }
        }
    )
    assert fed(chain_to("end", ToolDependencyGraph(specs)))["task_gid"] == ("all", "data[].gid")


def test_the_path_is_searched():
    operation = {"operationId": "op17", "responses": {}}
    with ToolMemory.ephemeral(
        tools=read_openapi({"paths": {"/legal-holds": {"get": operation}, "/x": {"get": {"operationId": "op18"}}}})
    ) as memory:
        assert [hit.name for hit in memory.navigator.search("which legal holds are there?")] == ["op17"]


def test_calls_in_rpc_style_and_a_credential_that_is_no_input():
    specs = {spec.name: spec for spec in read_openapi(CHAT)}
    assert {name: set(spec.properties) for name, spec in specs.items()} == {
        "rooms_list": set(),
        "rooms_archive": {"room_id"},
        "devices_push": {"token"},
    }
    chain = chain_to("rooms_archive", ToolDependencyGraph(specs.values()))
    assert chain.tools == ("rooms_list", "rooms_archive")
    assert chain.complete


def operation(name: str, *inputs: str, said: str = "", method: str = "post") -> dict[str, object]:
    """An RPC-style operation that answers with a truth value."""
    given = [{"name": each, "in": "query", "type": "string", "required": True, "description": said} for each in inputs]
    answer = {"200": {"schema": {"type": "object", "properties": {"ok": {"type": "boolean"}}}}}
    return {f"/{name}": {method: {"operationId": name.replace(".", "_"), "parameters": given, "responses": answer}}}


@pytest.mark.parametrize(
    ("giver", "target", "tools", "asks"),
    [
        (operation("rooms.listMembers", method="get"), operation("members.drop", "member_id"), 2, []),
        (operation("calls.add"), operation("calls.end", "id"), 1, [("id", False)]),
        (operation("calls.add"), operation("people.add", "id", said="As `calls.add` returned."), 1, [("id", False)]),
        (operation("calls.add"), operation("people.add", "id"), 1, [("id", True)]),
        (operation("calls.add"), operation("people.add", "external_id"), 1, [("external_id", False)]),
    ],
    ids=["a list without a schema", "made by a change", "named in a description", "unknown", "of another system"],
)
def test_the_user_is_asked_for_ids_that_somebody_has(giver, target, tools, asks):  # type: ignore[no-untyped-def]
    specs = read_openapi({"swagger": "2.0", "paths": {**giver, **target}})
    chain = chain_to(specs[-1].name, ToolDependencyGraph(specs))
    assert len(chain.tools) == tools
    assert [(ask.input, ask.system_value) for ask in chain.asks] == asks


def test_nothing_is_created_in_order_to_delete_it_unless_the_request_says_so():
    document = copy.deepcopy(SHOP)
    del document["paths"]["/customers/{customer_id}/orders"]["get"]
    graph = ToolDependencyGraph(read_openapi(document))
    chain = chain_to("deleteOrder", graph)
    assert chain.tools == ("listCustomers", "deleteOrder")
    (ask,) = chain.asks
    assert not ask.system_value, "who had it created may have kept the id"
    assert ask.reason == "only createOrder would give it, by a change"
    assert "createOrder" not in chain_to("deleteOrder", graph, request="delete the order").tools
    asked = chain_to("deleteOrder", graph, request="Create an order for Ann, then delete it")
    assert asked.tools == ("listCustomers", "createOrder", "deleteOrder")


def test_a_writer_that_past_runs_called_before_is_a_step():
    document = copy.deepcopy(SHOP)
    del document["paths"]["/customers/{customer_id}/orders"]["get"]
    graph = ToolDependencyGraph(read_openapi(document))
    flow = Flow("createOrder", "id", "deleteOrder", "order_id")
    past = History(uses={"deleteOrder": 5}, transitions={("createOrder", "deleteOrder"): 5}, flows={flow: 5})
    assert "createOrder" in chain_to("deleteOrder", graph, history=past).tools


def test_a_link_of_the_document_counts():
    chain = chain_to("payOrder", request="create an order and pay it")
    assert fed(chain)["reference"] == ("createOrder", "id")


def test_optional_inputs_stay_empty_unless_known_or_taken_before():
    chain = chain_to("updateLine")
    assert all(feed.required for step in chain.steps for feed in step.feeds)
    assert ("gift_note", "known") in [
        (f.input, f.source) for f in chain_to("updateLine", known=["gift_note"]).steps[-1].feeds
    ]
    past = History(flows={Flow("listOrders", "data[].gift_note", "updateLine", "gift_note"): 4}, uses={"updateLine": 5})
    assert fed(chain_to("updateLine", history=past))["gift_note"] == ("listOrders", "data[].gift_note")


def test_deprecated_operations_are_left_out_names_are_legal_and_bodies_without_a_word_are_needed():
    assert "getOrder" not in SHOPS
    names = [spec.name for spec in read_openapi(LIBRARY)]
    assert all(len(name) <= MAX_NAME for name in names)
    assert len(set(names)) == 3
    assert read_openapi(LIBRARY)[2].properties.keys() == {"id", "include"}
    assert SHOPS.apis["createOrder"].spec.required == {"customer_id", "sku"}
    effects = {name: (node.spec.read_only, node.spec.destructive) for name, node in SHOPS.apis.items()}
    assert effects["listOrders"] == (True, False)
    assert effects["createOrder"] == effects["updateLine"] == effects["payOrder"] == (False, False)
    assert effects["deleteOrder"] == (False, True)


def test_schemas_of_3_0_are_json_schema():
    bounds = {"type": "integer", "nullable": True, "minimum": 0, "exclusiveMinimum": True, "exclusiveMaximum": False}
    choice = {"type": "string", "nullable": True, "enum": ["a"]}
    named = {"type": "object", "properties": {"nullable": {"type": "boolean"}}}
    given = {"n": bounds, "c": choice, "o": named}
    parameters = [{"name": name, "in": "query", "schema": schema} for name, schema in given.items()]
    (spec,) = read_openapi({"paths": {"/a": {"get": {"parameters": parameters}}}})
    assert spec.has_readable_schema
    assert spec.problem({"n": None, "c": None, "o": {"nullable": True}}) is None
    assert spec.problem({"n": 1}) is None
    assert spec.problem({"n": 0}) is not None


def test_two_documents_with_one_name_get_their_titles_in_front():
    other = copy.deepcopy(SHOP)
    other["info"]["title"] = "Old shop"
    names = [spec.name for spec in read_openapi(SHOP, other)]
    assert len(names) == len(set(names))
    assert {"Shop_listOrders", "Old_shop_listOrders"} <= set(names)
    links = [
        spec.returns["x-links"]
        for spec in read_openapi(SHOP, other)
        if spec.name == "Old_shop_createOrder" and spec.returns
    ]
    assert links == [[["Old_shop_payOrder", "reference", "id"]]]
