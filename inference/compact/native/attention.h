/* Paged attention with a running softmax, block of 32 keys by block, bf16 with fp32 sums.
 *
 * Decoding and prefill take the same steps in the same order for a row, so its result depends neither
 * on the chunk that it came in nor on its neighbours. Masked keys weigh exactly nothing. Codes of
 * int8 are multiplied as they are, in bf16: what they stand for goes into scores and weights.
 */
#pragma once

#include "cache.h"

#define BLOCK_COLUMNS (BLOCK / LANES)
/* Query rows in one tile of a task. */
#define TILE_QUERIES 64
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

typedef struct {
    operand both[2];
} pair_of_operands;

/* Rows of one tile; queries lie [group][D / 2][GROUP_ROWS] pairs. */
struct attention_scratch {
    _Alignas(LINE) float sums[TILE_QUERIES][HEAD_DIM_MAX];
    _Alignas(LINE) vec weight_sums[TILE_QUERIES];
    _Alignas(LINE) pair_of_operands queries[TILE_QUERIES * HEAD_DIM_MAX / 2];
    _Alignas(LINE) float scores[GROUP_ROWS][BLOCK];
    _Alignas(LINE) operand weights[GROUP_ROWS][BLOCK];
    _Alignas(LINE) bf16 widened[2 * BLOCK * HEAD_DIM_MAX];
    float reference[TILE_QUERIES];
    int32_t position[TILE_QUERIES];
};

struct block_view {
    /* `scales` of codes, else NULL. */
    const bf16 *keys, *values, *ahead, *scales;
    int first, pairs, head_dim, window;
};

/* Which of the block's 32 keys the row at `position` sees. */
INLINE uint32_t visible(const struct block_view *block, int position) {
    int end = position - block->first + 1;
    uint32_t seen = end >= BLOCK ? ~0u : end <= 0 ? 0 : (1u << end) - 1;
    int begin = block->window ? end - block->window : 0;
    return begin <= 0 ? seen : begin >= BLOCK ? 0 : seen & ~0u << begin;
}

/* Moves the row's reference up to its highest score, and with it what was summed up so far. */
static void move_reference(struct attention_scratch *s, int row, int place, int head_dim,
                           uint32_t seen) {
    vec top = set1(-INFINITY);
    UNROLL for (int j = 0; j < BLOCK_COLUMNS; j++)
        top = max_of(top, select_of(seen >> LANES * j, load(&s->scores[place][LANES * j]),
                                    set1(-INFINITY)));
    float reference = top_of(top);
    vec shrink = exp2_of(set1(s->reference[row] - reference));
    s->reference[row] = reference;
    s->weight_sums[row] *= shrink;
    for (int d = 0; d < head_dim; d += LANES)
        store(&s->sums[row][d], load(&s->sums[row][d]) * shrink);
}

/* Scores of a row to weights; moves the row's reference where scores outgrow it. */
INLINE void weigh(struct attention_scratch *s, const struct block_view *block, int row, int place) {
    const uint32_t seen = visible(block, s->position[row]);
    vec score[BLOCK_COLUMNS], bound = set1(s->reference[row] + SLACK);
    int over = 0;
    UNROLL for (int j = 0; j < BLOCK_COLUMNS; j++) {
        score[j] = load(&s->scores[place][LANES * j]);
        over |= any_above(seen >> LANES * j, score[j], bound);
    }
    if (__builtin_expect(over, 0)) move_reference(s, row, place, block->head_dim, seen);
    vec reference = set1(s->reference[row]), sum = s->weight_sums[row];
    UNROLL for (int j = 0; j < BLOCK_COLUMNS; j++)
        score[j] = select_of(seen >> LANES * j, exp2_of(score[j] - reference), set1(0));
    UNROLL for (int j = 0; j < BLOCK_COLUMNS; j += 2) {
        sum += score[j] + score[j + 1];
        if (block->scales) UNROLL for (int each = j; each < j + 2; each++) {
            vec scaled = score[each] * widen(block->scales + BLOCK + LANES * each);
            score[each] = select_of(seen >> LANES * each, scaled, set1(0));
        }
        put_two(&s->weights[place][LANES * j], score[j], score[j + 1]);
    }
    s->weight_sums[row] = sum;
}

/* Add weights times `columns` vectors of values from `d` on. */
INLINE void gather(struct attention_scratch *s, const struct block_view *block, int row, int d,
                   const int rows, const int columns) {
    vec sum[GROUP_ROWS][COLUMNS_MAX];
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < columns; j++)
        sum[i][j] = load(&s->sums[row + i][d + LANES * j]);
    struct pairs pairs = {
        .weights = block->values + 2 * d, .step = 2 * block->head_dim,
        .ahead = block->ahead + block->head_dim * BLOCK + 2 * d,
        .in = s->weights[0], .in_step = 2, .in_row = BLOCK, .count = block->pairs,
    };
    add_products(sum, pairs, rows, columns, 1);
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < columns; j++)
        store(&s->sums[row + i][d + LANES * j], sum[i][j]);
}

