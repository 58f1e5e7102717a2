/* Rows of bf16 times packed bf16 weights, summed in fp32, with what follows done in registers.
 *
 * Weights are packed in panels of 32 outputs: [panel][k / 2][32][2], as the dot-product instruction
 * reads them. Each output is one running sum over k in order, whatever the number of rows and
 * threads: a row's result does not depend on what else is in the batch.
 */
#pragma once

#include <immintrin.h>
#include <stdint.h>

#define PANEL 32
#define TILE_ROWS 12
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32")

typedef uint16_t bf16;

/* y = x W + bias. `k` is even; `outputs` are what is stored of the panels' columns. */
struct linear {
    const bf16 *weights;
    const float *bias;
    int32_t k, panels, outputs;
};

/* STORE fp32, ADD to fp32, or GATE: a panel holds 16 gates and their 16 ups, out comes bf16. */
enum finish { STORE, ADD, GATE };

struct product {
    const struct linear *linear;
    const bf16 *in;
    void *out;
    int64_t in_stride, out_stride;
    int32_t rows, row_parts, panel_parts;
    enum finish finish;
};

INLINE __m512i load_pairs(const bf16 *at) { return _mm512_loadu_si512(at); }

INLINE __m512 dot(__m512 sum, __m512i left, __m512i right) {
    return _mm512_dpbf16_ps(sum, (__m512bh)left, (__m512bh)right);
}

INLINE __m512i twice(const bf16 *pair) { return _mm512_set1_epi32(*(const int32_t *)pair); }

INLINE __m512 widen(const bf16 *at) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)at));
    return (__m512)_mm512_slli_epi32(wide, 16);
}

INLINE void narrow(bf16 *at, __m512 values) {
    _mm256_storeu_si256((__m256i *)at, (__m256i)_mm512_cvtneps_pbh(values));
}

/* 2 to the x, to 3e-6 relative; NaN stays NaN. A polynomial for what is above the whole number below
 * x, which the last instruction puts back. */
INLINE __m512 exp2_ps(__m512 x) {
    __m512 part = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 y = _mm512_set1_ps(1.3426689e-2f);
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(5.2242467e-2f));
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(2.4128021e-1f));
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(6.9304484e-1f));
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(1));
    return _mm512_scalef_ps(y, x);
}

INLINE __m512 silu(__m512 x) {
    __m512 e = exp2_ps(_mm512_mul_ps(x, _mm512_set1_ps(-1.44269504f)));
    return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1), e));
}

/* Sums of one row and panel, [32], to where they belong. */
static void finish_panel(const struct product *p, int row, int panel, const float *sums) {
    __m512 low = _mm512_load_ps(sums), high = _mm512_load_ps(sums + 16);
    if (p->finish == GATE) {
        bf16 *out = (bf16 *)p->out + row * p->out_stride + panel * (PANEL / 2);
        narrow(out, _mm512_mul_ps(silu(low), high));
        return;
    }
    float *out = (float *)p->out + row * p->out_stride + panel * PANEL;
    if (p->finish == ADD) {
        low = _mm512_add_ps(low, _mm512_loadu_ps(out));
        high = _mm512_add_ps(high, _mm512_loadu_ps(out + 16));
    }
    int left = p->linear->outputs - panel * PANEL;
    uint32_t kept = left >= PANEL ? ~0u : (1u << left) - 1;
    _mm512_mask_storeu_ps(out, (__mmask16)kept, low);
    _mm512_mask_storeu_ps(out + 16, (__mmask16)(kept >> 16), high);
}

/* One tile of `rows` x `panels`; both are constants where this is inlined. */
INLINE void tile(const struct product *p, int row, int panel, const int rows, const int panels) {
    const struct linear *linear = p->linear;
    const int64_t step = (int64_t)linear->k * PANEL;
    const bf16 *weights = linear->weights + panel * step;
    const bf16 *in = p->in + row * p->in_stride;
    const int64_t stride = p->in_stride;
    __m512 sum[TILE_ROWS][8];
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < 2 * panels; j++)
        sum[i][j] = linear->bias ? _mm512_loadu_ps(linear->bias + panel * PANEL + 16 * j)
                                 : _mm512_setzero_ps();
    for (int k = 0; k < linear->k; k += 2, weights += 2 * PANEL, in += 2) {
        __m512i w[8];
        UNROLL for (int j = 0; j < 2 * panels; j++)
            w[j] = load_pairs(weights + (j / 2) * step + (j % 2) * PANEL);
        UNROLL for (int i = 0; i < rows; i++) {
            __m512i x = twice(in + i * stride);
            UNROLL for (int j = 0; j < 2 * panels; j++) sum[i][j] = dot(sum[i][j], w[j], x);
        }
    }
    _Alignas(64) float done[TILE_ROWS][8 * 16];
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < 2 * panels; j++)
        _mm512_store_ps(&done[i][16 * j], sum[i][j]);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < panels; j++) finish_panel(p, row + i, panel + j, &done[i][PANEL * j]);
}

/* Few rows take several panels at once: a single chain of sums would wait for itself. */
INLINE void tiles_along(const struct product *p, int row, int panel, int end, const int rows) {
    const int wide = rows == 1 ? 4 : rows <= 3 ? 2 : 1;
    for (; panel + wide <= end; panel += wide) tile(p, row, panel, rows, wide);
    for (; panel < end; panel++) tile(p, row, panel, rows, 1);
}

static void rows_by_panels(const struct product *p, int row, int rows, int panel, int end) {
    switch (rows) {
    case 1: tiles_along(p, row, panel, end, 1); break;
    case 2: tiles_along(p, row, panel, end, 2); break;
    case 3: tiles_along(p, row, panel, end, 3); break;
    case 4: tiles_along(p, row, panel, end, 4); break;
    case 5: tiles_along(p, row, panel, end, 5); break;
    case 6: tiles_along(p, row, panel, end, 6); break;
    case 7: tiles_along(p, row, panel, end, 7); break;
    case 8: tiles_along(p, row, panel, end, 8); break;
    case 9: tiles_along(p, row, panel, end, 9); break;
    case 10: tiles_along(p, row, panel, end, 10); break;
    case 11: tiles_along(p, row, panel, end, 11); break;
    default: tiles_along(p, row, panel, end, 12);
    }
}

/* Part `part` of `whole` things cut into `parts`: where it starts. */
INLINE int cut(int whole, int parts, int part) { return (int)((int64_t)whole * part / parts); }

static void product_task(void *job, int task, int lane) {
    const struct product *p = job;
    (void)lane;
    int rows_part = task / p->panel_parts, panels_part = task % p->panel_parts;
    int first = cut(p->rows, p->row_parts, rows_part);
    int last = cut(p->rows, p->row_parts, rows_part + 1);
    int panel = cut(p->linear->panels, p->panel_parts, panels_part);
    int end = cut(p->linear->panels, p->panel_parts, panels_part + 1);
    if (last - first <= TILE_ROWS) {
        rows_by_panels(p, first, last - first, panel, end);
        return;
    }
    /* A panel stays in the nearest cache while all rows of the part go over it. */
    int tiles = (last - first + TILE_ROWS - 1) / TILE_ROWS;
    for (; panel < end; panel++)
        for (int each = 0; each < tiles; each++) {
            int row = first + cut(last - first, tiles, each);
            int next = first + cut(last - first, tiles, each + 1);
            rows_by_panels(p, row, next - row, panel, panel + 1);
        }
}
