"""The Safety port and the process of the classifier."""
