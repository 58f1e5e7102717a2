/* Rows of int8 times packed codes of 4 or 8 bits, summed as whole numbers within 32 inputs.
 *
 * A panel of 32 outputs is, for each group of inputs: 32 scales in half precision; 32 centres, where
 * there are any; codes as [group / 4][32][4] bytes, of 4 bits as [group / 8][32][4], the first quad in
 * the lower halves. A weight is (code - 2^(bits - 1)) * scale + centre. Sums of 32 inputs are added in
 * order, so a row's result does not depend on the batch.
 */
#pragma once

#include "gemm.h"

#define INPUTS 32
#define QUADS (INPUTS / 4)
/* Rows whose sums are in registers at once: tiles of other products may be higher. */
#define QUANTIZED_ROWS MIN(TILE_ROWS, 12)
#define CODE_MAX 127.0f
/* Inputs that are all smaller count as zero: their scale's inverse might be infinite. */
#define SMALLEST 1e-30f
/* Added to a small float, it leaves the nearest whole number in the lowest bits. */
#define ROUNDER 12582912.0f

typedef int8_t bytes_at __attribute__((vector_size(LANES), aligned(1)));

/* Of 32 inputs: what a code stands for, their sum, and what is added for codes that start at 0. */
struct quantized_scale {
    float scale, sum, offset;
};

/* Rows of codes, [k], and of scales, [k / 32]. */
struct quantized {
    int8_t *codes;
    struct quantized_scale *scales;
};

/* A value that is not finite makes the sum NaN, and by it the whole row's result. */
static void quantize_row(const struct quantized *to, const struct linear *linear, const operand *in,
                         int64_t row) {
    int8_t *codes = to->codes + row * linear->k;
    struct quantized_scale *scale = to->scales + row * (linear->k / INPUTS);
    for (in += row * linear->k; codes != to->codes + (row + 1) * linear->k; codes += INPUTS, in += INPUTS) {
        vec x[INPUTS / LANES], top = set1(0), sum = set1(0);
        UNROLL for (int i = 0; i < INPUTS / LANES; i++) {
            x[i] = get(in + LANES * i);
            top = max_of(top, max_of(x[i], -x[i]));
        }
        const float most = top_of(top), inverse = most > SMALLEST ? CODE_MAX / most : 0;
        UNROLL for (int i = 0; i < INPUTS / LANES; i++) {
            vec near = x[i] * set1(inverse) + set1(ROUNDER);
            *(bytes_at *)(codes + LANES * i) = __builtin_convertvector((ints)near, bytes_at);
            sum += near - set1(ROUNDER);
        }
        scale->scale = most / CODE_MAX;
        scale->sum = sum_of(sum) * scale->scale;
        scale->offset = -(float)(1 << (linear->bits - 1)) * scale->sum;
        scale++;
    }
}

/* Quad `quad` of 32 inputs for a vector of outputs from `codes` on; of 8 bits, the lower half or the
 * upper where an instruction set takes only halves. */
INLINE ints take_codes(const uint8_t *codes, int quad, int pass, const int width) {
    bits all = *(const bits_at *)(codes + quad * width / 8 * PANEL * 4);
    if (width == CODE_BITS && width == 8) return (ints)all;
    int upper = width == 8 ? pass : quad % 2;
    return (ints)((upper ? all >> 4 : all) & 0x0f0f0f0f);
}

struct block {
    const uint8_t *codes;
    const int8_t *x;
    const struct quantized_scale *x_scales;
    int64_t x_row, scales_row;
    const vec *scales, *centres;
};

