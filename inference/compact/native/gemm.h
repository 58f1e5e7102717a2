/* Rows of operands times packed bf16 weights, summed in fp32, with what follows done in registers.
 * Operands are bf16 where an instruction multiplies pairs of those, else fp32.
 *
 * Weights are packed in panels of 32 outputs: [panel][k / 2][32][2], as that instruction reads them. Each output is one running sum over k in order, whatever the number of rows and
 * threads: a row's result does not depend on what else is in the batch.
 */
#pragma once

#if defined __AVX512BF16__
#include "isa/avx512_bf16.h"
#elif defined __AVX512F__ && defined __AVX512BW__ && defined __AVX512DQ__ && defined __AVX512VL__
#include "isa/avx512.h"
#elif defined __AVX2__ && defined __FMA__
#include "isa/avx2.h"
#else
#include "isa/generic.h"
#endif

#define PANEL 32
#define COLUMNS_MAX 8
#define PANEL_COLUMNS (PANEL / LANES)
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define LINE 64

/* y = x W + bias. `k` is even; `outputs` are what is stored of the panels' columns. Quantized weights
 * have codes of `bits`, else 0, and the other fields; see quantized.h. */
struct linear {
    const void *weights;
    const float *bias;
    int32_t k, panels, outputs, bits, group, centred;
    float unit;
};

/* STORE fp32, ADD to fp32, or GATE: a panel holds 16 gates and their 16 ups, out come operands. */
enum finish { STORE, ADD, GATE };

struct product {
    const struct linear *linear;
    const operand *in;
    const struct quantized *quantized;
    void *out;
    int64_t in_stride, out_stride;
    int32_t rows, row_parts, panel_parts, tile_rows;
    enum finish finish;
    /* Computes so many rows, at most `tile_rows`, by panels up to an end. */
    void (*compute)(const struct product *, int row, int rows, int panel, int end);
};

/* Pairs of weights and operands that are multiplied in turn: where the first lie, how far it is to
 * the next, to the next panel of weights and to the next row of operands. */
struct pairs {
    const bf16 *weights, *ahead;
    const operand *in;
    int64_t step, panel_step, in_step, in_row;
    int count;
};

/* Add products to sums; `rows`, `columns` and `calls` (whether `ahead` is called for) are constants
 * where this is inlined. */
INLINE void add_products(vec sum[][COLUMNS_MAX], struct pairs p, const int rows, const int columns,
                         const int calls) {
    const operand *end = p.in + p.count * p.in_step;
    for (; p.in != end; p.weights += p.step, p.in += p.in_step) {
        if (calls) {
            UNROLL for (int at = 0; at < columns * LANES * 2; at += LINE / 2)
                __builtin_prefetch(p.ahead + at, 0, 2);
            p.ahead += p.step;
        }
        UNROLL for (int part = 0; part < PARTS; part++) {
            taps w[COLUMNS_MAX];
            UNROLL for (int j = 0; j < columns; j++)
                w[j] = take(p.weights + j / PANEL_COLUMNS * p.panel_step +
                            j % PANEL_COLUMNS * 2 * LANES, part);
            UNROLL for (int i = 0; i < rows; i++) {
                taps x = spread(p.in + i * p.in_row, part);
                UNROLL for (int j = 0; j < columns; j++) sum[i][j] = dot(sum[i][j], w[j], x);
            }
        }
    }
}

/* 2 to the x, to 3e-6 relative; NaN stays NaN. A polynomial for what is above the whole number below
 * x, which the last step puts back. */
INLINE vec exp2_of(vec x) {
    vec part = above_whole(x), y = set1(1.3426689e-2f);
    y = fma_of(y, part, set1(5.2242467e-2f));
    y = fma_of(y, part, set1(2.4128021e-1f));
    y = fma_of(y, part, set1(6.9304484e-1f));
    y = fma_of(y, part, set1(1));
    return scale_by(y, x);
}