/* One block for `rows` queries from `row` on. */
INLINE void group_block(struct attention_scratch *s, const struct block_view *block, int row,
                        const int rows) {
    const int head_dim = block->head_dim, columns = MIN(COLUMNS(rows), BLOCK_COLUMNS);
    /* A head is some vectors of 16; 32 at once where registers are enough. */
    const int half = MIN(columns, 16 / LANES);
    for (int first = 0; first < BLOCK_COLUMNS; first += columns) {
        vec score[GROUP_ROWS][COLUMNS_MAX];
        UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < columns; j++)
            score[i][j] = set1(0);
        struct pairs pairs = {
            .weights = block->keys + first * 2 * LANES, .step = 2 * BLOCK,
            .ahead = block->ahead + first * 2 * LANES,
            .in = s->queries[row * (head_dim / 2)].both, .in_step = 2 * GROUP_ROWS, .in_row = 2,
            .count = head_dim / 2,
        };
        add_products(score, pairs, rows, columns, 1);
        if (block->scales) UNROLL for (int j = 0; j < columns; j++) {
            vec scale = widen(block->scales + LANES * (first + j));
            UNROLL for (int i = 0; i < rows; i++) score[i][j] *= scale;
        }
        UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < columns; j++)
            store(&s->scores[i][LANES * (first + j)], score[i][j]);
    }
    for (int i = 0; i < rows; i++) weigh(s, block, row + i, i);
    int d = 0;
    for (; d + columns * LANES <= head_dim; d += columns * LANES)
        gather(s, block, row, d, rows, columns);
    for (; d < head_dim; d += half * LANES) gather(s, block, row, d, rows, half);
}

static void rows_by_block(struct attention_scratch *s, const struct block_view *b, int row, int n) {
#define CASE(n) case n: if (n <= GROUP_ROWS) group_block(s, b, row, MIN(n, GROUP_ROWS)); break;
    switch (n) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) }
#undef CASE
}

/* What a tile needs to know of the model: sizes, and the layer's blocks. */
struct attention {
    const operand *queries;
    const char *blocks;
    operand *out;
    int32_t coded, heads, kv_heads, head_dim, window;
};

static void start_rows(struct attention_scratch *s, const struct attention *a,
                       const struct tile_of_queries *tile, int kv_head, int sharing) {
    const int pairs = a->head_dim / 2;
    for (int token = 0; token < tile->count; token++)
        for (int g = 0; g < sharing; g++) {
            int row = token * sharing + g, head = kv_head * sharing + g;
            int64_t at = ((int64_t)(tile->row + token) * a->heads + head) * a->head_dim;
            const pair_of_operands *from = (const pair_of_operands *)(a->queries + at);
            pair_of_operands *to = s->queries + row / GROUP_ROWS * GROUP_ROWS * pairs + row % GROUP_ROWS;
            for (int d = 0; d < pairs; d++) to[d * GROUP_ROWS] = from[d];
            memset(s->sums[row], 0, (size_t)a->head_dim * sizeof(float));
            s->weight_sums[row] = set1(0);
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
            vec scale = set1(1 / sum_of(s->weight_sums[row]));
            for (int d = 0; d < a->head_dim; d += LANES)
                put(a->out + at + d, load(&s->sums[row][d]) * scale);
        }
}

/* All queries of a tile that share one key head. */
static void attend(struct attention_scratch *s, const struct attention *a,
                   const struct tile_of_queries *tile, int kv_head) {
    const int sharing = a->heads / a->kv_heads, rows = tile->count * sharing;
    const int64_t size = block_bytes(a->head_dim, a->coded);
    const int last = (tile->position + tile->count - 1) / BLOCK;
    const int begin = a->window ? tile->position - a->window + 1 : 0;
    struct block_view block = {.head_dim = a->head_dim, .window = a->window};
    start_rows(s, a, tile, kv_head, sharing);
    for (int index = begin > 0 ? begin / BLOCK : 0; index <= last; index++) {
        int ahead = index + BLOCKS_AHEAD <= last ? index + BLOCKS_AHEAD : last;
        const char *at = a->blocks + ((int64_t)tile->table[index] * a->kv_heads + kv_head) * size;
        const char *next = a->blocks + ((int64_t)tile->table[ahead] * a->kv_heads + kv_head) * size;
        block.keys = (const bf16 *)at;
        block.ahead = (const bf16 *)next;
        if (a->coded) {
            widen_codes(s->widened, at, next, a->head_dim);
            block.scales = (const bf16 *)(at + 2 * BLOCK * a->head_dim);
            block.keys = block.ahead = s->widened;
        }
        block.values = block.keys + BLOCK * a->head_dim;
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
