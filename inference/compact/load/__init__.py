"""From a checkpoint folder to weights on a device."""
