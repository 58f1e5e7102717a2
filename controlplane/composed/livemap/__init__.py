"""The live map: what runs, as heartbeats tell it."""
