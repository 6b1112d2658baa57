"""SIT: state summaries on the edges of the tool graph, and what they say about the next tool."""
