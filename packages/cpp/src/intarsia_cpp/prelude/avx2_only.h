//: running_sum running_prod  of 8 f32 in f64, four at a time: shuffles of eight f64 would be taken apart lane by lane
#define IN_QUARTERS(NAME) \
  template <> INL1 f32x8 NAME<f64x8, f32x8>(f32x8 x, f64 &carry) { \
    const f32x4 low = NAME<f64x4>(half<f32x4>(x, 0), carry); \
    return joined<f32x8>(low, NAME<f64x4>(half<f32x4>(x, 1), carry)); }
IN_QUARTERS(running_sum)
IN_QUARTERS(running_prod)
