/* A model and a step as Python hands them over; library.py has the same structures. */
#pragma once

#include "gemm.h"

struct layer {
    const float *input_norm, *mlp_norm, *q_norm, *k_norm;
    /* [positions][2][D]: cosines, and sines whose first half is the second negated. NULL: none. */
    const float *rope;
    struct linear qkv, out, gate_up, down;
    int32_t window;
};

struct model {
    const bf16 *embedding;
    const float *norm;
    const struct layer *layers;
    /* [layers][blocks][kv_heads] blocks of one head; see cache.h. */
    char *cache;
    struct linear head;
    int64_t blocks;
    int32_t hidden, inner, heads, kv_heads, head_dim, depth, coded_cache;
    float norm_eps;
};

/* Tokens `start` to `start + count` of a sequence in rows from `row` on; its blocks are listed
 * from `table` on in the step's tables. */
struct chunk {
    int32_t row, count, start, table;
};

struct step {
    const int32_t *tokens, *tables, *sampled;
    const struct chunk *chunks;
    float *logits;
    int32_t rows, chunk_count, sampled_count, threads;
    /* Filled in: how long the caller waited for others or was put aside by the system, and all. */
    int64_t lost_ns, step_ns;
};
