"""The edges of Anthropic's API: requests to an `Ask`, answers to the events its clients read."""
