"""One self-contained HTML page: what a memory did, and its tool graph to explore. Needs the extra `html`."""

from langgraph_toolmem.page.render import render_page

__all__ = ["render_page"]
