/* Products by the tiles of AMX: one instruction multiplies 16 rows of 32 bf16 with what of the
 * weights belongs to 16 outputs. Included by gemm.h in place of its own tiles. A row of a tile is
 * summed alone and k runs in the same order, so a row's result is its own here, too. */
#pragma once

#include <immintrin.h>

#define TILE_LINES 16
#define TILE_K 32
/* Rows that are computed at once. */
#define DENSE_ROWS (2 * TILE_LINES)

/* Sums of both halves of a panel for the first 16 rows and for those behind them; these rows'
 * operands; both halves of the panel's weights. The instructions take nothing but constants. */
#define FIRST_LEFT 0
#define FIRST_RIGHT 1
#define SECOND_LEFT 2
#define SECOND_RIGHT 3
#define FIRST_IN 4
#define SECOND_IN 5
#define LEFT 6
#define RIGHT 7

/* What LDTILECFG reads. */
struct tile_shapes {
    uint8_t palette, start_row, unused[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Rows that this thread's tiles are shaped for; 0 outside a task, for others set them, too. */
static _Thread_local int shaped_rows;

static void shape_tiles(int rows) {
    const uint8_t first = (uint8_t)MIN(rows, TILE_LINES), second = (uint8_t)(rows - first);
    struct tile_shapes shapes = {
        .palette = 1,
        .rows = {first, first, second, second, first, second, TILE_LINES, TILE_LINES},
    };
    /* A tile without rows must have no bytes either. */
    for (int i = 0; i < 8; i++) shapes.row_bytes[i] = shapes.rows[i] ? LINE : 0;
    /* The intrinsic tells the compiler of the first bytes alone. */
    __asm__ volatile("" ::"r"(&shapes) : "memory");
    _tile_loadconfig(&shapes);
    shaped_rows = rows;
}

/* Sums of a panel over whole tiles of k to `done`; no more than 16 rows have no second tiles. */
INLINE void sum_tiles(const struct product *p, int row, int panel, float *done, const int second) {
    const struct linear *linear = p->linear;
    const operand *in = p->in + row * p->in_stride, *below = in + TILE_LINES * p->in_stride;
    const bf16 *weights = (const bf16 *)linear->weights + (int64_t)panel * linear->k * PANEL;
    const int64_t in_bytes = p->in_stride * (int64_t)sizeof *in;
    const int pair_bytes = 2 * PANEL * sizeof *weights, done_bytes = PANEL * sizeof *done;
    _tile_zero(FIRST_LEFT);
    _tile_zero(FIRST_RIGHT);
    if (second) _tile_zero(SECOND_LEFT);
    if (second) _tile_zero(SECOND_RIGHT);
    for (int k = 0; k + TILE_K <= linear->k; k += TILE_K) {
        _tile_loadd(FIRST_IN, in + k, in_bytes);
        _tile_loadd(LEFT, weights + k * PANEL, pair_bytes);
        _tile_loadd(RIGHT, weights + k * PANEL + PANEL, pair_bytes);
        _tile_dpbf16ps(FIRST_LEFT, FIRST_IN, LEFT);
        _tile_dpbf16ps(FIRST_RIGHT, FIRST_IN, RIGHT);
        if (!second) continue;
        _tile_loadd(SECOND_IN, below + k, in_bytes);
        _tile_dpbf16ps(SECOND_LEFT, SECOND_IN, LEFT);
        _tile_dpbf16ps(SECOND_RIGHT, SECOND_IN, RIGHT);
    }
    _tile_stored(FIRST_LEFT, done, done_bytes);
    _tile_stored(FIRST_RIGHT, done + PANEL / 2, done_bytes);
    if (second) _tile_stored(SECOND_LEFT, done + TILE_LINES * PANEL, done_bytes);
    if (second) _tile_stored(SECOND_RIGHT, done + TILE_LINES * PANEL + PANEL / 2, done_bytes);
}

/* The bias, and what k has behind its last whole tile, to a row's sums. */
INLINE void add_rest(const struct product *p, int row, int panel, float *done) {
    const struct linear *linear = p->linear;
    const int whole = linear->k / TILE_K * TILE_K;
    vec sum[1][COLUMNS_MAX];
    UNROLL for (int j = 0; j < PANEL_COLUMNS; j++) {
        sum[0][j] = load(done + LANES * j);
        if (linear->bias) sum[0][j] += load(linear->bias + panel * PANEL + LANES * j);
    }
    struct pairs pairs = {
        .weights = (const bf16 *)linear->weights + ((int64_t)panel * linear->k + whole) * PANEL,
        .step = 2 * PANEL, .in = p->in + row * p->in_stride + whole, .in_step = 2,
        .count = (linear->k - whole) / 2,
    };
    add_products(sum, pairs, 1, PANEL_COLUMNS, 0);
    UNROLL for (int j = 0; j < PANEL_COLUMNS; j++) store(done + LANES * j, sum[0][j]);
}

static void rows_by_panels(const struct product *p, int row, int rows, int panel, int end) {
    _Alignas(LINE) float done[DENSE_ROWS][PANEL];
    if (rows != shaped_rows) shape_tiles(rows);
    for (; panel < end; panel++) {
        if (rows > TILE_LINES) sum_tiles(p, row, panel, done[0], 1);
        else sum_tiles(p, row, panel, done[0], 0);
        for (int i = 0; i < rows; i++) {
            add_rest(p, row + i, panel, done[i]);
            finish_panel(p, row + i, panel, done[i]);
        }
    }
}

/* Ends a task: tiles in use make each switch to another thread dearer. */
INLINE void leave_tiles(void) {
    _tile_release();
    shaped_rows = 0;
}
