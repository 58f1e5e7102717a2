/* AVX-512 without products of bf16, as CPUs before Cooper Lake and Zen 4 have it. */
#pragma once

#include <immintrin.h>

#define LANES 16
#include "masked.h"
#include "widened.h"
#ifdef __AVX512VNNI__
#include "vnni_dot.h"
#else
#include "short_dot.h"
#endif
