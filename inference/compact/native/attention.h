/* Paged attention with a running softmax, block of 32 keys by block, in bf16 with fp32 sums.
 *
 * A block of one key head is keys [D / 2][32][2], then values [16][D][2]: pairs as the dot-product
 * instruction reads them. Decoding and prefill take the same steps in the same order for a row, so
 * its result depends neither on the chunk that it came in nor on its neighbours. Masked keys weigh
 * exactly nothing.
 */
#pragma once

#include "gemm.h"

#include <math.h>
#include <string.h>

#define BLOCK 32
/* Query rows that share one pass over a block in registers, and in one tile of a task. */
#define GROUP_ROWS 8
#define TILE_QUERIES 64
#define HEAD_DIM_MAX 256
/* How far ahead blocks are called for: a decoding row spends less time on one than memory does. */
#define BLOCKS_AHEAD 2
/* A row's reference is moved only when a score passes it by this much: 2^8 is harmless in fp32. */
#define SLACK 8.0f

/* Queries of one sequence: `count` tokens from `position` on, in rows from `row` on. Their outputs
 * go to rows from `out_row` on; `table` lists the sequence's blocks. */
struct tile_of_queries {
    const int32_t *table;
    int32_t row, count, position, out_row;
};

/* Rows of one tile; queries lie [group][D / 2][8] pairs. */
struct attention_scratch {
    _Alignas(64) float sums[TILE_QUERIES][HEAD_DIM_MAX];
    _Alignas(64) __m512 weight_sums[TILE_QUERIES];
    _Alignas(64) uint32_t queries[TILE_QUERIES * HEAD_DIM_MAX / 2];
    _Alignas(64) float scores[GROUP_ROWS][BLOCK];
    _Alignas(64) uint32_t weights[GROUP_ROWS][BLOCK / 2];
    float reference[TILE_QUERIES];
    int32_t position[TILE_QUERIES];
};

struct block_view {
    const bf16 *keys, *values, *ahead;
    int first, pairs, head_dim, window;
};

INLINE float highest(__m512 low, __m512 high) { return _mm512_reduce_max_ps(_mm512_max_ps(low, high)); }

/* Which of the block's 32 keys the row at `position` sees. */
INLINE uint32_t visible(const struct block_view *block, int position) {
    int end = position - block->first + 1;
    uint32_t seen = end >= BLOCK ? ~0u : end <= 0 ? 0 : (1u << end) - 1;
    int begin = block->window ? end - block->window : 0;
    return begin <= 0 ? seen : begin >= BLOCK ? 0 : seen & ~0u << begin;
}

/* Scores of a row to weights in bf16; moves the row's reference where scores outgrow it. */
INLINE void weigh(struct attention_scratch *s, int row, int place, int head_dim, uint32_t seen) {
    __m512 low = _mm512_load_ps(s->scores[place]), high = _mm512_load_ps(s->scores[place] + 16);
    __mmask16 seen_low = (__mmask16)seen, seen_high = (__mmask16)(seen >> 16);
    __m512 bound = _mm512_set1_ps(s->reference[row] + SLACK);
    unsigned over = _mm512_mask_cmp_ps_mask(seen_low, low, bound, _CMP_GT_OQ) |
                    _mm512_mask_cmp_ps_mask(seen_high, high, bound, _CMP_GT_OQ);
    if (__builtin_expect(over, 0)) {
        __m512 none = _mm512_set1_ps(-INFINITY);
        float top = highest(_mm512_mask_mov_ps(none, seen_low, low),
                            _mm512_mask_mov_ps(none, seen_high, high));
        __m512 shrink = exp2_ps(_mm512_set1_ps(s->reference[row] - top));
        s->reference[row] = top;
        s->weight_sums[row] = _mm512_mul_ps(s->weight_sums[row], shrink);
        for (int d = 0; d < head_dim; d += 16) {
            __m512 sum = _mm512_load_ps(&s->sums[row][d]);
            _mm512_store_ps(&s->sums[row][d], _mm512_mul_ps(sum, shrink));
        }
    }
    __m512 reference = _mm512_set1_ps(s->reference[row]);
    low = _mm512_maskz_mov_ps(seen_low, exp2_ps(_mm512_sub_ps(low, reference)));
    high = _mm512_maskz_mov_ps(seen_high, exp2_ps(_mm512_sub_ps(high, reference)));
    s->weight_sums[row] = _mm512_add_ps(s->weight_sums[row], _mm512_add_ps(low, high));
    _mm512_store_si512(s->weights[place], (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

/* Add weights times 16 * `parts` columns of values from `d` on. */
INLINE void gather(struct attention_scratch *s, const struct block_view *block, int row, int d,
                   const int rows, const int parts) {
    __m512 sum[GROUP_ROWS][2];
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < parts; j++)
        sum[i][j] = _mm512_load_ps(&s->sums[row + i][d + 16 * j]);
    const bf16 *values = block->values + 2 * d;
    const bf16 *ahead = block->ahead + block->head_dim * BLOCK + 2 * d;
    const int step = 2 * block->head_dim;
    for (int pair = 0; pair < block->pairs; pair++, values += step, ahead += step) {
        __m512i v[2];
        UNROLL for (int j = 0; j < parts; j++) {
            v[j] = load_pairs(values + 32 * j);
            _mm_prefetch((const char *)(ahead + 32 * j), _MM_HINT_T1);
        }
        UNROLL for (int i = 0; i < rows; i++) {
            __m512i weight = _mm512_set1_epi32((int)s->weights[i][pair]);
            UNROLL for (int j = 0; j < parts; j++) sum[i][j] = dot(sum[i][j], v[j], weight);
        }
    }
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < parts; j++)
        _mm512_store_ps(&s->sums[row + i][d + 16 * j], sum[i][j]);
}

/* One block for `rows` queries from `row` on. */
INLINE void group_block(struct attention_scratch *s, const struct block_view *block, int row,
                        const int rows) {
    const int head_dim = block->head_dim;
    const uint32_t *queries = s->queries + row * (head_dim / 2);
    __m512 score[GROUP_ROWS][2];
    UNROLL for (int i = 0; i < rows; i++) score[i][0] = score[i][1] = _mm512_setzero_ps();
    for (int d = 0; d < head_dim / 2; d++) {
        __m512i low = load_pairs(block->keys + d * 64), high = load_pairs(block->keys + d * 64 + 32);
        _mm_prefetch((const char *)(block->ahead + d * 64), _MM_HINT_T1);
        _mm_prefetch((const char *)(block->ahead + d * 64 + 32), _MM_HINT_T1);
        UNROLL for (int i = 0; i < rows; i++) {
            __m512i query = _mm512_set1_epi32((int)queries[d * GROUP_ROWS + i]);
            score[i][0] = dot(score[i][0], low, query);
            score[i][1] = dot(score[i][1], high, query);
        }
    }
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < 2; j++)
        _mm512_store_ps(&s->scores[i][16 * j], score[i][j]);
    for (int i = 0; i < rows; i++)
        weigh(s, row + i, i, head_dim, visible(block, s->position[row + i]));
    int d = 0;
    for (; d + 32 <= head_dim; d += 32) gather(s, block, row, d, rows, 2);
    if (d < head_dim) gather(s, block, row, d, rows, 1);
}

