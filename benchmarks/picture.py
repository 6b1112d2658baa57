"""The picture of the report in the documentation: head, savings and tool graph after 200 requests to the office agent.

    python -m benchmarks.picture [FILE]

Its model is scripted; look-ups run ahead. Chromium draws the page, 1200 pixels wide (`playwright`, an extra of `dev`).
"""

from __future__ import annotations

import shutil
import sys
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from PIL import Image
from playwright.sync_api import sync_playwright

from examples.office import assistant
from examples.office.demo import SCRIPTED, chat_model
from examples.office.office import Office
from examples.office.runs import run_tasks
from examples.office.tasks import make_tasks
from langgraph_toolmem import Inertia, TokenPrice, ToolMemory
from langgraph_toolmem.page import render_page

FILE: Final = Path(__file__).parents[1] / "docs" / "report.png"
REQUESTS: Final = 200
PRICE: Final = TokenPrice(2.5, 10.0)
COLOURS: Final = 128
"""Of the file, which then is a third of the size."""


def page() -> str:
    """The report of a memory that saw the requests once."""
    office = Office(0)
    model = chat_model(SCRIPTED, seed=0, latency_s=0.02, variation=assistant.OPTION_PERCENT)
    methods, namespace = [Inertia()], ("toolmem", "{user_id}")
    memory = ToolMemory.ephemeral(tools=office.tools(), methods=methods, namespace=namespace)
    with model as chat, memory:
        run_tasks(chat, make_tasks(REQUESTS, 0), office, memory, prefetch=True)
        title = f"Office agent, {REQUESTS} requests"
        return render_page(memory.report(price=PRICE), memory.view(), title=title)


def draw(html: str, file: Path) -> None:
    """From the head to the end of the graph, in light mode."""
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        (at := Path(folder) / "page.html").write_text(html, encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme="light")
        shown.goto(at.as_uri())
        shown.wait_for_selector("html[data-ready]")
        shown.wait_for_timeout(500)  # a frame may be drawn yet
        box = shown.locator("#graph-section").bounding_box() or {"y": 0.0, "height": 900.0}
        drawn = shown.screenshot(
            full_page=True, clip={"x": 0, "y": 0, "width": 1200, "height": box["y"] + box["height"] + 16}
        )
        browser.close()
    Image.open(BytesIO(drawn)).convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(file, optimize=True)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    draw(page(), target)
    print(f"{target}: {target.stat().st_size:,} bytes")
