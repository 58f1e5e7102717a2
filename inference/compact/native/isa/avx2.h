/* AVX2 with FMA: half the registers of AVX-512, each half as wide. */
#pragma once

#include <immintrin.h>

#define LANES 8
/* Rows and vectors of outputs whose sums are in registers at once. */
#define TILE_ROWS 6
#define COLUMNS(rows) ((rows) == 1 ? 8 : (rows) == 2 ? 4 : 2)
/* Query rows that share one pass over a block of keys. */
#define GROUP_ROWS 4
#include "vector.h"

INLINE vec fma_of(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
INLINE int any_of(ints lanes) { return !_mm256_testz_si256((__m256i)lanes, (__m256i)lanes); }

INLINE vec choose(ints where, vec values, vec others) {
    return _mm256_blendv_ps(others, values, (vec)where);
}

/* Where a lane is NaN, that of `b`. */
INLINE vec max_of(vec a, vec b) { return _mm256_max_ps(a, b); }
INLINE vec min_of(vec a, vec b) { return _mm256_min_ps(a, b); }
INLINE ints floor_of(vec x) { return (ints)_mm256_cvttps_epi32(_mm256_floor_ps(x)); }

#include "portable.h"
#include "widened.h"
#ifdef __AVXVNNI__
#include "vnni_dot.h"
#else
#include "short_dot.h"
#endif
