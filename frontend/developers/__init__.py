"""For developers: the playground, prompt templates and the API."""
