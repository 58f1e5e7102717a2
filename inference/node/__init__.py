"""The node: dials out to every gateway, feeds one engine, keeps reports until acknowledged.

Listens on nothing and knows no engine by name; `inference/__main__.py` chooses that.
"""
