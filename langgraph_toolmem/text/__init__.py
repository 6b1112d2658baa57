"""Words, values and meanings of texts, names and schemas, and their similarity."""
