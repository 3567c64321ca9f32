//: vsqrt
INL f32x16 vsqrt(f32x16 a) { return (f32x16)__builtin_ia32_sqrtps512_mask(a, a, -1, 4); }
INL f64x8 vsqrt(f64x8 a) { return (f64x8)__builtin_ia32_sqrtpd512_mask(a, a, -1, 4); }
//: vfloor
INL f32x16 vfloor(f32x16 a) { return (f32x16)__builtin_ia32_rndscaleps_mask(a, 9, a, -1, 4); }
INL f64x8 vfloor(f64x8 a) { return (f64x8)__builtin_ia32_rndscalepd_mask(a, 9, a, -1, 4); }
//: vceil
INL f32x16 vceil(f32x16 a) { return (f32x16)__builtin_ia32_rndscaleps_mask(a, 10, a, -1, 4); }
INL f64x8 vceil(f64x8 a) { return (f64x8)__builtin_ia32_rndscalepd_mask(a, 10, a, -1, 4); }
//: vtrunc
INL f32x16 vtrunc(f32x16 a) { return (f32x16)__builtin_ia32_rndscaleps_mask(a, 11, a, -1, 4); }
INL f64x8 vtrunc(f64x8 a) { return (f64x8)__builtin_ia32_rndscalepd_mask(a, 11, a, -1, 4); }
//: vround
INL f32x16 vround(f32x16 a) { return (f32x16)__builtin_ia32_rndscaleps_mask(a, 8, a, -1, 4); }
INL f64x8 vround(f64x8 a) { return (f64x8)__builtin_ia32_rndscalepd_mask(a, 8, a, -1, 4); }
//: fma_
INL f32x16 fma_(f32x16 a, f32x16 b, f32x16 c) { return (f32x16)__builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4); }
INL f64x8 fma_(f64x8 a, f64x8 b, f64x8 c) { return (f64x8)__builtin_ia32_vfmaddpd512_mask(a, b, c, -1, 4); }
//: mn mx
INL f32x16 mn(f32x16 a, f32x16 b) { return (f32x16)__builtin_ia32_minps512_mask(a, b, a, -1, 4); }
INL f32x16 mx(f32x16 a, f32x16 b) { return (f32x16)__builtin_ia32_maxps512_mask(a, b, a, -1, 4); }
INL f64x8 mn(f64x8 a, f64x8 b) { return (f64x8)__builtin_ia32_minpd512_mask(a, b, a, -1, 4); }
INL f64x8 mx(f64x8 a, f64x8 b) { return (f64x8)__builtin_ia32_maxpd512_mask(a, b, a, -1, 4); }
//: vmax vmin
INL f32x16 vmax(f32x16 a, f32x16 b) { return b != b ? b : mx(b, a); }
INL f64x8 vmax(f64x8 a, f64x8 b) { return b != b ? b : mx(b, a); }
INL f32x16 vmin(f32x16 a, f32x16 b) { return b != b ? b : mn(b, a); }
INL f64x8 vmin(f64x8 a, f64x8 b) { return b != b ? b : mn(b, a); }
//: ldexp2
INL f32x16 ldexp2(f32x16 a, f32x16 n) { return (f32x16)__builtin_ia32_scalefps512_mask(a, n, a, -1, 4); }
INL f32x8 ldexp2(f32x8 a, f32x8 n) { return (f32x8)__builtin_ia32_scalefps256_mask(a, n, a, -1); }
//: ldt stt
typedef long long lanes_of_64 __attribute__((vector_size(64)));  // GCC's name for i64x8
#define MASKED(V, W, C, M, LD, ST) \
  template <> INL1 V ldt<V>(const typename of<V>::e *p, int n) { return (V)LD((const C *)p, W{}, (M)((1ull << n) - 1)); } \
  template <> INL1 void stt<V>(typename of<V>::e *p, V v, int n) { ST((C *)p, (W)v, (M)((1ull << n) - 1)); }
MASKED(f32x16, f32x16, f32, u16, __builtin_ia32_loadups512_mask, __builtin_ia32_storeups512_mask)
MASKED(f64x8, f64x8, f64, u8, __builtin_ia32_loadupd512_mask, __builtin_ia32_storeupd512_mask)
MASKED(f32x8, f32x8, f32, u8, __builtin_ia32_loadups256_mask, __builtin_ia32_storeups256_mask)
MASKED(i32x16, i32x16, i32, u16, __builtin_ia32_loaddqusi512_mask, __builtin_ia32_storedqusi512_mask)
MASKED(i32x8, i32x8, i32, u8, __builtin_ia32_loaddqusi256_mask, __builtin_ia32_storedqusi256_mask)
MASKED(i64x8, lanes_of_64, long long, u8, __builtin_ia32_loaddqudi512_mask, __builtin_ia32_storedqudi512_mask)
//: look_up
INL f32x16 look_up(const f32 *table, i32x16 k) {
  const f32x8 row = ld<f32x8>(table); return __builtin_shuffle(joined<f32x16>(row, row), k); }
//: up_bf16 down_bf16
template <> INL1 f32x16 up_bf16<f32x16, u16x16>(u16x16 h) {
  return (f32x16)((u32x16)__builtin_ia32_pmovzxwd512_mask((i16x16)h, i32x16{}, -1) << 16); }
template <> INL1 u16x16 down_bf16<u16x16, f32x16>(f32x16 v) {
  const u32x16 u = (u32x16)v, r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return (u16x16)__builtin_ia32_pmovdw512_mask((i32x16)(v != v ? u32x16{} + 0x7fc0u : r), i16x16{}, -1); }
//: up_f16 down_f16
template <> INL1 f32x16 up_f16<f32x16, u16x16>(u16x16 h) {
  return (f32x16)__builtin_ia32_vcvtph2ps512_mask((i16x16)h, f32x16{}, -1, 4); }
template <> INL1 u16x16 down_f16<u16x16, f32x16>(f32x16 v) {
  return (u16x16)__builtin_ia32_vcvtps2ph512_mask(v, 0, i16x16{}, -1); }
//: halves_sum halves_prod  running sums and products of 16 f32, in f64
#define HALVES(NAME, RUN) INL f32x16 NAME(f32x16 x, f64 &carry) { \
  const f32x8 low = RUN<f64x8>(half<f32x8>(x, 0), carry); \
  return joined<f32x16>(low, RUN<f64x8>(half<f32x8>(x, 1), carry)); }
HALVES(halves_sum, running_sum)
HALVES(halves_prod, running_prod)
//: strided
#define STRIDED(V, C, GATHER) \
  template <> INL1 V strided<V>(const C *p, i32 step, int n) { \
    return (V)GATHER(V{}, p, iota<i32x16>() * step, (u16)((1u << n) - 1), sizeof(C)); }
template <> INL1 f32x16 strided<f32x16>(const f32 *p, i32 step, int n) {
  typedef f32x16 V;
  if (step == 2 && n == 16)
    return SHUFFLE(ld<f32x16>(p), ld<f32x16>(p + 15), 0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31);
  return (f32x16)__builtin_ia32_gathersiv16sf(f32x16{}, p, iota<i32x16>() * step, (u16)((1u << n) - 1), sizeof(f32)); }
STRIDED(i32x16, i32, __builtin_ia32_gathersiv16si)
//: any
INL bool any(i32x16 m) { return __builtin_ia32_ptestmd512(m, m, -1); }
