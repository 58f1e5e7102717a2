"""Commands of what needs several subjects."""
