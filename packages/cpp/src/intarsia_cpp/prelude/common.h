//: bc  one number in every lane; x - 0 keeps -0.0, x + 0 would not
template <class V> INL V bc(typename of<V>::e x) { return x - V{}; }
//: cv  lane-wise conversion as C converts
template <class W, class V> INL W cv(V a) { return __builtin_convertvector(a, W); }
//: hide  the same floats, as values that the compiler knows nothing about: it folds NaN to another integer than hardware
template <class V> INL V hide(V a) {
  typedef typename of<V>::i I; typename of<I>::e none = 0; asm("" : "+r"(none)); return (V)((I)a | bc<I>(none)); }
//: ld st  a full vector, any alignment
template <class V> INL V ld(const typename of<V>::e *p) { V v; __builtin_memcpy(&v, p, sizeof v); return v; }
template <class V> INL void st(typename of<V>::e *p, V v) { __builtin_memcpy(p, &v, sizeof v); }
//: lanes  a in the first n lanes, b in the others
template <class V> INL V lanes(int n, V a, V b) {
  typedef typename of<V>::i I; return (iota<I>() < bc<I>((typename of<I>::e)n)) ? a : b; }
//: vmax vmin  NaN when either is NaN
template <class V> INL V vmax(V a, V b) { return ((b > a) | (b != b)) ? b : a; }
template <class V> INL V vmin(V a, V b) { return ((b < a) | (b != b)) ? b : a; }
//: imax imin  narrow types in 32 bits: GCC 12 fails on masked 8 and 16 bit maxima
template <class V> INL V imax(V a, V b) {
  if constexpr (sizeof(typename of<V>::e) < 4) return cv<V>(imax(cv<typename of<V>::w>(a), cv<typename of<V>::w>(b)));
  else return b > a ? b : a; }
template <class V> INL V imin(V a, V b) {
  if constexpr (sizeof(typename of<V>::e) < 4) return cv<V>(imin(cv<typename of<V>::w>(a), cv<typename of<V>::w>(b)));
  else return b < a ? b : a; }
//: vabs
template <class V> INL V vabs(V a) { typedef typename of<V>::i I; return (V)((I)a & ~(I)-V{}); }
//: iabs
template <class V> INL V iabs(V a) { return a < 0 ? -a : a; }
//: vcopysign
template <class V> INL V vcopysign(V a, V b) { typedef typename of<V>::i I; const I s = (I)-V{}; return (V)(((I)a & ~s) | ((I)b & s)); }
//: fsqrt ffloor fceil ftrunc fround
INL f32 fsqrt(f32 x) { return __builtin_sqrtf(x); }
INL f64 fsqrt(f64 x) { return __builtin_sqrt(x); }
INL f32 ffloor(f32 x) { return __builtin_floorf(x); }
INL f64 ffloor(f64 x) { return __builtin_floor(x); }
INL f32 fceil(f32 x) { return __builtin_ceilf(x); }
INL f64 fceil(f64 x) { return __builtin_ceil(x); }
INL f32 ftrunc(f32 x) { return __builtin_truncf(x); }
INL f64 ftrunc(f64 x) { return __builtin_trunc(x); }
INL f32 fround(f32 x) { return __builtin_rintf(x); }
INL f64 fround(f64 x) { return __builtin_rint(x); }
//: vsqrt
template <class V> INL V vsqrt(V a) { for (int l = 0; l < of<V>::n; l++) a[l] = fsqrt(a[l]); return a; }
//: vfloor vceil vtrunc vround
template <class V> INL V vfloor(V a) { for (int l = 0; l < of<V>::n; l++) a[l] = ffloor(a[l]); return a; }
template <class V> INL V vceil(V a) { for (int l = 0; l < of<V>::n; l++) a[l] = fceil(a[l]); return a; }
template <class V> INL V vtrunc(V a) { for (int l = 0; l < of<V>::n; l++) a[l] = ftrunc(a[l]); return a; }
template <class V> INL V vround(V a) { for (int l = 0; l < of<V>::n; l++) a[l] = fround(a[l]); return a; }
//: fma_  one rounding where the hardware has it; two elsewhere
template <class V> INL V fma_(V a, V b, V c) { return a * b + c; }
//: mn mx  the second operand when either is NaN
template <class V> INL V mn(V a, V b) { return a < b ? a : b; }
template <class V> INL V mx(V a, V b) { return a > b ? a : b; }
//: ldexp2  a * 2**n for a whole n in [-300, 300], f32
template <class V> INL V ldexp2(V a, V n) {
  typedef typename of<V>::i I; const I k = cv<I>(n), h = k >> 1;
  return a * (V)((h + 127) << 23) * (V)((k - h + 127) << 23); }