/* Add the products of 32 inputs to `done`, [row][32]. */
INLINE void add_block(float (*done)[PANEL], struct block b, const int rows, const int columns,
                      const int width, const int centred) {
    for (int pass = 0; pass < (width > CODE_BITS ? 2 : 1); pass++) {
        dots sum[QUANTIZED_ROWS][COLUMNS_MAX];
        UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < columns; j++)
            sum[i][j] = (dots){0};
        UNROLL for (int quad = 0; quad < QUADS; quad++) {
            ints codes[COLUMNS_MAX];
            UNROLL for (int j = 0; j < columns; j++)
                codes[j] = take_codes(b.codes + j * LANES * 4, quad, pass, width);
            UNROLL for (int i = 0; i < rows; i++) {
                ints x = spread_quad(b.x + i * b.x_row + quad * 4);
                UNROLL for (int j = 0; j < columns; j++) sum[i][j] = dot_quads(sum[i][j], codes[j], x);
            }
        }
        UNROLL for (int i = 0; i < rows; i++) {
            const struct quantized_scale *x = b.x_scales + i * b.scales_row;
            vec scale = set1(pass ? 16 * x->scale : x->scale), offset = set1(pass ? 0 : x->offset);
            UNROLL for (int j = 0; j < columns; j++) {
                vec value = fma_of(__builtin_convertvector(total(sum[i][j]), vec), scale, offset);
                vec all = fma_of(value, b.scales[j], load(&done[i][j * LANES]));
                if (centred && !pass) all = fma_of(b.centres[j], set1(x->sum), all);
                store(&done[i][j * LANES], all);
            }
        }
    }
}

/* One panel for `rows` rows; `rows`, `width` and `centred` are constants where this is inlined. */
INLINE void quantized_tile(const struct product *p, int row, int panel, const int rows,
                           const int width, const int centred) {
    const struct linear *linear = p->linear;
    const int columns = MIN(COLUMNS(rows), PANEL_COLUMNS), k = linear->k;
    const int header = PANEL * 2 * (1 + centred), size = PANEL * INPUTS * width / 8;
    const int64_t record = header + (int64_t)size * (linear->group / INPUTS);
    _Alignas(LINE) float done[QUANTIZED_ROWS][PANEL];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < PANEL; j += LANES)
            store(&done[i][j], linear->bias ? load(linear->bias + panel * PANEL + j) : set1(0));
    for (int first = 0; first < PANEL; first += columns * LANES) {
        const uint8_t *at = (const uint8_t *)linear->weights + panel * record * (k / linear->group);
        vec scales[COLUMNS_MAX], centres[COLUMNS_MAX];
        struct block block = {
            .x = p->quantized->codes + (int64_t)row * k, .x_row = k,
            .x_scales = p->quantized->scales + (int64_t)row * (k / INPUTS), .scales_row = k / INPUTS,
            .scales = scales, .centres = centres,
        };
        for (int group = 0; group < k; group += linear->group, at += record) {
            const uint16_t *halves = (const uint16_t *)at + first;
            UNROLL for (int j = 0; j < columns; j++) {
                scales[j] = widen_half(halves + j * LANES, linear->unit);
                if (centred) centres[j] = widen_half(halves + PANEL + j * LANES, linear->unit);
            }
            block.codes = at + header + first * 4;
            for (int input = 0; input < linear->group; input += INPUTS) {
                add_block((float (*)[PANEL])&done[0][first], block, rows, columns, width, centred);
                block.codes += size;
                block.x += INPUTS;
                block.x_scales++;
            }
        }
    }
    for (int i = 0; i < rows; i++) finish_panel(p, row + i, panel, done[i]);
}

INLINE void quantized_panels(const struct product *p, int row, int rows, int panel, int end,
                             const int width, const int centred) {
#define CASE(n) case n: \
        if (n <= QUANTIZED_ROWS) quantized_tile(p, row, panel, MIN(n, QUANTIZED_ROWS), width, centred); \
        break;
    for (; panel < end; panel++)
        switch (rows) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10)
                    CASE(11) CASE(12) }
#undef CASE
}

static void rows_by_quantized(const struct product *p, int row, int rows, int panel, int end) {
    const int width = p->linear->bits, centred = p->linear->centred;
    for (int n; rows; row += n, rows -= n) {
        n = MIN(rows, QUANTIZED_ROWS);
        if (width == 4 && !centred) quantized_panels(p, row, n, panel, end, 4, 0);
        if (width == 4 && centred) quantized_panels(p, row, n, panel, end, 4, 1);
        if (width == 8 && !centred) quantized_panels(p, row, n, panel, end, 8, 0);
        if (width == 8 && centred) quantized_panels(p, row, n, panel, end, 8, 1);
    }
}
