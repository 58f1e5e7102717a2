/* Products of pairs by NEON's instruction for them; operands are bf16, as weights are. */
#pragma once

#include <arm_neon.h>

#define PARTS 1

typedef bf16 operand;
typedef bfloat16x8_t taps;

INLINE taps take(const bf16 *pairs, int part) {
    (void)part;
    return vreinterpretq_bf16_u16(vld1q_u16(pairs));
}

INLINE taps spread(const operand *pair, int part) {
    uint32_t both;
    (void)part;
    memcpy(&both, pair, sizeof both);
    return vreinterpretq_bf16_u32(vdupq_n_u32(both));
}

INLINE vec dot(vec sum, taps left, taps right) {
    return (vec)vbfdotq_f32((float32x4_t)sum, left, right);
}

INLINE bits rounded(vec values) {
    return (bits)vmovl_u16(vreinterpret_u16_bf16(vcvt_bf16_f32((float32x4_t)values)));
}

INLINE vec get(const operand *at) { return widen(at); }

INLINE void put(operand *at, vec values) {
    vst1_u16(at, vreinterpret_u16_bf16(vcvt_bf16_f32((float32x4_t)values)));
}

INLINE void put_two(operand *at, vec first, vec second) {
    put(at, first);
    put(at + LANES, second);
}

INLINE void narrow(bf16 *at, vec values) { put(at, values); }
