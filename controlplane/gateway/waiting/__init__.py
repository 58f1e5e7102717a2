"""Requests that wait for a node with room: whose turn it is, how long it takes, who is shed.

Pure: no event loop, no clock, no chance. `s4_route/saturation.py` drives it; a simulator can, too.
"""
