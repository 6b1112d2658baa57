"""The evidence graph: tools, sequences, dataflow, past requests. No I/O, no LangChain."""
