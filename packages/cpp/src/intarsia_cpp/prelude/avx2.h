//: vsqrt
INL f32x8 vsqrt(f32x8 a) { return __builtin_ia32_sqrtps256(a); }
INL f64x4 vsqrt(f64x4 a) { return __builtin_ia32_sqrtpd256(a); }
//: vfloor
INL f32x8 vfloor(f32x8 a) { return __builtin_ia32_roundps256(a, 9); }
INL f64x4 vfloor(f64x4 a) { return __builtin_ia32_roundpd256(a, 9); }
//: vceil
INL f32x8 vceil(f32x8 a) { return __builtin_ia32_roundps256(a, 10); }
INL f64x4 vceil(f64x4 a) { return __builtin_ia32_roundpd256(a, 10); }
//: vtrunc
INL f32x8 vtrunc(f32x8 a) { return __builtin_ia32_roundps256(a, 11); }
INL f64x4 vtrunc(f64x4 a) { return __builtin_ia32_roundpd256(a, 11); }
//: vround
INL f32x8 vround(f32x8 a) { return __builtin_ia32_roundps256(a, 8); }
INL f64x4 vround(f64x4 a) { return __builtin_ia32_roundpd256(a, 8); }
//: fma_
INL f32x8 fma_(f32x8 a, f32x8 b, f32x8 c) { return __builtin_ia32_vfmaddps256(a, b, c); }
INL f64x4 fma_(f64x4 a, f64x4 b, f64x4 c) { return __builtin_ia32_vfmaddpd256(a, b, c); }
//: mn mx
INL f32x8 mn(f32x8 a, f32x8 b) { return __builtin_ia32_minps256(a, b); }
INL f32x8 mx(f32x8 a, f32x8 b) { return __builtin_ia32_maxps256(a, b); }
INL f64x4 mn(f64x4 a, f64x4 b) { return __builtin_ia32_minpd256(a, b); }
INL f64x4 mx(f64x4 a, f64x4 b) { return __builtin_ia32_maxpd256(a, b); }
//: vmax vmin
INL f32x8 vmax(f32x8 a, f32x8 b) { return b != b ? b : mx(b, a); }
INL f64x4 vmax(f64x4 a, f64x4 b) { return b != b ? b : mx(b, a); }
INL f32x8 vmin(f32x8 a, f32x8 b) { return b != b ? b : mn(b, a); }
INL f64x4 vmin(f64x4 a, f64x4 b) { return b != b ? b : mn(b, a); }
//: look_up
INL f32x8 look_up(const f32 *table, i32x8 k) { return __builtin_ia32_permvarsf256(ld<f32x8>(table), k); }
//: up_bf16 down_bf16
template <> INL1 f32x8 up_bf16<f32x8, u16x8>(u16x8 h) {
  return (f32x8)((u32x8)__builtin_ia32_pmovzxwd256((i16x8)h) << 16); }
template <> INL1 u16x8 down_bf16<u16x8, f32x8>(f32x8 v) {
  const u32x8 r = (u32x8)rounded_bf16(v) >> 16;
  return (u16x8)__builtin_ia32_packusdw128((i32x4)half<u32x4>(r, 0), (i32x4)half<u32x4>(r, 1)); }
//: up_f16 down_f16
template <> INL1 f32x8 up_f16<f32x8, u16x8>(u16x8 h) { return __builtin_ia32_vcvtph2ps256((i16x8)h); }
template <> INL1 u16x8 down_f16<u16x8, f32x8>(f32x8 v) { return (u16x8)__builtin_ia32_vcvtps2ph256(v, 0); }
//: strided
template <> INL1 f32x8 strided<f32x8>(const f32 *p, i32 step, int n) {
  typedef f32x8 V;
  if (step == 2 && n == 8) return SHUFFLE(ld<f32x8>(p), ld<f32x8>(p + 7), 0, 2, 4, 6, 9, 11, 13, 15);
  return __builtin_ia32_gathersiv8sf(f32x8{}, p, iota<i32x8>() * step, (f32x8)(iota<i32x8>() < n), sizeof(f32)); }
//: any
INL bool any(i32x8 m) { return __builtin_ia32_movmskps256((f32x8)m); }
