//! The exponential function, and the activations that are made of it.
//!
//! Our own, for three reasons: it is vectorised, every instruction set gives the same bits, and so does every platform.

/// Adding 1.5 * 2^23 rounds to an integer and leaves that integer in the low bits.
pub(super) const ROUND: f32 = 12_582_912.0;
/// ln 2 in two parts: the first times a small integer is exact.
pub(super) const LN_2_HIGH: f32 = 0.693_359_4;
pub(super) const LN_2_LOW: f32 = -2.121_944_4e-4;
/// What `e^x` is `1 + x` and the sum of from the square of `x` on, with the least relative error on [-ln 2 / 2, ln 2 / 2].
pub(super) const FROM_SQUARE: [f32; 6] =
    [0.5, 0.166_666_65, 0.041_665_796, 0.008_333_452, 0.001_398_2, 0.000_198_756_91];
/// Below this, `e^x` counts for 0.
pub(super) const LEAST: f32 = -87.0;

/// A power of two, and two numbers whose sum with 1 is what `e^x` is divided by that power.
#[inline(always)]
fn parts_of_exp(x: f32) -> (f32, f32, f32) {
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let power = shifted - ROUND;
    let rest = (x - power * LN_2_HIGH) - power * LN_2_LOW;
    // In Estrin's order rather than Horner's.
    let [second, third, fourth, fifth, sixth, seventh] = FROM_SQUARE;
    let square = rest * rest;
    let middle = second + third * rest;
    let high = (fourth + fifth * rest) + (sixth + seventh * rest) * square;
    let power_of_two = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0_f32.to_bits()));
    (power_of_two, rest, square * (middle + square * high))
}

/// `e^x` for `x` up to 0: exactly 1 for 0, 0 below -87, within 1.5 ulp elsewhere; NaN for NaN.
#[inline(always)]
pub(super) fn exp_nonpositive(x: f32) -> f32 {
    let (power_of_two, first, others) = parts_of_exp(x);
    if x < LEAST { 0.0 } else { ((1.0 + first) + others) * power_of_two }
}

/// `e^x - 1` for `x` up to 0, close to 0 too: -1 below -87; NaN for NaN.
#[inline(always)]
pub(super) fn exp_less_one(x: f32) -> f32 {
    let (power_of_two, first, others) = parts_of_exp(x);
    if x < LEAST { -1.0 } else { (first + others) * power_of_two + (power_of_two - 1.0) }
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

/// `x * (1 + erf(x / sqrt(2))) / 2`.
#[inline(always)]
pub(super) fn gelu(x: f32) -> f32 {
    let half = 0.5 * erfc_nonnegative(x.abs() * std::f32::consts::FRAC_1_SQRT_2);
    x * if x < 0.0 { half } else { 1.0 - half }
}

/// `1 - erf(x)` for `x` from 0 on, within 3e-7 of it; NaN for NaN.
///
/// `t * e^(p(t) - x^2)` for `t = 1 / (1 + x / 2)`, where the coefficients of `p` are those of a Chebyshev fit (Numerical
/// Recipes, `erfcc`).
#[inline(always)]
fn erfc_nonnegative(x: f32) -> f32 {
    const COEFFICIENTS: [f32; 10] = [
        0.170_872_77,
        -0.822_152_23,
        1.488_515_9,
        -1.135_204,
        0.278_868_07,
        -0.186_288_06,
        0.096_784_18,
        0.374_091_96,
        1.000_023_7,
        -1.265_512_2,
    ];
    let t = 1.0 / (1.0 + 0.5 * x);
    let fitted = COEFFICIENTS.iter().fold(0.0, |sum, coefficient| sum * t + coefficient);
    let power = fitted - x * x;
    t * exp_nonpositive(if power > 0.0 { 0.0 } else { power })
}

/// The hyperbolic tangent, within 2e-7; NaN for NaN.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    let exponential = exp_nonpositive(-2.0 * x.abs());
    ((1.0 - exponential) / (1.0 + exponential)).copysign(x)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The error function, by a series whose terms have one sign.
    pub(in super::super) fn erf(x: f64) -> f64 {
        if x.abs() > 6.0 {
            return x.signum();
        }
        let (mut term, mut sum, mut odd) = (x, x, 1.0);
        while term.abs() > 1e-17 * sum.abs() {
            odd += 2.0;
            term *= 2.0 * x * x / odd;
            sum += term;
        }
        std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
    }

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
    fn the_exponential_less_one_is_exact_close_to_0_too() {
        for step in 1..400_000_u32 {
            #[expect(clippy::cast_possible_truncation, reason = "the argument as the function has it")]
            let x = -(f64::from(step) * 5e-5).powi(3) as f32;
            let exact = f64::from(x).exp_m1();
            assert!((f64::from(exp_less_one(x)) / exact - 1.0).abs() < 3e-7, "{x}");
        }
        assert_eq!((exp_less_one(0.0), exp_less_one(f32::NEG_INFINITY)), (0.0, -1.0));
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
            let gelu_exactly = 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2));
            for (name, found, exact) in [
                ("tanh", tanh(rounded), x.tanh()),
                ("sigmoid", sigmoid(rounded), 1.0 / (1.0 + (-x).exp())),
                ("gelu of tanh", gelu_tanh(rounded), 0.5 * x * (1.0 + inner.tanh())),
                ("gelu", gelu(rounded), gelu_exactly),
            ] {
                let error = (f64::from(found) - exact).abs();
                assert!(error <= 2e-7 * exact.abs().max(1.0), "{name}({x}) is off by {error:e}");
            }
        }
        for function in [tanh, sigmoid, gelu_tanh, gelu, exp_less_one] {
            assert!(function(f32::NAN).is_nan());
        }
        assert_eq!((tanh(f32::INFINITY), tanh(f32::NEG_INFINITY)), (1.0, -1.0));
    }
}
