/* One head of one row: normed, rotated, and its key and value stored in the layout of attention.h. */
#pragma once

#include "attention.h"

/* 1 / root mean square of `n` values. */
static float scale_of(const float *x, int n, float eps) {
    __m512 squares = _mm512_setzero_ps();
    for (int i = 0; i < n; i += 16) {
        __m512 part = _mm512_loadu_ps(x + i);
        squares = _mm512_fmadd_ps(part, part, squares);
    }
    return 1 / sqrtf(_mm512_reduce_add_ps(squares) / (float)n + eps);
}

/* A query or key head: normed where `norm` is given, rotated where `rope` is, times `factor`. */
static void turn_head(float *head, int head_dim, const float *norm, float eps, const float *rope,
                      float factor) {
    const int half = head_dim / 2;
    const __m512 factors = _mm512_set1_ps(factor);
    if (norm) {
        __m512 scale = _mm512_set1_ps(scale_of(head, head_dim, eps));
        for (int d = 0; d < head_dim; d += 16) {
            __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(head + d), scale);
            _mm512_storeu_ps(head + d, _mm512_mul_ps(scaled, _mm512_loadu_ps(norm + d)));
        }
    }
    /* Half a head may be half a vector. */
    for (int d = 0; d < half; d += 16) {
        __mmask16 kept = half - d >= 16 ? 0xffff : 0xff;
        __m512 first = _mm512_maskz_loadu_ps(kept, head + d);
        __m512 second = _mm512_maskz_loadu_ps(kept, head + half + d);
        if (rope) {
            __m512 cosine = _mm512_maskz_loadu_ps(kept, rope + d);
            __m512 sine = _mm512_maskz_loadu_ps(kept, rope + 3 * half + d);
            __m512 turned = _mm512_fnmadd_ps(second, sine, _mm512_mul_ps(first, cosine));
            second = _mm512_fmadd_ps(first, sine, _mm512_mul_ps(second, cosine));
            first = turned;
        }
        _mm512_mask_storeu_ps(head + d, kept, _mm512_mul_ps(first, factors));
        _mm512_mask_storeu_ps(head + half + d, kept, _mm512_mul_ps(second, factors));
    }
}

static void store_key(bf16 *keys, const float *head, int head_dim, int token) {
    bf16 rounded[HEAD_DIM_MAX];
    for (int d = 0; d < head_dim; d += 16) narrow(rounded + d, _mm512_loadu_ps(head + d));
    for (int d = 0; d < head_dim; d += 2) memcpy(keys + d * BLOCK + 2 * token, rounded + d, 4);
}

/* The other half of the pair is another token's, which another thread may be writing. A chunk's
 * last token clears it, for what a past sequence left there might not be finite. */
static void store_value(bf16 *values, const float *head, int head_dim, int token, int last) {
    __mmask32 own = token % 2 ? 0xaaaaaaaa : 0x55555555;
    if (last && token % 2 == 0) own = 0xffffffff;
    for (int d = 0; d < head_dim; d += 16) {
        __m512i wide = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(head + d)));
        if (token % 2) wide = _mm512_slli_epi32(wide, 16);
        _mm512_mask_storeu_epi16(values + (token / 2 * head_dim + d) * 2, own, wide);
    }
}
