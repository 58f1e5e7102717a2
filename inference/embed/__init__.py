"""The encoder behind `engines/embed.py`: texts as token ids in, one vector each out."""
