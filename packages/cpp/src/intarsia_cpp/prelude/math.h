//: vrsqrt
template <class V> INL V vrsqrt(V a) { return bc<V>(1) / vsqrt(a); }
//: exp_of_remainder vexp  f32: 1 ulp. n = round(x / ln 2), polynomial in x - n ln 2, times 2**n
template <class V> INL V exp_of_remainder(V c, V n) {
  V r = fma_(n, bc<V>(-0.693359375f), c), p = bc<V>(1.9875691500e-4f);
  r = fma_(n, bc<V>(2.12194440e-4f), r);
  p = fma_(p, r, bc<V>(1.3981999507e-3f));
  p = fma_(p, r, bc<V>(8.3334519073e-3f));
  p = fma_(p, r, bc<V>(4.1665795894e-2f));
  p = fma_(p, r, bc<V>(1.6666665459e-1f));
  p = fma_(p, r, bc<V>(0.5f));
  return fma_(p, r * r, r) + 1.f; }
template <class V> INL V vexp(V x) {
  typedef typename of<V>::i I;
  if (of<V>::n == 8 && !any(~(vabs(x) < 87.f))) {  // no lane leaves the normal numbers: exponents are added
    const V n = vround(x * 1.44269504088896341f);
    return (V)((I)exp_of_remainder(x, n) + (cv<I>(n) << 23)); }
  const V c = mn(bc<V>(89.f), mx(bc<V>(-104.f), x)), n = vround(c * 1.44269504088896341f);
  const V p = exp_of_remainder(c, n);
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
//: verf  f32: polynomials in |x| - centre for 8 pieces of [0, 4), in the first of erf(x) / x; where it rounds to 1 it is 1
static const f32 erf_table[7][8] __attribute__((aligned(32))) = {
  {1.10530555f, 0.711155653f, 0.92290014f, 0.986671686f,
   0.998537302f, 0.999899387f, 0.999995708f, 0.999999881f},
  {-0.181165487f, 0.642931521f, 0.236521229f, 0.0527748354f,
   0.00714229979f, 0.000586294278f, 2.91936467e-05f, 8.81886649e-07f},
  {-0.33535105f, -0.482198149f, -0.295651734f, -0.092356205f,
   -0.0160701573f, -0.00161226746f, -9.48693341e-05f, -3.30607099e-06f},
  {0.104691856f, 0.0267272182f, 0.167523086f, 0.0901776627f,
   0.0217269789f, 0.00275820703f, 0.000195219283f, 7.91172806e-06f},
  {0.0890217647f, 0.150675625f, -0.00613203505f, -0.048105523f,
   -0.0190882571f, -0.00325771049f, -0.000286169437f, -1.37854086e-05f},
  {-0.0349708386f, -0.0512608625f, -0.0467769317f, 0.00596954022f,
   0.0105811423f, 0.00282583339f, 0.000332615979f, 2.02052634e-05f},
  {-0.0180231333f, -0.0265828297f, 0.0205977373f, 0.00904949475f,
   -0.00277956529f, -0.00166785053f, -0.000273758458f, -2.06924233e-05f}};
template <class V> INL V verf(V x) {
  typedef typename of<V>::i I;
  const V a = vabs(x), c = mn(bc<V>(3.99999976f), a);
  const I k = cv<I>(c * 2.f);
  const V t = c - fma_(cv<V>(k), bc<V>(0.5f), bc<V>(0.25f));
  V p = look_up(erf_table[6], k);
  for (int j = 5; j >= 0; j--) p = fma_(p, t, look_up(erf_table[j], k));
  const V r = mn(bc<V>(1.f), c < 0.5f ? c * p : p);
  return vcopysign(a > bc<V>(3.9192059f) ? bc<V>(1.f) : r, x); }
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
