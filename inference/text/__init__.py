"""Text and token ids: encode, decode, chat template. Shared by gateway and nodes; needs no torch."""
