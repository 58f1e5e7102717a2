/* Products of quads by the instruction for them: codes of up to 8 bits times int8. */
#pragma once

#include "vector.h"

#define CODE_BITS 8

typedef ints dots;

INLINE dots dot_quads(dots sum, ints codes, ints x) {
#ifdef __AVX512VNNI__
    return (dots)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)codes, (__m512i)x);
#else
    return (dots)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)codes, (__m256i)x);
#endif
}

INLINE ints total(dots sum) { return sum; }
