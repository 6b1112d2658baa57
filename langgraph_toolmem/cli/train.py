"""`toolmem train`: the graph model learns the memory's links (extra `hgt`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from langgraph_toolmem.base.errors import ConfigurationError, MissingExtraError
from langgraph_toolmem.cli.inputs import open_memory
from langgraph_toolmem.cli.options import Embeddings, Json, MemoryFolder
from langgraph_toolmem.cli.terminal import answer_json, console, described_progress

HEADS = ("mlp", "bilinear", "separable")


def train(
    memory: MemoryFolder,
    *,
    device: Annotated[str, typer.Option(help="auto: CUDA if there is any; or cpu, cuda, cuda:1.")] = "auto",
    epochs: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many.")] = 200,
    width: Annotated[int, typer.Option(min=8, metavar="N", help="Numbers of a node's vector; 8 divides it.")] = 256,
    head: Annotated[str, typer.Option(help="mlp, bilinear, or separable: the paper's.")] = "mlp",
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
    bf16: Annotated[bool, typer.Option("--bf16", help="Half the numbers' width where that is safe.")] = False,
    embeddings: Embeddings = "builtin",
    as_json: Json = False,
) -> None:
    """Train the graph model on the links between tools that the memory has seen.

    Plans use it from now on if it foresees links better than what the memory learns by itself. Needs torch
    (pip install "langgraph-toolmem[hgt]"); using it does not.
    """
    if head not in HEADS or width % 8:
        raise ConfigurationError(f"--head is one of {', '.join(HEADS)}, and --width is divided by 8")
    try:
        from langgraph_toolmem.hgt.export import train as train_links
        from langgraph_toolmem.hgt.model import Sizes
        from langgraph_toolmem.hgt.train import Training
    except ImportError as error:
        if (error.name or "").split(".")[0] != "torch":
            raise
        raise MissingExtraError("Training", "hgt") from error
    sizes: dict[str, Any] = {"width": width, "head": head}
    how = Training(sizes=Sizes(**sizes), epochs=epochs, seed=seed, device=device, autocast=bf16)
    with open_memory(memory, embeddings=embeddings) as opened, described_progress(epochs, show=not as_json) as bar:

        def told(epoch: int, found: Mapping[str, float]) -> None:
            bar(epoch + 1, "  ".join(f"{name} {value:.3f}" for name, value in found.items()))

        manifest = train_links(opened.navigator, how, told=told)
        used = opened.navigator.scorer
        model = getattr(used, "manifest", {}).get("model", "structure and record alone")
    if as_json:
        answer_json({**manifest, "used": model})
        return
    out = console()
    out.print(
        f"{manifest['links']:,} links learned in {manifest['epochs']} epochs. Of other producers "
        f"{manifest['learned']:.0%} rank below the right one of a link that was not shown, "
        f"{manifest['structural']:.0%} by structure alone. Plans use: {model}.",
        soft_wrap=True,
    )
