/* What AVX-512 does with masks and exponents, for the instruction sets made of it. */
#pragma once

#include "vector.h"

/* Rows and vectors of outputs whose sums are in registers at once. */
#define TILE_ROWS 12
#define COLUMNS(rows) ((rows) == 1 ? 8 : (rows) <= 3 ? 4 : 2)
/* Query rows that share one pass over a block of keys. */
#define GROUP_ROWS 8

INLINE vec fma_of(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vec max_of(vec a, vec b) { return _mm512_max_ps(a, b); }
INLINE float sum_of(vec values) { return _mm512_reduce_add_ps(values); }
INLINE float top_of(vec values) { return _mm512_reduce_max_ps(values); }

/* Lanes of `values` whose bit is set, and of `others` where it is not. */
INLINE vec select_of(uint32_t set, vec values, vec others) {
    return _mm512_mask_mov_ps(others, (__mmask16)set, values);
}

/* Whether a lane whose bit is set is above `bound`. */
INLINE int any_above(uint32_t set, vec values, vec bound) {
    return _mm512_mask_cmp_ps_mask((__mmask16)set, values, bound, _CMP_GT_OQ);
}

INLINE __mmask16 first_lanes(int count) {
    return (__mmask16)(count >= LANES ? 0xffff : count <= 0 ? 0 : (1u << count) - 1);
}

/* Only the first `count` lanes; the others are zero, or stay as they are in memory. */
INLINE vec load_first(const float *at, int count) {
    return _mm512_maskz_loadu_ps(first_lanes(count), at);
}

INLINE void store_first(float *at, vec values, int count) {
    _mm512_mask_storeu_ps(at, first_lanes(count), values);
}

/* bf16 in the lower halves of `values` to the odd or even halves of pairs; the other halves are
 * cleared, or stay as they are. */
INLINE void put_halves(bf16 *pairs, bits values, int odd, int clear) {
    __mmask32 own = clear ? 0xffffffff : odd ? 0xaaaaaaaa : 0x55555555;
    _mm512_mask_storeu_epi16(pairs, own, (__m512i)(odd ? values << 16 : values));
}

/* x above the whole number below it. */
INLINE vec above_whole(vec x) {
    return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}

/* `y` times 2 to the whole number below x. */
INLINE vec scale_by(vec y, vec x) { return _mm512_scalef_ps(y, x); }
