"""Makes the shipped model: its text, its tokenizer, its weights. Never imported by a node."""
