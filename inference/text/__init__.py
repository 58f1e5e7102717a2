"""Text and token ids: encode, decode, chat template. For gateway and nodes; needs no torch."""
