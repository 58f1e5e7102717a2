"""The pages: Django templates, htmx and Plotly drawn from selectors. Not a source of any figure."""