//: ldt stt  the first n lanes; the others are 0 and are not touched in memory
template <class V> INL V ldt(const typename of<V>::e *p, int n) { V v{}; __builtin_memcpy(&v, p, n * sizeof(*p)); return v; }
template <class V> INL void stt(typename of<V>::e *p, V v, int n) { __builtin_memcpy(p, &v, n * sizeof(*p)); }
//: SHUFFLE  lanes of a and b by their numbers; GCC has __builtin_shufflevector since 12
#ifdef __clang__
#define SHUFFLE(A, B, ...) __builtin_shufflevector(A, B, __VA_ARGS__)
#else
#define SHUFFLE(A, B, ...) __builtin_shuffle(A, B, typename of<V>::i{__VA_ARGS__})
#endif
//: half  the first or (k = 1) the second half of a vector
template <class H, class V> INL H half(V v, int k) { H h; __builtin_memcpy(&h, (char *)&v + k * sizeof h, sizeof h); return h; }
//: joined
template <class V, class H> INL V joined(H a, H b) {
  V v; __builtin_memcpy(&v, &a, sizeof a); __builtin_memcpy((char *)&v + sizeof a, &b, sizeof b); return v; }
//: swapped  lane l takes lane l ^ W
template <int W, class V> INL V swapped(V v) {
  constexpr int n = of<V>::n;
  if constexpr (n == 2) return SHUFFLE(v, v, 0 ^ W, 1 ^ W);
  else if constexpr (n == 4) return SHUFFLE(v, v, 0 ^ W, 1 ^ W, 2 ^ W, 3 ^ W);
  else if constexpr (n == 8) return SHUFFLE(v, v, 0 ^ W, 1 ^ W, 2 ^ W, 3 ^ W, 4 ^ W, 5 ^ W, 6 ^ W, 7 ^ W);
  else return SHUFFLE(v, v, 0 ^ W, 1 ^ W, 2 ^ W, 3 ^ W, 4 ^ W, 5 ^ W, 6 ^ W, 7 ^ W, 8 ^ W, 9 ^ W, 10 ^ W,
    11 ^ W, 12 ^ W, 13 ^ W, 14 ^ W, 15 ^ W); }
