"""Sizes rounded up to a grid, so that a step takes one of few shapes. No torch.

Libraries and GPUs keep compiled code per shape: 1,100 shapes cost 300 MB after a few minutes.
"""

# (up to this many rows, in steps of); more rows come in the last step.
ROW_GRID = ((8, 1), (64, 8), (256, 32))
ROW_STEP_ABOVE = 64
# Keys that one product of queries and keys goes over.
KEYS_STEP = 128


def round_up(count: int, step: int) -> int:
    """The least multiple of `step` that is not below `count`."""
    return -(-count // step) * step


def round_up_rows(count: int) -> int:
    """The least row count of the grid that is not below `count`."""
    step = next((step for bound, step in ROW_GRID if count <= bound), ROW_STEP_ABOVE)
    return round_up(count, step)
