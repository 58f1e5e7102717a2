"""A soak: mixed traffic on the whole product while each of its processes in turn fails."""
