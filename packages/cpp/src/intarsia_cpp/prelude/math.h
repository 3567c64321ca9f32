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
  return ldexp2(fma_(p, r * r, r) + 1.f, n); }
