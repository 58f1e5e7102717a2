/* The cache of keys and values, in bf16 or as codes of int8.
 *
 * A block of one key head is keys [D / 2][32][2], then values [16][D][2]: pairs as the dot-product
 * instruction reads them. Codes are followed by what one of them stands for, in bf16: for each
 * token's key, [32], and for each token's value, [32].
 */
#pragma once

#include "quantized.h"

#define BLOCK 32
#define HEAD_DIM_MAX 256

/* Bytes of a block of one key head. */
INLINE int64_t block_bytes(int head_dim, int coded) {
    const int item = sizeof(bf16);
    return (int64_t)2 * BLOCK * (coded ? head_dim + item : head_dim * item);
}

/* The other half of a pair of values is another token's, which another thread may be writing. A
 * chunk's last token clears it, for what a past sequence left there might not be finite. */
static void store_pairs(char *block, const float *key, const float *value, int head_dim, int token,
                        int last) {
    const int clears = last && token % 2 == 0;
    bf16 *pairs = (bf16 *)block, rounded_key[HEAD_DIM_MAX];
    for (int d = 0; d < head_dim; d += LANES) narrow(rounded_key + d, load(key + d));
    for (int d = 0; d < head_dim; d += 2) memcpy(pairs + d * BLOCK + 2 * token, rounded_key + d, 4);
    pairs += BLOCK * head_dim + token / 2 * head_dim * 2;
    for (int d = 0; d < head_dim; d += LANES)
        put_halves(pairs + 2 * d, rounded(load(value + d)), token % 2, clears);
}

/* Codes of a key or value; what one stands for is NaN where a value is not finite. */
static void code_head(int8_t *codes, bf16 *scale, const float *head, int head_dim) {
    bf16 near[LANES];
    vec top = set1(0), odd = set1(0);
    for (int d = 0; d < head_dim; d += LANES) {
        vec x = load(head + d);
        top = max_of(top, max_of(x, -x));
        odd += x - x;
    }
    narrow(near, set1(top_of(top) / CODE_MAX + sum_of(odd)));
    *scale = near[0];
    const float step = widen(near)[0], inverse = step > SMALLEST ? 1 / step : 0;
    for (int d = 0; d < head_dim; d += LANES) {
        vec whole = load(head + d) * set1(inverse) + set1(ROUNDER);
        *(bytes_at *)(codes + d) = __builtin_convertvector((ints)whole, bytes_at);
    }
}

static void store_codes(char *block, const float *key, const float *value, int head_dim, int token,
                        int last) {
    bf16 *scales = (bf16 *)(block + 2 * BLOCK * head_dim);
    int8_t codes[HEAD_DIM_MAX];
    (void)last;
    code_head(codes, scales + token, key, head_dim);
    for (int d = 0; d < head_dim; d += 2) memcpy(block + d * BLOCK + 2 * token, codes + d, 2);
    code_head(codes, scales + BLOCK + token, value, head_dim);
    block += BLOCK * head_dim + token / 2 * head_dim * 2 + token % 2;
    for (int d = 0; d < head_dim; d++) block[2 * d] = codes[d];
}

/* A block's codes in bf16, which has room for all of them; the block `ahead` is called for. */
static void widen_codes(bf16 *to, const char *codes, const char *ahead, int head_dim) {
    typedef int16_t pairs_at __attribute__((vector_size(2 * LANES), aligned(2)));
    for (int line = 0; line < 2 * BLOCK * head_dim; line += LINE) {
        __builtin_prefetch(ahead + line, 0, 2);
        UNROLL for (int at = line; at < line + LINE; at += 2 * LANES) {
            ints pairs = __builtin_convertvector(*(const pairs_at *)(codes + at), ints);
            bits first = (bits)__builtin_convertvector(pairs << 24 >> 24, vec);
            bits second = (bits)__builtin_convertvector(pairs >> 8, vec);
            *(bits_at *)(to + at) = first >> 16 | (second & 0xffff0000u);
        }
    }
}
