/* What the C of scalar_printer.py calls: element types, and scalar ops that C has no function for. */
#include <tgmath.h>
#include <stdint.h>
#include <string.h>
typedef struct { uint16_t bits; } bf16;
static int64_t fd(int64_t a, int64_t b) { return b ? a / b - (a % b != 0 && (a < 0) != (b < 0)) : 0; }
static int64_t fm(int64_t a, int64_t b) { return b ? a - fd(a, b) * b : a; }
static int64_t saturated(int64_t a) { return a < INT32_MIN ? INT32_MIN : a > INT32_MAX ? INT32_MAX : a; }
static int64_t ip(int64_t a, int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
  int64_t r = 1; while (b--) r = (int64_t)((uint64_t)r * (uint64_t)a); return r; }
static double wide(bf16 x) { uint32_t u = (uint32_t)x.bits << 16; float f; memcpy(&f, &u, 4); return f; }
static bf16 narrow(float f) { uint32_t u; memcpy(&u, &f, 4); bf16 r;
  r.bits = isnan(f) ? 0x7fc0 : (u + 0x7fff + ((u >> 16) & 1)) >> 16; return r; }
static double fmodulo(double a, double b) { double r = fmod(a, b); return r != 0 && (r < 0) != (b < 0) ? r + b : r; }
static double ffloor(double a, double b) { if (b == 0) return a / b; double m = fmod(a, b), d = (a - m) / b;
  if (m != 0 && (b < 0) != (m < 0)) d -= 1; if (d == 0) return copysign(0.0, a / b);
  double f = floor(d); return d - f > 0.5 ? f + 1 : f; }
typedef float f32; typedef double f64; typedef _Float16 f16;
typedef int8_t i8; typedef int16_t i16; typedef int32_t i32; typedef int64_t i64; typedef uint8_t u8; typedef uint8_t b8;
#define op_add(a, b) ((a) + (b))
#define op_sub(a, b) ((a) - (b))
#define op_mul(a, b) ((a) * (b))
#define op_div(a, b) ((a) / (b))
#define op_eq(a, b) ((a) == (b))
#define op_ne(a, b) ((a) != (b))
#define op_lt(a, b) ((a) < (b))
#define op_le(a, b) ((a) <= (b))
#define op_gt(a, b) ((a) > (b))
#define op_ge(a, b) ((a) >= (b))
#define op_and(a, b) ((a) & (b))
#define op_or(a, b) ((a) | (b))
#define op_xor(a, b) ((a) ^ (b))
#define op_where(c, a, b) ((c) ? (a) : (b))
#define op_neg(a) (-(a))
#define b_not(a) (!(a))
#define i_not(a) (~(a))
#define i_shl(a, b) ((b) < 0 || (b) >= 8 * (int)sizeof(a) ? 0 : (int64_t)((uint64_t)(a) << (b)))
#define i_shr(a, b) ((int64_t)(a) >> ((b) < 0 || (b) >= 8 * (int)sizeof(a) ? 63 : (b)))
#define f_floordiv(a, b) ffloor(a, b)
#define f_mod(a, b) fmodulo(a, b)
#define f_truncdiv(a, b) trunc((a) / (b))
#define f_round(a) rint(a)
#define f_rsqrt(a) (1 / sqrt(a))
#define f_abs(a) fabs(a)
#define f_max(a, b) (isnan(a) || (a) > (b) ? (a) : (b))
#define f_min(a, b) (isnan(a) || (a) < (b) ? (a) : (b))
#define i_floordiv(a, b) fd(a, b)
#define i_mod(a, b) fm(a, b)
#define i_truncdiv(a, b) ((a) / (b))
#define i_fmod(a, b) ((a) % (b))
#define i_pow(a, b) ip(a, b)
#define i_abs(a) ((a) < 0 ? -(a) : (a))
#define i_max(a, b) ((a) > (b) ? (a) : (b))
#define i_min(a, b) ((a) < (b) ? (a) : (b))
