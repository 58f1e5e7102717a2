/* Products of quads without an instruction for them: codes of 4 bits times int8, two by two in 16
 * bits, which hold the sums of 32 inputs. */
#pragma once

#include "vector.h"

#define CODE_BITS 4

typedef int16_t dots __attribute__((vector_size(4 * LANES)));

INLINE dots dot_quads(dots sum, ints codes, ints x) {
#if defined __AVX512BW__
    return sum + (dots)_mm512_maddubs_epi16((__m512i)codes, (__m512i)x);
#elif defined __AVX2__
    return sum + (dots)_mm256_maddubs_epi16((__m256i)codes, (__m256i)x);
#else
    dots both = (dots)codes, values = (dots)x;
    return sum + (both & 0xff) * (values << 8 >> 8) + (both >> 8) * (values >> 8);
#endif
}

INLINE ints total(dots sum) { return ((ints)sum << 16 >> 16) + ((ints)sum >> 16); }
