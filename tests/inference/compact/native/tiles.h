/* The tiles of AMX in plain C, as Intel's manual defines them, for CPUs that have none: given to the
 * compiler before step.c, in place of the instructions. What a CPU would refuse ends the process. */
#pragma once

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TILES 8
#define TILE_BYTES_MAX 64
#define TILE_ROWS_MAX 16

struct emulated_config {
    uint8_t palette, start_row, unused[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

static _Thread_local struct {
    struct emulated_config config;
    _Alignas(64) uint8_t data[TILES][TILE_ROWS_MAX][TILE_BYTES_MAX];
} tiles;

static inline void refuse_unless(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "tiles: %s\n", what);
    abort();
}

static inline int rows_of(int tile) {
    refuse_unless(tiles.config.palette == 1 && tiles.config.rows[tile], "not configured");
    return tiles.config.rows[tile];
}

static void emulated_loadconfig(const void *config) {
    memset(&tiles, 0, sizeof tiles);
    memcpy(&tiles.config, config, sizeof tiles.config);
    refuse_unless(tiles.config.palette == 1 && !tiles.config.start_row, "palette");
    for (int i = 0; i < 14; i++) refuse_unless(!tiles.config.unused[i], "reserved bytes");
    for (int i = 0; i < 16; i++) {
        int rows = tiles.config.rows[i], bytes = tiles.config.row_bytes[i];
        refuse_unless(i < TILES || (!rows && !bytes), "more than eight tiles");
        refuse_unless(rows <= TILE_ROWS_MAX && bytes <= TILE_BYTES_MAX, "too large");
        refuse_unless(!rows == !bytes, "rows without bytes");
    }
}

static inline void emulated_release(void) { memset(&tiles, 0, sizeof tiles); }
static inline void emulated_zero(int tile) {
    rows_of(tile);
    memset(tiles.data[tile], 0, sizeof tiles.data[tile]);
}

static inline void emulated_load(int tile, const void *from, int64_t stride) {
    int rows = rows_of(tile);
    memset(tiles.data[tile], 0, sizeof tiles.data[tile]);
    for (int row = 0; row < rows; row++)
        memcpy(tiles.data[tile][row], (const uint8_t *)from + row * stride,
               tiles.config.row_bytes[tile]);
}

static inline void emulated_store(int tile, void *to, int64_t stride) {
    for (int row = 0; row < rows_of(tile); row++)
        memcpy((uint8_t *)to + row * stride, tiles.data[tile][row], tiles.config.row_bytes[tile]);
}

/* Denormals count as zero, in and out. */
static inline float flushed(float value) {
    return fabsf(value) < 1.17549435e-38f ? copysignf(0, value) : value;
}

static inline float half_of(uint32_t pair, int odd) {
    uint32_t bits = odd ? pair & 0xffff0000u : pair << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return flushed(value);
}

/* All products of one pair of sums, even and odd, before these meet what was there. */
static void emulated_products(int to, int left, int right) {
    const int rows = rows_of(to), pairs = tiles.config.row_bytes[left] / 4;
    const int columns = tiles.config.row_bytes[to] / 4;
    refuse_unless(rows_of(left) == rows && rows_of(right) == pairs, "rows do not fit");
    refuse_unless(tiles.config.row_bytes[right] == 4 * columns, "columns do not fit");
    refuse_unless(to != left && to != right && left != right, "the same tile twice");
    for (int row = 0; row < rows; row++) {
        float even[16] = {0}, odd[16] = {0}, sums[16];
        uint32_t in[16], weights[16];
        memcpy(in, tiles.data[left][row], sizeof in);
        memcpy(sums, tiles.data[to][row], sizeof sums);
        for (int pair = 0; pair < pairs; pair++) {
            memcpy(weights, tiles.data[right][pair], sizeof weights);
            const float first = half_of(in[pair], 0), second = half_of(in[pair], 1);
            for (int i = 0; i < columns; i++) {
                even[i] = flushed(fmaf(first, half_of(weights[i], 0), even[i]));
                odd[i] = flushed(fmaf(second, half_of(weights[i], 1), odd[i]));
            }
        }
        for (int i = 0; i < columns; i++)
            sums[i] = flushed(flushed(sums[i]) + flushed(even[i] + odd[i]));
        memcpy(tiles.data[to][row], sums, sizeof sums);
    }
}

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadconfig emulated_loadconfig
#define _tile_release emulated_release
#define _tile_zero emulated_zero
#define _tile_loadd emulated_load
#define _tile_stored emulated_store
#define _tile_dpbf16ps emulated_products
