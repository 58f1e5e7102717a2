/* Products of pairs by the instruction for them: operands are bf16, as weights are. */
#pragma once

#include "vector.h"

#define PARTS 1

typedef bf16 operand;
typedef __m512i taps;

INLINE taps take(const bf16 *pairs, int part) {
    (void)part;
    return _mm512_loadu_si512(pairs);
}

INLINE taps spread(const operand *pair, int part) {
    (void)part;
    return _mm512_set1_epi32(*(const int32_t *)pair);
}

INLINE vec dot(vec sum, taps left, taps right) {
    return _mm512_dpbf16_ps(sum, (__m512bh)left, (__m512bh)right);
}

/* Rounded to bf16, in the lower half of each lane. */
INLINE bits rounded(vec values) {
    return (bits)_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(values));
}

INLINE vec get(const operand *at) { return widen(at); }

INLINE void put(operand *at, vec values) {
    _mm256_storeu_si256((__m256i *)at, (__m256i)_mm512_cvtneps_pbh(values));
}

INLINE void put_two(operand *at, vec first, vec second) {
    _mm512_storeu_si512(at, (__m512i)_mm512_cvtne2ps_pbh(second, first));
}

INLINE void narrow(bf16 *at, vec values) { put(at, values); }
