/* What all instruction sets share: LANES floats as one vector, which GCC and Clang know how to add,
 * multiply and convert. What they do not know is in the header of each instruction set. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

typedef uint16_t bf16;
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t bits __attribute__((vector_size(4 * LANES)));
typedef uint16_t shorts __attribute__((vector_size(2 * LANES)));
/* The same in memory, wherever it lies. */
typedef float floats_at __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint32_t bits_at __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint16_t shorts_at __attribute__((vector_size(2 * LANES), aligned(2)));

INLINE vec load(const float *at) { return *(const floats_at *)at; }
INLINE void store(float *at, vec values) { *(floats_at *)at = values; }
INLINE vec set1(float value) { return value - (vec){0}; }

INLINE ints spread_quad(const int8_t *at) { return *(const int32_t *)at - (ints){0}; }

INLINE vec widen(const bf16 *at) {
    shorts halves = *(const shorts_at *)at;
    return (vec)(__builtin_convertvector(halves, bits) << 16);
}

/* IEEE half precision times `unit`, which has a factor of 2^112 for the other exponent. */
INLINE vec widen_half(const uint16_t *at, float unit) {
    bits all = __builtin_convertvector(*(const shorts_at *)at, bits);
    vec size = (vec)((all & 0x7fff) << 13) * set1(unit);
    return (vec)((bits)size | (all & 0x8000) << 16);
}