static void rows_by_block(struct attention_scratch *s, const struct block_view *b, int row, int n) {
    switch (n) {
    case 1: group_block(s, b, row, 1); break;
    case 2: group_block(s, b, row, 2); break;
    case 3: group_block(s, b, row, 3); break;
    case 4: group_block(s, b, row, 4); break;
    case 5: group_block(s, b, row, 5); break;
    case 6: group_block(s, b, row, 6); break;
    case 7: group_block(s, b, row, 7); break;
    default: group_block(s, b, row, 8);
    }
}

/* What a tile needs to know of the model: sizes, and the layer's blocks. */
struct attention {
    const bf16 *queries, *blocks;
    bf16 *out;
    int32_t heads, kv_heads, head_dim, window;
};

static void start_rows(struct attention_scratch *s, const struct attention *a,
                       const struct tile_of_queries *tile, int kv_head, int sharing) {
    const int pairs = a->head_dim / 2;
    for (int token = 0; token < tile->count; token++)
        for (int g = 0; g < sharing; g++) {
            int row = token * sharing + g, head = kv_head * sharing + g;
            int64_t at = ((int64_t)(tile->row + token) * a->heads + head) * a->head_dim;
            const uint32_t *from = (const uint32_t *)(a->queries + at);
            uint32_t *to = s->queries + row / GROUP_ROWS * GROUP_ROWS * pairs + row % GROUP_ROWS;
            for (int d = 0; d < pairs; d++) to[d * GROUP_ROWS] = from[d];
            memset(s->sums[row], 0, (size_t)a->head_dim * sizeof(float));
            s->weight_sums[row] = _mm512_setzero_ps();
            s->reference[row] = -1e30f;
            s->position[row] = tile->position + token;
        }
}

static void finish_rows(const struct attention_scratch *s, const struct attention *a,
                        const struct tile_of_queries *tile, int kv_head, int sharing) {
    for (int token = 0; token < tile->count; token++)
        for (int g = 0; g < sharing; g++) {
            int row = token * sharing + g, head = kv_head * sharing + g;
            int64_t at = ((int64_t)(tile->out_row + token) * a->heads + head) * a->head_dim;
            __m512 scale = _mm512_set1_ps(1 / _mm512_reduce_add_ps(s->weight_sums[row]));
            for (int d = 0; d < a->head_dim; d += 16)
                narrow(a->out + at + d, _mm512_mul_ps(_mm512_load_ps(&s->sums[row][d]), scale));
        }
}

/* All queries of a tile that share one key head. */
static void attend(struct attention_scratch *s, const struct attention *a,
                   const struct tile_of_queries *tile, int kv_head) {
    const int sharing = a->heads / a->kv_heads, rows = tile->count * sharing;
    const int64_t size = (int64_t)2 * BLOCK * a->head_dim;
    const int last = (tile->position + tile->count - 1) / BLOCK;
    const int begin = a->window ? tile->position - a->window + 1 : 0;
    struct block_view block = {.head_dim = a->head_dim, .window = a->window};
    start_rows(s, a, tile, kv_head, sharing);
    for (int index = begin > 0 ? begin / BLOCK : 0; index <= last; index++) {
        int ahead = index + BLOCKS_AHEAD <= last ? index + BLOCKS_AHEAD : last;
        block.keys = a->blocks + ((int64_t)tile->table[index] * a->kv_heads + kv_head) * size;
        block.values = block.keys + size / 2;
        block.ahead = a->blocks + ((int64_t)tile->table[ahead] * a->kv_heads + kv_head) * size;
        block.first = index * BLOCK;
        /* Beyond the tile's last token nothing is read: another sequence's rest may lie there. */
        int tokens = tile->position + tile->count - block.first;
        block.pairs = tokens >= BLOCK ? BLOCK / 2 : (tokens + 1) / 2;
        for (int row = 0; row < rows; row += GROUP_ROWS) {
            int group = rows - row < GROUP_ROWS ? rows - row : GROUP_ROWS;
            if (s->position[row + group - 1] >= block.first) rows_by_block(s, &block, row, group);
        }
    }
    finish_rows(s, a, tile, kv_head, sharing);
}
