"""Files of requests and the batches that run them: their API, how they are read, who runs them."""
