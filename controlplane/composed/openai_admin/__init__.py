"""Usage, costs, projects, keys and changes in the shapes of OpenAI's API."""
