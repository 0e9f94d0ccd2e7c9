//! Both ways to weigh against sums in f64.

use super::*;

/// Scores that include the extremes of what is still seen, and some that count for nothing.
fn scores(keys: usize, row: usize) -> Vec<f32> {
    let number = |key: usize| f32::sin(f32::from(u16::try_from((row * 331 + key * 7919) % 65_521).unwrap()));
    (0..keys).map(|key| number(key) * if key % 17 == 3 { 200.0 } else { 9.0 }).collect()
}

fn weighed(
    set: KernelSet,
    mut scores: Vec<f32>,
    seen: (usize, usize),
    cap: Option<f32>,
    running: Running,
) -> (Vec<f32>, f32, Running) {
    let mut weights = Numbers::Bf16(vec![0x7fc0; scores.len() + 8]);
    let (mut sums, mut running) = ([1.0], running);
    let of_row = Scores { numbers: &mut scores, seen, scale: 0.3, cap, sums: &mut sums, running: &mut running };
    weigh(set, of_row, &mut weights, 4);
    let Numbers::Bf16(weights) = weights else { unreachable!() };
    assert!(weights[..4].iter().chain(&weights[weights.len() - 4..]).all(|bits| *bits == 0x7fc0), "others stay");
    let weights = weights[4..weights.len() - 4].iter().map(|bits| half::bf16::from_bits(*bits).to_f32()).collect();
    (weights, sums[0], running)
}

#[test]
fn weights_are_those_of_f64_whatever_is_seen() {
    let before = [Running::new(None), Running { max: -1.0, total: 3.0 }, Running { max: 90.0, total: 1.5 }];
    for set in KernelSet::available() {
        for (row, (keys, seen)) in [
            (32, (0, 32)),
            (128, (0, 128)),
            (128, (5, 70)),
            (64, (16, 33)),
            (96, (95, 96)),
            (128, (0, 1)),
            (32, (9, 9)),
        ]
        .into_iter()
        .enumerate()
        {
            for (running, cap) in before.into_iter().flat_map(|running| [(running, None), (running, Some(20.0))]) {
                let scores = scores(keys, row);
                let (weights, correction, after) = weighed(set, scores.clone(), seen, cap, running);
                let shaped = |score: f32| {
                    let score = f64::from(score) * f64::from(0.3_f32);
                    cap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
                };
                let of_seen = || scores[seen.0..seen.1].iter().map(|score| shaped(*score));
                let max = of_seen().fold(f64::from(running.max), f64::max);
                let lost = if max > f64::from(running.max) { (f64::from(running.max) - max).exp() } else { 1.0 };
                let total = f64::from(running.total) * lost + of_seen().map(|score| (score - max).exp()).sum::<f64>();
                let place = format!("{set}, row {row}, {running:?}, {cap:?}");
                let close = |found: f32, exact: f64, by: f64| {
                    assert!((f64::from(found) - exact).abs() <= by * exact.abs() + 1e-30, "{place}: {found}, {exact}");
                };
                close(correction, lost, 1e-4);
                close(after.total, total, 1e-4);
                for (key, weight) in weights.iter().enumerate() {
                    let is_seen = (seen.0..seen.1).contains(&key);
                    close(*weight, if is_seen { (shaped(scores[key]) - max).exp() } else { 0.0 }, 0.005);
                }
            }
        }
    }
}

#[test]
fn the_greatest_weighs_one_and_what_is_far_below_nothing() {
    for set in KernelSet::available() {
        let mut scores = vec![f32::NEG_INFINITY; 32];
        (scores[3], scores[4], scores[5]) = (10.0, 10.0 - 86.0 / 0.3, 10.0 - 88.0 / 0.3);
        let (weights, _, after) = weighed(set, scores, (0, 32), None, Running::new(None));
        assert_eq!(weights[3].to_bits(), 1.0_f32.to_bits(), "{set}");
        assert!((after.total - 1.0).abs() < 3e-7, "{set}: {}", after.total);
        assert!(weights[4] > 0.0, "{set}");
        assert!(weights.iter().enumerate().all(|(key, weight)| [3, 4].contains(&key) || *weight == 0.0), "{set}");
    }
}

#[test]
fn what_is_no_number_shows_in_the_total_if_it_is_seen() {
    for set in KernelSet::available() {
        for bad in [f32::NAN, f32::INFINITY] {
            let mut scores = scores(64, 1);
            scores[40] = bad;
            let total = |seen| weighed(set, scores.clone(), seen, None, Running::new(None)).2.total;
            assert!(total((0, 64)).is_nan() && total((40, 41)).is_nan(), "{set}, {bad}");
            assert!(total((0, 40)).is_finite() && total((41, 64)).is_finite(), "{set}, {bad}");
        }
    }
}
