//! The exponential function, and the activations that are made of it.
//!
//! Our own, for three reasons: it is vectorised, every instruction set gives the same bits, and so does every platform.

/// `e^x` for `x` up to 0: exactly 1 for 0, 0 below -87, within 1.5 ulp elsewhere; NaN for NaN.
#[inline(always)]
pub(super) fn exp_nonpositive(x: f32) -> f32 {
    // Adding 1.5 * 2^23 rounds to an integer and leaves that integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts: the first times a small integer is exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let power = shifted - ROUND;
    let rest = (x - power * LN_2_HIGH) - power * LN_2_LOW;
    // The least relative error on [-ln 2 / 2, ln 2 / 2], in Estrin's order rather than Horner's.
    let square = rest * rest;
    let low = 1.0 + rest;
    let middle = 0.5 + 0.166_666_65 * rest;
    let high = (0.041_665_796 + 0.008_333_452 * rest) + (0.001_398_2 + 0.000_198_756_91 * rest) * square;
    let value = low + square * (middle + square * high);
    let power_of_two = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0_f32.to_bits()));
    if x < -87.0 { 0.0 } else { value * power_of_two }
}

/// `x / (1 + e^-x)`.
#[inline(always)]
pub(super) fn silu(x: f32) -> f32 {
    let exponential = exp_nonpositive(-x.abs());
    let numerator = if x < 0.0 { x * exponential } else { x };
    numerator / (1.0 + exponential)
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    let exponential = exp_nonpositive(-x.abs());
    let numerator = if x < 0.0 { exponential } else { 1.0 };
    numerator / (1.0 + exponential)
}

/// `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2`, which is `x` times the sigmoid of twice what tanh is of.
#[inline(always)]
pub(super) fn gelu_tanh(x: f32) -> f32 {
    const TWICE_ROOT: f32 = 1.595_769_2;
    x * sigmoid(TWICE_ROOT * (x + 0.044_715 * x * x * x))
}

/// The hyperbolic tangent, within 2e-7; NaN for NaN.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    let exponential = exp_nonpositive(-2.0 * x.abs());
    ((1.0 - exponential) / (1.0 + exponential)).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_agrees_with_f64() {
        let mut worst = 0.0_f64;
        for step in 0..870_000_u32 {
            #[expect(clippy::cast_precision_loss, reason = "any number will do")]
            let x = -(step as f32) * 1e-4;
            let relative = (f64::from(exp_nonpositive(x)) / f64::from(x).exp() - 1.0).abs();
            worst = worst.max(relative);
        }
        assert!(worst < 2e-7, "{worst:e}");
    }

    #[test]
    fn the_edges_of_the_exponential_are_exact() {
        assert_eq!(exp_nonpositive(0.0).to_bits(), 1.0_f32.to_bits());
        assert_eq!(exp_nonpositive(-0.0).to_bits(), 1.0_f32.to_bits());
        for x in [-87.1, -1e30, f32::NEG_INFINITY] {
            assert_eq!(exp_nonpositive(x).to_bits(), 0, "{x}");
        }
        assert!(exp_nonpositive(f32::NAN).is_nan());
    }

    #[test]
    fn silu_agrees_with_f64() {
        for step in -100_000..100_000_i32 {
            let x = f64::from(step) * 1e-3;
            #[expect(clippy::cast_possible_truncation, reason = "the argument as the function has it")]
            let rounded = x as f32;
            let exact = f64::from(rounded) / (1.0 + (-f64::from(rounded)).exp());
            let error = (f64::from(silu(rounded)) - exact).abs();
            assert!(error <= 3e-7 * exact.abs() + 1e-35, "silu({x}) is off by {error:e}");
        }
        assert!(silu(f32::NAN).is_nan());
    }

    #[test]
    fn other_activations_agree_with_f64() {
        for step in -100_000..100_000_i32 {
            #[expect(clippy::cast_possible_truncation, reason = "the argument as the functions have it")]
            let rounded = (f64::from(step) * 2e-4) as f32;
            let x = f64::from(rounded);
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            for (name, found, exact) in [
                ("tanh", tanh(rounded), x.tanh()),
                ("sigmoid", sigmoid(rounded), 1.0 / (1.0 + (-x).exp())),
                ("gelu", gelu_tanh(rounded), 0.5 * x * (1.0 + inner.tanh())),
            ] {
                let error = (f64::from(found) - exact).abs();
                assert!(error <= 2e-7 * exact.abs().max(1.0), "{name}({x}) is off by {error:e}");
            }
        }
        for function in [tanh, sigmoid, gelu_tanh] {
            assert!(function(f32::NAN).is_nan());
        }
        assert_eq!((tanh(f32::INFINITY), tanh(f32::NEG_INFINITY)), (1.0, -1.0));
    }
}
