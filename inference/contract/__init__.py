"""What gateway and node agree on: frames, their codec and block hashes. Imports msgspec only."""
