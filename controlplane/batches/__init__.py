"""Batches of requests as pages see them; gateways take and run them."""
