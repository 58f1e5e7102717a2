"""The text the model is trained on: dialogues made by grammars and tables, by seed, without end.

Nothing is read from files or the network; no text of anybody else is used.
"""
