"""`sluice load` itself: beside `vllm bench serve`, and as fast as it goes: `make bench-load`."""
