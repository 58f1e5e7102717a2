/* AVX-512 with products of bf16. */
#pragma once

#include <immintrin.h>

#define LANES 16
#include "masked.h"
#include "bf16_dot.h"
#include "vnni_dot.h"
