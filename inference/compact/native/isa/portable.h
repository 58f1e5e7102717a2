/* What AVX-512 has instructions for, without them. */
#pragma once

/* Powers of two beyond these are not computed: what comes out is as good as nothing, or vast. */
#define LEAST_POWER -126.0f
#define GREATEST_POWER 127.0f

INLINE float sum_of(vec values) {
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) values[i] += values[i + half];
    return values[0];
}

INLINE float top_of(vec values) {
    float top = values[0];
    for (int i = 1; i < LANES; i++) top = values[i] > top ? values[i] : top;
    return top;
}

INLINE ints lanes_of(uint32_t set) {
    ints own;
    UNROLL for (int i = 0; i < LANES; i++) own[i] = 1 << i;
    return (((ints){0} + (int32_t)set) & own) == own;
}

/* Lanes of `values` whose bit is set, and of `others` where it is not. */
INLINE vec select_of(uint32_t set, vec values, vec others) {
    return choose(lanes_of(set), values, others);
}

/* Whether a lane whose bit is set is above `bound`. */
INLINE int any_above(uint32_t set, vec values, vec bound) {
    return any_of(lanes_of(set) & (values > bound));
}

/* Only the first `count` lanes; the others are zero, or stay as they are in memory. */
INLINE vec load_first(const float *at, int count) {
    if (count >= LANES) return load(at);
    vec values = {0};
    for (int i = 0; i < count; i++) values[i] = at[i];
    return values;
}

INLINE void store_first(float *at, vec values, int count) {
    if (count >= LANES) store(at, values);
    else for (int i = 0; i < count; i++) at[i] = values[i];
}

/* bf16 in the lower halves of `values` to the odd or even halves of pairs; the other halves are
 * cleared, or stay as they are. */
INLINE void put_halves(bf16 *pairs, bits values, int odd, int clear) {
    for (int i = 0; i < LANES; i++) {
        pairs[2 * i + odd] = (bf16)values[i];
        if (clear) pairs[2 * i + 1 - odd] = 0;
    }
}

INLINE vec within(vec x) {
    return min_of(set1(GREATEST_POWER), max_of(set1(LEAST_POWER), x));
}

/* x above the whole number below it. */
INLINE vec above_whole(vec x) {
    x = within(x);
    return x - __builtin_convertvector(floor_of(x), vec);
}

/* `y` times 2 to the whole number below x. */
INLINE vec scale_by(vec y, vec x) { return (vec)((ints)y + (floor_of(within(x)) << 23)); }
