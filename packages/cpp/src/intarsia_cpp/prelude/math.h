//: vrsqrt
template <class V> INL V vrsqrt(V a) { return bc<V>(1) / vsqrt(a); }
//: vexp  f32: 1 ulp. n = round(x / ln 2), polynomial in x - n ln 2, times 2**n
template <class V> INL V vexp(V x) {
  const V c = mn(bc<V>(89.f), mx(bc<V>(-104.f), x)), n = vround(c * 1.44269504088896341f);
  V r = fma_(n, bc<V>(-0.693359375f), c), p = bc<V>(1.9875691500e-4f);
  r = fma_(n, bc<V>(2.12194440e-4f), r);
  p = fma_(p, r, bc<V>(1.3981999507e-3f));
  p = fma_(p, r, bc<V>(8.3334519073e-3f));
  p = fma_(p, r, bc<V>(4.1665795894e-2f));
  p = fma_(p, r, bc<V>(1.6666665459e-1f));
  p = fma_(p, r, bc<V>(0.5f));
  p = fma_(p, r * r, r) + 1.f;
  return ldexp2(x < -103.98f ? V{} : p, n); }  // scaling down to 0 would be a slow case of the hardware
//: vlog  f32: x = m 2**k with m in [sqrt(1/2), sqrt(2)), then log(1 + f) = f - f*f/2 + f*f*f P(f)
template <class V> INL V vlog(V x) {
  typedef typename of<V>::i I;
  const auto tiny = x < 1.17549435e-38f;
  const V y = tiny ? x * 33554432.f : x;
  const I k = ((I)y - 0x3f3504f3) >> 23;
  const V n = cv<V>(k) - (tiny ? bc<V>(25.f) : V{}), f = (V)((I)y - (k << 23)) - 1.f, z = f * f;
  V p = bc<V>(0.0674659088f);
  p = fma_(p, f, bc<V>(-0.11675638f));
  p = fma_(p, f, bc<V>(0.118881777f));
  p = fma_(p, f, bc<V>(-0.124055922f));
  p = fma_(p, f, bc<V>(0.142195508f));
  p = fma_(p, f, bc<V>(-0.166679963f));
  p = fma_(p, f, bc<V>(0.200021192f));
  p = fma_(p, f, bc<V>(-0.250000089f));
  p = fma_(p, f, bc<V>(0.333333135f));
  V r = fma_(z * f, p, fma_(n, bc<V>(-2.12194440e-4f), z * -0.5f)) + f;
  r = fma_(n, bc<V>(0.693359375f), r);
  r = x == 0.f ? bc<V>(-__builtin_inff()) : r;
  r = x < 0.f ? bc<V>(__builtin_nanf("")) : r;
  return (x == __builtin_inff()) | (x != x) ? x : r; }
//: verf  f32: x times a polynomial in |x| - centre, one for each of 16 pieces of [0, 4); where it rounds to 1 it is 1
static const f32 erf_table[6][16] __attribute__((aligned(64))) = {
  {1.12252963f, 1.07764506f, 0.997185409f, 0.896085799f, 0.789678454f, 0.689578235f, 0.602119207f, 0.529061377f,
   0.469339281f, 0.420722961f, 0.380874157f, 0.347809434f, 0.319996834f, 0.296295762f, 0.275861979f, 0.258064508f},
  {-0.0931549445f, -0.259446084f, -0.373897403f, -0.424389422f, -0.419026196f, -0.377613425f, -0.32101351f, -0.264274955f,
   -0.215058103f, -0.175459579f, -0.144657627f, -0.120876245f, -0.102378264f, -0.0877875611f, -0.0760992467f, -0.0665972009f},
  {-0.365642309f, -0.288495272f, -0.16526486f, -0.0397309475f, 0.0541918091f, 0.104267411f, 0.117074728f, 0.107401393f,
   0.0888634846f, 0.069871515f, 0.0539598949f, 0.0417536981f, 0.0326962695f, 0.0259983577f, 0.020990666f, 0.0171860252f},
  {0.0553772375f, 0.142984897f, 0.17534402f, 0.151600838f, 0.0962298885f, 0.0390333869f, -0.00137376809f, -0.0213114247f,
   -0.0262708496f, -0.0236383229f, -0.018693205f, -0.0140004568f, -0.0103348251f, -0.00767579395f, -0.00578537956f, -0.00443425542f},
  {0.106054433f, 0.0626983568f, 0.00198034174f, -0.0444001444f, -0.0603374988f, -0.0504389629f, -0.0297867041f, -0.0112713976f,
   -0.000127361098f, 0.00437602447f, 0.00504130777f, 0.00421293033f, 0.00313142198f, 0.00223550061f, 0.00158987381f, 0.00114451093f},
  {-0.0194442049f, -0.0462021232f, -0.046420332f, -0.0255044363f, -0.000650145579f, 0.0143847885f, 0.0168994721f, 0.0120440461f,
   0.00591294328f, 0.00167795306f, -0.000305632973f, -0.000863715832f, -0.000814762141f, -0.000612894539f, -0.000427389925f, -0.000293173827f}};
