"""The size classifier: text of its own, training, errors on text held out, and its time."""
