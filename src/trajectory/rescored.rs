//! How far log-probs that were computed again are from those that were captured.

use std::sync::Arc;

/// The distribution of differences over the ids of a sequence that are learnt from.
#[derive(Debug, Clone, PartialEq)]
pub struct Rescored {
    /// What the weights are called that computed now.
    pub version: Arc<str>,
    /// Ids that were compared.
    pub tokens: usize,
    /// Ids whose log-prob has the same bits.
    pub equal: usize,
    /// The mean of `exp(|difference|)`, 1 where nothing differs: what NeMo-RL calls `token_mult_prob_error`.
    pub mult_prob_error: f64,
    /// The mean of what is now less what was then, in nats.
    pub mean_difference: f64,
    /// The median, and what 90 and 99 of 100 absolute differences do not exceed, and the greatest one.
    pub quantiles: [f64; 4],
}

impl Rescored {
    /// Compares pairs of a captured log-prob and the one that was computed now; `None` without any.
    pub fn of(version: Arc<str>, pairs: &[(f32, f32)]) -> Option<Self> {
        let tokens = pairs.len();
        let differences = pairs.iter().map(|(then, now)| f64::from(*now) - f64::from(*then));
        let mut absolute: Vec<f64> = differences.clone().map(f64::abs).collect();
        absolute.sort_by(f64::total_cmp);
        #[expect(clippy::cast_precision_loss, reason = "no sequence has 2^53 ids")]
        let count = tokens as f64;
        // The nearest rank, so that each is a difference that there is.
        let quantile = |hundredths: usize| absolute.get((tokens * hundredths).div_ceil(100).max(1) - 1).copied();
        Some(Self {
            version,
            tokens,
            equal: pairs.iter().filter(|(then, now)| then.to_bits() == now.to_bits()).count(),
            mult_prob_error: absolute.iter().map(|difference| difference.exp()).sum::<f64>() / count,
            mean_difference: differences.sum::<f64>() / count,
            quantiles: [quantile(50)?, quantile(90)?, quantile(99)?, quantile(100)?],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_is_that_of_its_differences() {
        assert_eq!(Rescored::of("1".into(), &[]), None);
        let same = Rescored::of("1".into(), &[(-1.5, -1.5)]).unwrap();
        assert_eq!((same.equal, same.mult_prob_error, same.mean_difference, same.quantiles), (1, 1.0, 0.0, [0.0; 4]));
        let pairs: Vec<(f32, f32)> =
            (1..=200_u8).map(|number| (-1.0, f32::from(number).mul_add(0.125, -1.0))).collect();
        let found = Rescored::of("1".into(), &pairs).unwrap();
        assert_eq!((found.tokens, found.equal, found.quantiles), (200, 0, [12.5, 22.5, 24.75, 25.0]));
        assert!((found.mean_difference - 12.5625).abs() < 1e-12);
        let down: Vec<(f32, f32)> = pairs.iter().map(|(then, now)| (*now, *then)).collect();
        let down = Rescored::of("1".into(), &down).unwrap();
        assert_eq!((down.quantiles, down.mult_prob_error), (found.quantiles, found.mult_prob_error));
        assert!((down.mean_difference + 12.5625).abs() < 1e-12);
    }
}
