"""What a node is chosen by: its cost, the ring, what is remembered; and what the receipt says.

`s4_route` looks prompts up and asks; a simulator drives the same cost.
"""
