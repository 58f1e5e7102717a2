"""The compact engine's step on CPUs with AVX512_BF16: C that the machine's own compiler builds."""
