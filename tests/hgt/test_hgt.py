"""The graph model: attention against a dense reference, gradients, losses, training, the table of a memory."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason='torch is not installed; type: pip install "langgraph-toolmem[hgt]"')

from langgraph_toolmem import Navigator, ToolMemory  # noqa: E402
from langgraph_toolmem.base.errors import ConfigurationError  # noqa: E402
from langgraph_toolmem.hgt import Training, train_links  # noqa: E402
from langgraph_toolmem.navigator.dependencies import ToolDependencyGraph  # noqa: E402
from langgraph_toolmem.navigator.evidence import LINK_TABLE, History  # noqa: E402
from langgraph_toolmem.papers.naviagent.train import (  # noqa: E402
    API,
    BEFORE,
    RelationalAttention,
    Trainer,
    adaptive_margin,
    device_of,
    segment_softmax,
    share_of_first,
)
from langgraph_toolmem.runs.tools import ToolSpec  # noqa: E402
from langgraph_toolmem.text.embedders import resolve_embedder  # noqa: E402

torch.set_num_threads(1)  # these models are small, and on a busy machine two threads wait for each other
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"))]
TYPED = (("a", "r", "b"), ("b", "s", "b"), ("b", "t", "a"))
QUICK = Training(width=16, heads=4, epochs=10, device="cpu")


def tool(name: str, takes: str, gives: str) -> ToolSpec:
    parameters = {"type": "object", "properties": {takes: {"type": "string"}}, "required": [takes]}
    return ToolSpec(name, "", parameters, {"type": "object", "properties": {gives: {"type": "string"}}})


def teach(memory: ToolMemory, things: Sequence[str], times: int = 1) -> None:
    for number in range(times):
        for thing in things:
            messages: list[Any] = [{"role": "user", "content": f"mail {thing}"}]
            for place, name in enumerate((f"search_{thing}s", f"read_{thing}", f"mail_{thing}")):
                call = {"name": name, "args": {"x": f"{place}"}, "id": f"{thing}{number}{place}"}
                messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": "fine"})
            memory.finish(messages, thread_id=f"{thing}{number}")


MORE_THINGS = tuple(
    f"{one}{other}" for one in ("car", "tax", "sea", "bed", "art") for other in ("map", "log", "box", "bill", "plan")
)


def large_world() -> dict[str, ToolSpec]:
    made = [each for thing in MORE_THINGS for each in (
        tool(f"search_{thing}s", "text", "hits"),
        tool(f"read_{thing}", "reference", "content"),
        tool(f"mail_{thing}", "body", "receipt"),
    )]  # fmt: skip
    return {each.name: each for each in made}


def small_graph() -> tuple[dict[str, Any], dict[Any, Any], dict[Any, Any]]:
    torch.manual_seed(0)
    nodes = {"a": torch.randn(3, 8), "b": torch.randn(4, 8)}
    edges = {
        TYPED[0]: torch.tensor([[0, 1, 2, 2], [0, 0, 0, 3]]),
        TYPED[1]: torch.tensor([[0, 1, 3], [0, 0, 2]]),
        TYPED[2]: torch.tensor([[3, 1], [1, 1]]),
    }
    return nodes, edges, {relation: torch.rand(pairs.shape[1]) for relation, pairs in edges.items()}


def dense(layer: RelationalAttention, nodes: Any, edges: Any, weights: Any) -> dict[str, Any]:
    """The formula of the module, written out node by node."""
    depth = layer.width // layer.heads
    out = {kind: torch.zeros_like(each) for kind, each in nodes.items()}
    for kind, each in nodes.items():
        for u in range(len(each)):
            for k in range(layer.heads):
                part = slice(k * depth, (k + 1) * depth)
                logits: dict[Any, list[Any]] = {}
                values: dict[Any, list[Any]] = {}
                for number, relation in enumerate(layer.relations):
                    for place, (v, listener) in enumerate(edges[relation].T.tolist()):
                        if relation[2] != kind or listener != u:
                            continue
                        heard = nodes[relation[0]][v]
                        query, key = layer.query[number][part] @ each[u], layer.key[number][part] @ heard
                        logit = query @ key / math.sqrt(depth)
                        logit = logit + layer.bias[number, k] + weights[relation][place]
                        logits.setdefault(relation, []).append(logit)
                        values.setdefault(relation, []).append(layer.value[number][part] @ heard)
                for group, found in logits.items():
                    shares = torch.softmax(torch.stack(found), 0)
                    out[kind][u, part] = out[kind][u, part] + shares @ torch.stack(values[group])
    return {kind: layer.out(each) for kind, each in out.items()}


def test_attention_is_the_formula_written_out():
    nodes, edges, weights = small_graph()
    layer = RelationalAttention(8, 2, TYPED)
    torch.nn.init.normal_(layer.bias)
    found, by_hand = layer(nodes, edges, weights), dense(layer, nodes, edges, weights)
    for kind in nodes:
        torch.testing.assert_close(found[kind], by_hand[kind], rtol=1e-4, atol=1e-5)
    assert not found["a"][0].any()  # nobody is heard
    lighter = layer(nodes, edges, {relation: each * 0 for relation, each in weights.items()})
    assert not torch.allclose(found["b"][0], lighter["b"][0])
    layer.bias.data += 3  # a bias is the same for all of a relation
    torch.testing.assert_close(layer(nodes, edges, weights)["b"], found["b"])


def test_a_segments_softmax_stands_large_numbers_and_any_order():
    found = segment_softmax(torch.tensor([[1000.0], [0.0], [999.0], [0.0]]), torch.tensor([2, 0, 2, 0]), 3)
    e = 1 / (1 + math.exp(-1))
    torch.testing.assert_close(found, torch.tensor([[e], [0.5], [1 - e], [0.5]]))


def test_losses_by_hand():
    right, wrong = torch.tensor([1.0, 0.0]), torch.tensor([[0.0, -5.0], [1.0, -5.0]])
    weights = torch.tensor([0.0, 0.0])
    # m = 1.5: max(0, 1.5 - 1 + 0) = 0.5; 0; max(0, 1.5 - 0 + 1) = 2.5; 0
    assert adaptive_margin(right, wrong, weights).item() == pytest.approx((0.5 + 2.5) / 4)
    assert [round(share_of_first(t, 1.0, 0.5), 3) for t in range(3)] == [1.0, 0.5, 0.25]


def trainer(training: Training = QUICK, **history: Any) -> Trainer:
    specs = large_world()
    seen = [(f"search_{t}s", f"read_{t}") for t in MORE_THINGS] + [(f"read_{t}", f"mail_{t}") for t in MORE_THINGS]
    record = {"uses": dict.fromkeys(specs, 4), "transitions": dict.fromkeys(seen, 2), **history}
    graph, embedder = ToolDependencyGraph(specs.values()), resolve_embedder(None)
    return Trainer(graph, History(**record), embedder.embed_documents, training)


def test_what_is_to_be_foreseen_is_no_edge():
    made = trainer()
    edges = {tuple(pair) for pair in made.tensors.edges[BEFORE].T.tolist()}
    assert edges == set(made.learned)
    assert not edges & {*made.test}
    asked = torch.tensor(made.learned[:3])
    left = made.tensors.without(asked.T)
    for relation in (BEFORE, (API, "after", API)):
        assert left.edges[relation].shape[1] == len(made.learned) - 3 == len(left.weights[relation])


@pytest.mark.parametrize("device", DEVICES)
def test_training_learns_and_one_seed_is_one_model(device: str):
    how = Training(width=16, heads=4, epochs=10, device=device)
    whole, again = trainer(how).run(), trainer(how).run()
    assert whole.losses[-1]["entropy"] < whole.losses[0]["entropy"]
    close = {"rtol": 0, "atol": 0} if device == "cpu" else {"rtol": 1e-2, "atol": 1e-3}
    for one, two in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        torch.testing.assert_close(one, two, **close)


def test_the_separable_head_ranks_producers_alike_for_all_consumers():
    made = trainer()
    logits = made.logits(made.tensors)
    with torch.no_grad():
        tools = made.model(*made.tensors)[API]
        assert logits[2, 5] == pytest.approx(made.model.logits(tools[2], tools[5]).item(), abs=1e-4)
    orders = logits.argsort(axis=0, kind="stable").T.tolist()
    assert orders == [orders[0]] * len(orders)


def test_a_device_that_is_not_there_is_told():
    with pytest.raises(ConfigurationError, match="cannot be used"):
        device_of("cuda:77")


def test_a_memory_is_trained_on_and_served_without_torch(tmp_path: Path):
    with ToolMemory(tmp_path, tools=large_world().values(), methods=[Navigator()]) as memory:
        with pytest.raises(ConfigurationError, match="40 are needed"):
            train_links(memory, QUICK)
        teach(memory, MORE_THINGS[:21])
        figures = train_links(memory, QUICK)
    assert (tmp_path / LINK_TABLE).is_file()
    code = f"""
import sys
from langgraph_toolmem import Navigator, ToolMemory
with ToolMemory({str(tmp_path)!r}, read_only=True, methods=[Navigator()]) as memory:
    learned = memory.navigator.learned
    memory.navigator.plan(target="read_carmap")
    print(learned is not None)
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=100, capture_output=True, text=True)
    assert done.stdout.strip() == str(figures["learned"] > figures["structural"])
