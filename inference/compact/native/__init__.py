"""The compact engine's step on CPUs: C that the machine's own compiler builds."""
