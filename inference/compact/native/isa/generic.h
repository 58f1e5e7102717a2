/* Any CPU with vectors of four floats, in whatever instructions the compiler finds for them. */
#pragma once

#define LANES 4
/* Rows and vectors of outputs whose sums are in registers at once: 32 in NEON, 16 elsewhere. */
#ifdef __aarch64__
#define TILE_ROWS 4
#define COLUMNS(rows) ((rows) == 1 ? 8 : 4)
#else
#define TILE_ROWS 6
#define COLUMNS(rows) ((rows) == 1 ? 8 : (rows) == 2 ? 4 : 2)
#endif
/* Query rows that share one pass over a block of keys. */
#define GROUP_ROWS 4
#include "vector.h"

INLINE vec fma_of(vec a, vec b, vec c) { return a * b + c; }
INLINE int any_of(ints lanes) { return lanes[0] | lanes[1] | lanes[2] | lanes[3]; }

INLINE vec choose(ints where, vec values, vec others) {
    return (vec)((where & (ints)values) | (~where & (ints)others));
}

/* Where a lane is NaN, that of `b`. */
INLINE vec max_of(vec a, vec b) { return choose(a > b, a, b); }
INLINE vec min_of(vec a, vec b) { return choose(a < b, a, b); }

INLINE ints floor_of(vec x) {
    ints whole = __builtin_convertvector(x, ints);
    /* Where rounding to zero went up, this adds -1. */
    return whole + (__builtin_convertvector(whole, vec) > x);
}

#include "portable.h"
#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
#include "neon_bf16.h"
#else
#include "widened.h"
#endif
#include "short_dot.h"