INLINE vec silu(vec x) { return x / (set1(1) + exp2_of(x * set1(-1.44269504f))); }

/* Sums of one row and panel, [32], to where they belong. */
static void finish_panel(const struct product *p, int row, int panel, const float *sums) {
    if (p->finish == GATE) {
        operand *gated = (operand *)p->out + row * p->out_stride + panel * (PANEL / 2);
        UNROLL for (int i = 0; i < PANEL / 2; i += LANES)
            put(gated + i, silu(load(sums + i)) * load(sums + PANEL / 2 + i));
        return;
    }
    float *out = (float *)p->out + row * p->out_stride + panel * PANEL;
    const int left = p->linear->outputs - panel * PANEL;
    UNROLL for (int i = 0; i < PANEL; i += LANES) {
        vec sum = load(sums + i);
        store_first(out + i, p->finish == ADD ? sum + load(out + i) : sum, left - i);
    }
}

#ifdef __AMX_BF16__
#include "isa/amx.h"
#else
/* Rows that are computed at once. */
#define DENSE_ROWS TILE_ROWS

/* One tile of `rows` x `panels`; both are constants where this is inlined. */
INLINE void tile(const struct product *p, int row, int panel, const int rows, const int panels) {
    const struct linear *linear = p->linear;
    const int all = panels * PANEL_COLUMNS, columns = MIN(COLUMNS(rows), all);
    _Alignas(LINE) float done[TILE_ROWS][COLUMNS_MAX * LANES];
    for (int first = 0; first < all; first += columns) {
        const int output = panel * PANEL + first * LANES;
        vec sum[TILE_ROWS][COLUMNS_MAX];
        UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < columns; j++)
            sum[i][j] = linear->bias ? load(linear->bias + output + LANES * j) : set1(0);
        struct pairs pairs = {
            .weights = (const bf16 *)linear->weights + (int64_t)panel * linear->k * PANEL + first * 2 * LANES,
            .step = 2 * PANEL, .panel_step = (int64_t)linear->k * PANEL,
            .in = p->in + row * p->in_stride, .in_step = 2, .in_row = p->in_stride,
            .count = linear->k / 2,
        };
        add_products(sum, pairs, rows, columns, 0);
        UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < columns; j++)
            store(&done[i][(first + j) * LANES], sum[i][j]);
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < panels; j++) finish_panel(p, row + i, panel + j, &done[i][PANEL * j]);
}

/* Few rows take several panels at once: a single chain of sums would wait for itself. */
INLINE void tiles_along(const struct product *p, int row, int panel, int end, const int rows) {
    const int wide = COLUMNS(rows) > PANEL_COLUMNS ? COLUMNS(rows) / PANEL_COLUMNS : 1;
    for (; panel + wide <= end; panel += wide) tile(p, row, panel, rows, wide);
    for (; panel < end; panel++) tile(p, row, panel, rows, 1);
}

static void rows_by_panels(const struct product *p, int row, int rows, int panel, int end) {
#define CASE(n) case n: if (n <= TILE_ROWS) tiles_along(p, row, panel, end, MIN(n, TILE_ROWS)); break;
    switch (rows) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10)
                    CASE(11) CASE(12) }
#undef CASE
}

INLINE void leave_tiles(void) {}
#endif

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
    /* Tiles of one height; of quantized weights all but the last one are whole. */
    int tiles = (last - first + p->tile_rows - 1) / p->tile_rows;
    int rows = p->linear->bits ? tiles * p->tile_rows : last - first;
    /* A panel stays in the nearest cache while all rows of the part go over it. */
    int step = tiles > 1 ? 1 : end - panel;
    for (; panel < end; panel += step)
        for (int each = 0; each < tiles; each++) {
            int row = first + cut(rows, tiles, each), next = first + cut(rows, tiles, each + 1);
            p->compute(p, row, MIN(next, last) - row, panel, panel + step);
        }
    leave_tiles();
}
