"""The graph model: attention against a dense reference and a peer, gradients, training, checkpoints, serving."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason='torch is not installed; type: pip install "langgraph-toolmem[hgt]"')

from langgraph_toolmem import Navigator, ToolMemory  # noqa: E402
from langgraph_toolmem.base.errors import ConfigurationError, StorageError  # noqa: E402
from langgraph_toolmem.hgt.attention import RelationalAttention, segment_softmax  # noqa: E402
from langgraph_toolmem.hgt.export import pair_scorer, train, vectors_of  # noqa: E402
from langgraph_toolmem.hgt.loss import adaptive_margin, share_of_first, soft_cross_entropy  # noqa: E402
from langgraph_toolmem.hgt.model import API, PARAMETER, RELATIONS, LinkModel, Sizes  # noqa: E402
from langgraph_toolmem.hgt.tensors import neighbourhood  # noqa: E402
from langgraph_toolmem.hgt.train import BEFORE, Material, Trainer, Training, device_of  # noqa: E402
from langgraph_toolmem.navigator.history import Flow, History  # noqa: E402
from langgraph_toolmem.navigator.learned import plain  # noqa: E402
from langgraph_toolmem.navigator.learned.trained import HGT  # noqa: E402
from langgraph_toolmem.runs.tools import ToolSpec, read_tools  # noqa: E402
from tests.methods.navigator.test_navigator_learned import (  # noqa: E402
    BUILTIN,
    THINGS,
    planted,
    setting,
    tool,
)

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"))]
TYPED = (("a", "r", "b"), ("b", "s", "b"), ("b", "t", "a"))
SMALL = Sizes(width=16, heads=4, layers=2, hidden=8)
QUICK = Training(sizes=SMALL, epochs=10, device="cpu")


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
        tool(f"search_{thing}s", ["text"], ["hits"], f"Search {thing}s by text"),
        tool(f"read_{thing}", ["reference"], ["content"], f"Read a {thing}"),
        tool(f"mail_{thing}", ["body"], ["receipt"], f"Mail a {thing} to somebody"),
    )]  # fmt: skip
    return read_tools(made)


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
                        logit = logit + (layer.bias[number, k] if layer.bias is not None else 0)
                        logit = logit + (weights[relation][place] if layer.weighted else 0)
                        group = "all" if layer.joint else relation
                        logits.setdefault(group, []).append(logit)
                        values.setdefault(group, []).append(layer.value[number][part] @ heard)
                for group, found in logits.items():
                    shares = torch.softmax(torch.stack(found), 0)
                    out[kind][u, part] = out[kind][u, part] + shares @ torch.stack(values[group])
    return {kind: layer.out(each) for kind, each in out.items()}


@pytest.mark.parametrize("joint", [False, True], ids=["within relations", "joint"])
def test_attention_is_the_formula_written_out(joint: bool):
    nodes, edges, weights = small_graph()
    layer = RelationalAttention(8, 2, TYPED, joint=joint)
    torch.nn.init.normal_(layer.bias)
    found, by_hand = layer(nodes, edges, weights), dense(layer, nodes, edges, weights)
    for kind in nodes:
        torch.testing.assert_close(found[kind], by_hand[kind], rtol=1e-4, atol=1e-5)
    assert not found["a"][0].any()  # nobody is heard
    lighter = layer(nodes, edges, {relation: each * 0 for relation, each in weights.items()})
    assert not torch.allclose(found["b"][0], lighter["b"][0])
    if not joint:  # a bias is the same for all of a relation
        layer.bias.data += 3
        torch.testing.assert_close(layer(nodes, edges, weights)["b"], found["b"])


def test_without_weight_and_bias_and_with_a_joint_softmax_it_is_the_peers():
    pyg = pytest.importorskip("torch_geometric.nn", reason="torch_geometric is not installed (extra `bench`)")
    nodes, edges, weights = small_graph()
    peer = pyg.HGTConv(8, 8, (["a", "b"], list(TYPED)), heads=2)
    mine = RelationalAttention(8, 2, TYPED, weighted=False, biased=False, joint=True)
    with torch.no_grad():
        for each in peer.kqv_lin.lins.values():
            each.bias.zero_()
        for kind, each in peer.out_lin.lins.items():
            each.weight.copy_(torch.eye(8))
            each.bias.zero_()
            peer.skip[kind].fill_(50.0)  # nothing is added
        types = peer.edge_types_map
        for number, (source, _, target) in enumerate(TYPED):
            key, _, value = peer.kqv_lin.lins[source].weight.chunk(3)
            _, query, _ = peer.kqv_lin.lins[target].weight.chunk(3)
            mine.query[number] = query
            for head in range(2):
                part, place = slice(4 * head, 4 * head + 4), head * len(TYPED) + types[TYPED[number]]
                mine.key[number][part] = peer.k_rel.weight[place].T @ key[part]
                mine.value[number][part] = peer.v_rel.weight[place].T @ value[part]
        mine.out.weight.copy_(torch.eye(8))
        theirs, found = peer(nodes, edges), mine(nodes, edges, weights)
    for kind in nodes:  # it curves what was heard before its last layer
        torch.testing.assert_close(torch.nn.functional.gelu(found[kind]), theirs[kind], rtol=1e-4, atol=1e-5)


def test_slopes_are_those_of_small_steps():
    nodes, edges, weights = small_graph()
    layer = RelationalAttention(4, 2, TYPED).double()
    given = {kind: each[:, :4].double().requires_grad_() for kind, each in nodes.items()}
    heavy = {relation: each.double() for relation, each in weights.items()}
    assert torch.autograd.gradcheck(
        lambda a, b: tuple(layer({"a": a, "b": b}, edges, heavy).values()), (given["a"], given["b"])
    )


def test_a_segments_softmax_stands_large_numbers_and_any_order():
    found = segment_softmax(torch.tensor([[1000.0], [0.0], [999.0], [0.0]]), torch.tensor([2, 0, 2, 0]), 3)
    e = 1 / (1 + math.exp(-1))
    torch.testing.assert_close(found, torch.tensor([[e], [0.5], [1 - e], [0.5]]))


def test_losses_by_hand():
    right, wrong = torch.tensor([1.0, 0.0]), torch.tensor([[0.0, -5.0], [1.0, -5.0]])
    weights = torch.tensor([0.0, 0.0])
    # m = 1.5: max(0, 1.5 - 1 + 0) = 0.5; 0; max(0, 1.5 - 0 + 1) = 2.5; 0
    assert adaptive_margin(right, wrong, weights).item() == pytest.approx((0.5 + 2.5) / 4)
    assert soft_cross_entropy(torch.tensor([0.0]), torch.tensor([0.3])).item() == pytest.approx(math.log(2))
    assert [round(share_of_first(t, 1.0, 0.5), 3) for t in range(3)] == [1.0, 0.5, 0.25]


# --- training -------------------------------------------------------------------------------------------------


def embed(texts: Any) -> Any:
    return dict(zip(texts, BUILTIN.embed_documents(list(texts.values())), strict=True))


def material() -> Material:
    graph, views, fits, links = setting(THINGS)
    seen = planted(THINGS)
    history = History(uses=dict.fromkeys(views.names, 4), transitions=dict.fromkeys(seen, 2))
    return Material(graph, views, fits, history, links, embed)


def test_what_is_to_be_foreseen_is_no_edge():
    mat = material()
    trainer = Trainer(mat, QUICK)
    edges = {tuple(pair) for pair in trainer.tensors.edges[BEFORE].T.tolist()}
    assert edges == {tuple(pair) for pair in trainer.learned.tolist()}
    back = {tuple(pair) for pair in trainer.tensors.edges[API, "after", API].T.tolist()}
    assert back == {(b, a) for a, b in edges}
    asked = torch.from_numpy(trainer.learned[:3])
    left, weights = trainer.tensors.without(asked.T, BEFORE)
    assert left[BEFORE].shape[1] == len(trainer.learned) - 3 == len(weights[BEFORE])
    assert left[API, "after", API].shape[1] == len(trainer.learned) - 3


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("head", ["mlp", "bilinear", "separable"])
def test_training_learns_and_numpy_says_what_torch_does(device: str, head: Any):
    how = Training(sizes=Sizes(16, 4, 2, head, 8), epochs=10, device=device, autocast=device == "cuda")
    trainer = Trainer(material(), how).run()
    assert trainer.losses[-1]["entropy"] < trainer.losses[0]["entropy"]
    arrays = vectors_of(trainer)
    pairs = np.array([[0, 1], [4, 2], [7, 9]])
    found = pair_scorer(trainer, arrays)(pairs)
    given = trainer.scaled(plain_features(trainer, pairs))
    ends = torch.from_numpy(arrays["vectors"])
    with torch.no_grad():
        said = trainer.model.cpu().links(ends[pairs[:, 0]], ends[pairs[:, 1]], torch.from_numpy(given))
    np.testing.assert_allclose(found, said.numpy(), atol=1e-4)


@pytest.mark.parametrize("head", ["mlp", "separable"])
def test_a_model_begins_as_the_regression_on_the_features_and_keeps_that_if_nothing_is_better(head: Any):
    trainer = Trainer(material(), Training(sizes=Sizes(16, 4, 2, head, 8), epochs=0)).run()
    assert trainer.best[0] > 0.5
    assert trainer.best[1] == -1
    pairs = np.array([[0, 1], [4, 2], [7, 9], [3, 8]])
    features, fitted = plain_features(trainer, pairs), trainer.regression
    assert fitted is not None
    near = np.clip((features - fitted.mean) / fitted.scale, -5, 5) @ fitted.weights + fitted.bias
    np.testing.assert_allclose(pair_scorer(trainer)(pairs), near, atol=1e-3)


def plain_features(trainer: Trainer, pairs: Any) -> Any:
    known = plain.PairFeatures(trainer.material.views, trainer.material.fits, trainer.material.links)
    return known.of(pairs, hidden=np.where(known.known(pairs)[:, np.newaxis], pairs, -1))


def test_a_separable_head_ranks_producers_alike_for_all_consumers():
    model = LinkModel({API: 5, PARAMETER: 5}, Sizes(16, 4, 1, "separable", dropout=0)).eval()
    z = torch.randn(6, 16)
    orders = [model.links(z, z[consumer].expand_as(z)).argsort().tolist() for consumer in range(6)]
    assert orders == [orders[0]] * 6


def test_the_same_seed_is_the_same_model_and_training_goes_on_where_it_was_cut(tmp_path: Path):
    whole = Trainer(material(), QUICK).run()
    again = Trainer(material(), QUICK).run()
    place = tmp_path / "c.ckpt"

    class CutError(Exception):
        pass

    def cut(epoch: int, _: Any) -> None:
        if epoch == 6:
            raise CutError

    with pytest.raises(CutError):
        Trainer(material(), QUICK, place).run(cut)
    resumed = Trainer(material(), QUICK, place).run()
    for other in (again, resumed):
        assert other.best == whole.best
        for one, two in zip(whole.model.parameters(), other.model.parameters(), strict=True):
            torch.testing.assert_close(one, two, rtol=0, atol=0)
    place.write_bytes(b"no checkpoint")
    with pytest.raises(StorageError, match="Delete it"):
        Trainer(material(), QUICK, place).run()


def test_a_neighbourhood_that_holds_everything_gives_the_same_vectors():
    trainer = Trainer(material(), QUICK)
    model, tensors = trainer.model.eval(), trainer.tensors
    seeds = {API: torch.tensor([0, 3, 4])}
    generator = torch.Generator().manual_seed(0)
    picked, edges, weights = neighbourhood(tensors, tensors.edges, tensors.weights, seeds, 2, generator, fanout=999)
    with torch.no_grad():
        whole = model(tensors.features, tensors.edges, tensors.weights)[API][seeds[API]]
        part = model({kind: tensors.features[kind][each] for kind, each in picked.items()}, edges, weights)[API]
    assert picked[API][:3].tolist() == [0, 3, 4]
    torch.testing.assert_close(part[:3], whole, rtol=1e-4, atol=1e-5)
    few = neighbourhood(tensors, tensors.edges, tensors.weights, seeds, 1, generator, fanout=1)[1]
    for pairs in few.values():
        assert len(pairs[1].unique()) == pairs.shape[1]


def test_a_large_graph_is_trained_in_neighbourhoods(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("langgraph_toolmem.hgt.train.WHOLE", 10)
    trainer = Trainer(material(), Training(sizes=SMALL, epochs=10, batch=4, device="cpu")).run()
    assert trainer.losses[-1]["entropy"] < trainer.losses[0]["entropy"]


def test_flows_weigh_edges_between_parameters():
    mat = material()
    names = mat.views.names
    flows = {Flow("search_orders", "hits", "read_order", "reference"): 3}
    mat.history = History(uses={"read_order": 4}, flows=flows)
    tensors = mat.tensors(np.zeros((0, 2), dtype=np.int64))
    relation = (PARAMETER, "flows into", PARAMETER)
    assert tensors.weights[relation].tolist() == [pytest.approx(3 / 4)]
    ((source, target),) = tensors.edges[BEFORE].T.tolist()
    assert (names[source], names[target]) == ("search_orders", "read_order")
    hidden = mat.tensors(np.array([[source, target]]))
    assert not hidden.edges[relation].shape[1]
    assert not hidden.edges[BEFORE].shape[1]
    assert set(tensors.edges) == set(RELATIONS)


def test_a_device_that_is_not_there_is_told():
    with pytest.raises(ConfigurationError, match="cannot be used"):
        device_of("cuda:77")


# --- a memory -------------------------------------------------------------------------------------------------


def test_a_memory_is_trained_on_and_served_without_torch(tmp_path: Path):
    with ToolMemory(tmp_path, tools=large_world().values(), methods=[Navigator()]) as memory:
        with pytest.raises(ConfigurationError, match="40 are needed"):
            train(memory.navigator, QUICK)
        teach(memory, MORE_THINGS[:21])
        manifest = train(memory.navigator, QUICK)
    assert manifest["model"] == "hgt"
    assert (tmp_path / HGT).is_file()
    assert not list(tmp_path.glob("*.ckpt"))
    code = f"""
import sys
from langgraph_toolmem import Navigator, ToolMemory
with ToolMemory({str(tmp_path)!r}, read_only=True, methods=[Navigator()]) as memory:
    scorer = memory.navigator.scorer
    if scorer is not None:
        assert scorer.manifest["model"] == "hgt"
        assert scorer.before("read_carmap")
    memory.navigator.plan(target="read_carmap")
    print(scorer is not None)
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=100, capture_output=True, text=True)
    assert done.stdout.strip() == str(manifest["learned"] > manifest["structural"])
