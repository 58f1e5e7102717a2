"""The Batches port."""