template <class V> INL V verf(V x) {
  typedef typename of<V>::i I;
  const V a = vabs(x), c = mn(bc<V>(3.99999976f), a);
  const I k = cv<I>(c * 4.f);
  const V t = c - fma_(cv<V>(k), bc<V>(0.25f), bc<V>(0.125f));
  V p = look_up(erf_table[5], k);
  for (int j = 4; j >= 0; j--) p = fma_(p, t, look_up(erf_table[j], k));
  return vcopysign(a > bc<V>(3.9192059f) ? bc<V>(1.f) : mn(bc<V>(1.f), c * p), x); }
//: libm_fmod
extern "C" f32 fmodf(f32, f32) noexcept;
extern "C" f64 fmod(f64, f64) noexcept;
INL f32 libm_fmod(f32 a, f32 b) { return fmodf(a, b); }
INL f64 libm_fmod(f64 a, f64 b) { return fmod(a, b); }
//: vfloordiv vmod vtruncdiv vfmod  floats
template <class V> INL V vfmod(V x, V y) { for (int l = 0; l < of<V>::n; l++) x[l] = libm_fmod(x[l], y[l]); return x; }
template <class V> INL V vmod(V x, V y) {
  const V r = vfmod(x, y);
  return (r != 0) & ((y < 0) != (r < 0)) ? r + y : r; }
template <class V> INL V vfloordiv(V x, V y) {
  const V r = vfmod(x, y);
  V d = (x - r) / y;
  d = (r != 0) & ((y < 0) != (r < 0)) ? d - 1 : d;
  const V f = vfloor(d), g = d - f > bc<V>(0.5f) ? f + 1 : f;
  return y == 0 ? x / y : d != 0 ? g : vcopysign(V{}, x / y); }
template <class V> INL V vtruncdiv(V x, V y) { return vtrunc(x / y); }
//: sin_of_remainder minus_pi
template <class V> INL V sin_of_remainder(V r, V n) {
  typedef typename of<V>::i I; const V z = r * r; V p = bc<V>(2.60577372e-6f);
  p = fma_(p, z, bc<V>(-0.000198095993f));
  p = fma_(p, z, bc<V>(0.00833306648f));
  p = fma_(p, z, bc<V>(-0.166666597f));
  return (V)((I)fma_(r * z, p, r) ^ (cv<I>(n) << 31)); }
template <class V> INL V minus_pi(V x, V n) {
  const V r = fma_(n, bc<V>(8.74227766e-8f), fma_(n, bc<V>(-3.14159274f), x));
  return fma_(n, bc<V>(3.43024902e-15f), r); }
//: vsin  f32: x - n pi in three exact steps, odd polynomial; far from 0 the library's, lane by lane the same everywhere
template <class V> INL V vsin(V x) {
  const V n = vround(x * 0.318309886f), r = sin_of_remainder(minus_pi(x, n), n);
  const auto far = ~(vabs(x) < 131072.f), zero = x == 0.f;
  if (__builtin_expect(any(far), 0)) return far ? far_sin(x) : zero ? x : r;
  return zero ? x : r; }
//: vcos  f32: the same at pi / 2 - x
template <class V> INL V vcos(V x) {
  const V n = vround(x * 0.318309886f - 0.5f), r = sin_of_remainder(minus_pi(x, n + 0.5f), n + 1.f);
  const auto far = ~(vabs(x) < 131072.f);
  if (__builtin_expect(any(far), 0)) return far ? far_cos(x) : r;
  return r; }
