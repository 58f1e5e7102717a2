"""The node side of Sluice: engines, tokenizer text work and the wire contract; no Django here."""
