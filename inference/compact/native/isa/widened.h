/* Products of pairs without an instruction for them: operands are floats, and a pair of weights is
 * widened in two parts, each of them for all rows of a tile. */
#pragma once

#include "vector.h"

#define PARTS 2

typedef float operand;
typedef vec taps;

INLINE taps take(const bf16 *pairs, int part) {
    bits both = *(const bits_at *)pairs;
    return (vec)(part ? both & 0xffff0000u : both << 16);
}

INLINE taps spread(const operand *pair, int part) { return set1(pair[part]); }
INLINE vec dot(vec sum, taps left, taps right) { return fma_of(left, right, sum); }

/* Rounded to the nearest bf16, to even if two are, in the lower half of each lane. */
INLINE bits rounded(vec values) {
    bits all = (bits)values, half = all >> 16, number = (bits)(values == values);
    bits near = (all + 0x7fff + (half & 1)) >> 16;
    return (number & near) | (~number & (half | 0x40));
}

INLINE vec get(const operand *at) { return load(at); }
INLINE void put(operand *at, vec values) { store(at, values); }

INLINE void put_two(operand *at, vec first, vec second) {
    store(at, first);
    store(at + LANES, second);
}

INLINE void narrow(bf16 *at, vec values) {
    *(shorts_at *)at = __builtin_convertvector(rounded(values), shorts);
}
