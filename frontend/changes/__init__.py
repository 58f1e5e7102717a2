"""Pages of changes: of limits and budgets, and of prices."""