//: fold_sum fold_prod fold_max fold_min fold_imax fold_imin fold_or fold_and  across lanes, as a tree
#define FOLD(NAME, OP) \
  template <class V> INL V NAME##_pair(V a, V b) { return OP; } \
  template <class V> INL typename of<V>::e NAME(V v) { \
    if constexpr (of<V>::n > 8) v = NAME##_pair(v, swapped<8>(v)); \
    if constexpr (of<V>::n > 4) v = NAME##_pair(v, swapped<4>(v)); \
    if constexpr (of<V>::n > 2) v = NAME##_pair(v, swapped<2>(v)); \
    return NAME##_pair(v, swapped<1>(v))[0]; }
FOLD(fold_sum, a + b)
FOLD(fold_prod, a * b)
FOLD(fold_max, ((b > a) | (b != b)) ? b : a)
FOLD(fold_min, ((b < a) | (b != b)) ? b : a)
FOLD(fold_imax, imax(a, b))
FOLD(fold_imin, imin(a, b))
FOLD(fold_or, a | b)
FOLD(fold_and, a & b)
//: up_bf16
template <class W, class V> INL W up_bf16(V h) { typedef typename of<W>::u U; return (W)(cv<U>(h) << 16); }
//: rounded_bf16  up_bf16 of down_bf16, without leaving the registers of f32
template <class V> INL V rounded_bf16(V v) {
  typedef typename of<V>::u U; const U u = (U)v, r = (u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u;
  return (V)(v != v ? U{} + 0x7fc00000u : r); }
//: down_bf16  to nearest, halves to even; every NaN becomes 0x7fc0
template <class H, class V> INL H down_bf16(V v) {
  typedef typename of<V>::u U; return cv<H>((U)rounded_bf16(v) >> 16); }
//: aligned_alloc free
extern "C" void *aligned_alloc(unsigned long, unsigned long) noexcept;
extern "C" void free(void *) noexcept;
//: arg_fold  number of the best element; the first of equals, and the first NaN before all others
template <bool LARGEST, class V, class I> INL i64 arg_fold(const V *best, const I *at, int count) {
  typename of<V>::e b{}; i64 p = -1;
  for (int k = 0; k < count; k++) for (int l = 0; l < of<V>::n; l++) {
    const auto x = best[k][l]; const i64 q = at[k][l];
    if (q < 0) continue;
    const bool nan = x != x, was_nan = b != b;
    const bool better = p < 0 || (nan && !was_nan) || (LARGEST ? x > b : x < b);
    if (better || ((x == b || (nan && was_nan)) && q < p)) b = x, p = q; }
  return p; }
//: floor_div floor_mod
INL i64 floor_div(i64 a, i64 b) { const i64 q = a / b; return q - (a % b != 0 && (a % b < 0) != (b < 0)); }
INL i64 floor_mod(i64 a, i64 b) { const i64 r = a % b; return r + ((r != 0 && (r < 0) != (b < 0)) ? b : 0); }
//: near_mod  b > 0; mostly a is in its range or up to two ranges away, and comparisons cost less than a division
INL i64 near_mod(i64 a, i64 b) {
  if (__builtin_expect((u64)a < (u64)b, 1)) return a;
  i64 c = a < 0 ? a + b : a - b;
  if ((u64)c < (u64)b) return c;
  c = c < 0 ? c + b : c - b;
  if ((u64)c < (u64)b) return c;
  const i64 r = a % b; return r < 0 ? r + b : r; }
//: saturated  far enough from the ends of i32 that a vector's lanes can be added
INL i32 saturated(i64 x) { return (i32)(x < -(1 << 30) ? -(1 << 30) : x > 1 << 30 ? 1 << 30 : x); }
//: block_width  rows side by side: a block for each thread, and not more than `most`
INL i64 block_width(i64 rows, i64 others, i64 threads, i64 lanes, i64 most) {
  const i64 pieces = others > 0 && others < threads ? (threads + others - 1) / others : 1;
  const i64 part = (rows + pieces - 1) / pieces;
  return part < most ? (part + lanes - 1) / lanes * lanes : most; }
//: look_up  entries of a table of 8, one for each lane
template <class I> INL auto look_up(const f32 *table, I k) {
  typename same<I>::f v{};
  for (int l = 0; l < of<I>::n; l++) v[l] = table[k[l] & 7];
  return v; }
//: up_f16  by a multiplication that also brings subnormals to their place
template <class W, class V> INL W up_f16(V h) {
  typedef typename of<W>::u U; const U u = cv<U>(h), e = u & 0x7fffu;
  const U m = (U)((W)(e << 13) * 0x1p112f);
  return (W)((e >= 0x7c00u ? (e << 13) | 0x7f800000u : m) | ((u & 0x8000u) << 16)); }
//: down_f16  to nearest, halves to even; every NaN becomes quiet
template <class H, class V> INL H down_f16(V v) {
  typedef typename of<V>::u U; const U u = (U)v, a = u & 0x7fffffffu;
  const U normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
  const U small = (U)((V)a + 0.5f) - 0x3f000000u;
  U r = a < 0x38800000u ? small : normal;
  r = a >= 0x477ff000u ? U{} + 0x7c00u : r;
  r = a > 0x7f800000u ? U{} + 0x7e00u : r;
  return cv<H>(r | ((u >> 16) & 0x8000u)); }
//: ifloordiv imod itruncdiv ifmod  the divisor is a constant, neither 0 nor -1
#define PER_LANE(NAME, EXPR) template <class V> INL V NAME(V x, V y) { \
  for (int l = 0; l < of<V>::n; l++) { const auto a = x[l], b = y[l]; x[l] = EXPR; } return x; }
PER_LANE(itruncdiv, a / b)
PER_LANE(ifmod, a % b)
PER_LANE(ifloordiv, a / b - (a % b != 0 && (a < 0) != (b < 0)))
PER_LANE(imod, a % b + ((a % b != 0 && (a < 0) != (b < 0)) ? b : 0))
//: ipow
template <class T> INL T int_pow(T a, T b) {
  if (b < 0) return a == 1 ? 1 : a == (T)-1 ? ((b & 1) ? -1 : 1) : 0;
  T r = 1;
  for (; b; b = (T)(b >> 1), a = (T)(a * a)) if (b & 1) r = (T)(r * a);
  return r; }
template <class V> INL V ipow(V x, V y) {
  for (int l = 0; l < of<V>::n; l++) x[l] = int_pow((typename of<V>::e)x[l], (typename of<V>::e)y[l]);
  return x; }
//: ishl  0 when the count is negative or at least the width
template <class V> INL V ishl(V a, V b) {
  typedef typename of<V>::e E; constexpr E bits = 8 * sizeof(E); typedef typename of<V>::u U;
  const auto fits = (b >= V{}) & (b < bc<V>(bits));
  return fits ? (V)((U)a << (U)(fits ? b : V{})) : V{}; }
//: ishr  the sign when the count is negative or at least the width
template <class V> INL V ishr(V a, V b) {
  typedef typename of<V>::e E; constexpr E bits = 8 * sizeof(E), last = bits - 1;
  const auto fits = (b >= V{}) & (b < bc<V>(bits));
  if constexpr ((E)-1 > 0) return fits ? a >> (fits ? b : V{}) : V{};
  else return a >> (fits ? b : bc<V>(last)); }
//: corrected  infinities leave an error that isn't a number
template <class V> INL V corrected(V sum, V error) { return error == error ? sum + error : sum; }
//: two_sum  sum += x, exactly: what is rounded away is collected in error
template <class V> INL void two_sum(V &sum, V &error, V x) {
  const V s = sum + x, b = s - sum;
  error += (sum - (s - b)) + (x - b);
  sum = s; }
//: transpose  a square of as many vectors as lanes, by exchanging halves, quarters, ...
template <int D, int N, int L> constexpr int low_lane = L & D ? N + (L ^ D) : L;
template <int D, int N, int L> constexpr int high_lane = L & D ? N + L : L | D;
#define PAIR_4(F, D, N, K) F<D, N, K>, F<D, N, K + 1>, F<D, N, K + 2>, F<D, N, K + 3>
#define PAIR_8(F, D, N, K) PAIR_4(F, D, N, K), PAIR_4(F, D, N, K + 4)
template <int D, class V> INL void exchange(V &a, V &b) {
  constexpr int n = of<V>::n; const V x = a, y = b;
  if constexpr (n == 2) {
    a = SHUFFLE(x, y, low_lane<D, 2, 0>, low_lane<D, 2, 1>);
    b = SHUFFLE(x, y, high_lane<D, 2, 0>, high_lane<D, 2, 1>);
  } else if constexpr (n == 4) {
    a = SHUFFLE(x, y, PAIR_4(low_lane, D, 4, 0));
    b = SHUFFLE(x, y, PAIR_4(high_lane, D, 4, 0));
  } else if constexpr (n == 8) {
    a = SHUFFLE(x, y, PAIR_8(low_lane, D, 8, 0));
    b = SHUFFLE(x, y, PAIR_8(high_lane, D, 8, 0));
  } else {
    a = SHUFFLE(x, y, PAIR_8(low_lane, D, 16, 0), PAIR_8(low_lane, D, 16, 8));
    b = SHUFFLE(x, y, PAIR_8(high_lane, D, 16, 0), PAIR_8(high_lane, D, 16, 8)); } }
template <int D, class V> INL void exchange_all(V *r) {
  _Pragma("GCC unroll 16") for (int i = 0; i < of<V>::n; i++) if (!(i & D)) exchange<D>(r[i], r[i + D]); }
template <class V> INL void transpose(V *r) {
  if constexpr (of<V>::n > 8) exchange_all<8>(r);
  if constexpr (of<V>::n > 4) exchange_all<4>(r);
  if constexpr (of<V>::n > 2) exchange_all<2>(r);
  exchange_all<1>(r); }
//: delayed  lane l takes lane l - D; the first ones take from fill
#define DELAY_4(D, N, K) K - D < 0 ? N + K : K - D, K + 1 - D < 0 ? N + K + 1 : K + 1 - D, \
  K + 2 - D < 0 ? N + K + 2 : K + 2 - D, K + 3 - D < 0 ? N + K + 3 : K + 3 - D
template <int D, class V> INL V delayed(V v, V fill) {
  constexpr int n = of<V>::n;
  if constexpr (n == 2) return SHUFFLE(v, fill, 2, 0);
  else if constexpr (n == 4) return SHUFFLE(v, fill, DELAY_4(D, 4, 0));
  else if constexpr (n == 8) return SHUFFLE(v, fill, DELAY_4(D, 8, 0), DELAY_4(D, 8, 4));
  else return SHUFFLE(v, fill, DELAY_4(D, 16, 0), DELAY_4(D, 16, 4), DELAY_4(D, 16, 8), DELAY_4(D, 16, 12)); }
//: running_sum running_prod  all prefixes of a vector, after what came before it; calculated in type W
#define RUNNING(NAME, OP, IDENTITY) \
  template <class W, class V> INL V NAME(V x, typename of<W>::e &carry) { \
    constexpr int n = of<W>::n; const W none = bc<W>(IDENTITY); W v = cv<W>(x); \
    v = v OP delayed<1>(v, none); \
    if constexpr (n > 2) v = v OP delayed<2>(v, none); \
    if constexpr (n > 4) v = v OP delayed<4>(v, none); \
    if constexpr (n > 8) v = v OP delayed<8>(v, none); \
    v = v OP bc<W>(carry); carry = v[n - 1]; return cv<V>(v); }
RUNNING(running_sum, +, 0)
RUNNING(running_prod, *, 1)
//: strided  every step-th element, the first n lanes; the others are 0 and are not touched in memory
template <class V> INL V strided(const typename of<V>::e *p, i32 step, int n) {
  V v{}; for (int l = 0; l < n; l++) v[l] = p[(i64)l * step]; return v; }
//: any  whether some lane of a mask is set
template <class I> INL bool any(I m) { I found{}; for (int l = 0; l < of<I>::n; l++) found[0] |= m[l]; return found[0]; }
