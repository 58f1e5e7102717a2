"""What a request asks of a model: generating text, embedding it, or a look ahead."""
