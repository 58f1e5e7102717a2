"""Fleet: nodes and the credentials they dial in with."""
