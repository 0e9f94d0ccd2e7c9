//! The kernels of mixtures beside what the processor makes of the same numbers, on the GPU that `TITO_TEST_GPU` is for.

#![expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "small numbers")]

use std::collections::BTreeSet;

use super::{super::tests::test_device, *};
use crate::engine::native::{
    routing::{Groups, NOT_GIVEN, RouterShape, SOFTMAX, Scores, choose as choose_here},
    tests::Random,
};

/// Whether there is a GPU to test on; a build for GPUs is compiled and tested on machines without one, too.
fn has_gpu() -> bool {
    let is_there = test_device().is_cuda();
    if !is_there {
        eprintln!("SKIPPED: the processor has no kernels of mixtures; TITO_TEST_GPU=1 tries them on a GPU");
    }
    is_there
}

/// Numbers between -3 and 3, of which some are equal.
fn numbers(random: &mut Random, count: usize) -> Vec<f32> {
    (0..count).map(|_| random.below(601) as f32 / 100.0 - 3.0).collect()
}

fn tensor(numbers: &[f32], shape: (usize, usize), dtype: DType) -> Tensor {
    Tensor::from_slice(numbers, shape, &test_device()).unwrap().to_dtype(dtype).unwrap()
}

/// How experts are chosen in models, and in ones that are harder.
fn routings() -> Vec<Routing> {
    let groups = |count, chosen, best| Some(Groups { count, chosen, best });
    let sigmoid = RouterShape { scores: Scores::Sigmoid, ..SOFTMAX };
    let routing = |experts, per_token, router| Routing { experts, per_token, router };
    vec![
        routing(128, 8, SOFTMAX),
        routing(5, 2, RouterShape { normalize: None, factor: 2.5, ..SOFTMAX }),
        routing(8, 8, SOFTMAX),
        routing(
            256,
            8,
            RouterShape { groups: groups(8, 4, 2), choice_bias: true, added: 1e-20, factor: 2.5, ..sigmoid },
        ),
        routing(64, 6, RouterShape { groups: groups(8, 3, 1), normalize: None, ..SOFTMAX }),
        routing(33, 1, sigmoid),
        routing(1024, 32, RouterShape { normalize: Some(0.3), ..sigmoid }),
    ]
}

#[test]
fn the_device_chooses_the_experts_that_the_processor_does() {
    if !has_gpu() {
        return;
    }
    let mut random = Random::seeded(1);
    for (routing, rows) in routings().into_iter().zip([37, 4, 9, 6, 5, 70, 3]) {
        let Routing { experts, per_token, router } = routing;
        let scores = numbers(&mut random, rows * experts);
        let bias = router.choice_bias.then(|| numbers(&mut random, experts));
        let sent = bias.as_ref().map(|bias| Tensor::new(&bias[..], &test_device()).unwrap());
        // Every third row is given its experts, in an order of their own.
        let given: Vec<u32> = (0..rows)
            .flat_map(|row| (0..per_token).map(move |place| (row * 5 + per_token - place) % experts))
            .enumerate()
            .map(|(index, expert)| if index / per_token % 3 == 0 { expert as u32 } else { NOT_GIVEN })
            .collect();
        let leaning = Leaning { bias: sent.as_ref(), factors: None, given: Some(given.clone()) };
        let table = tensor(&scores, (rows, experts), DType::F32);
        let chosen = choose(&table, routing, leaning, 8, (&mut Buffer::default(), &Allocations::default())).unwrap();
        let (found, weights) = (chosen.read().unwrap(), chosen.list(List::Weights).unwrap().to_vec1::<u32>().unwrap());
        for row in 0..rows {
            let own = row * per_token..(row + 1) * per_token;
            let given: Vec<u16> = given[own.clone()].iter().map(|expert| *expert as u16).collect();
            let given = (row % 3 == 0).then_some(&given[..]);
            let scores = &scores[row * experts..(row + 1) * experts];
            let expected = choose_here(scores, bias.as_deref(), routing, given);
            for (place, (expert, weight)) in expected.into_iter().enumerate() {
                let at = own.start + place;
                let other = found[at] as usize;
                // Exponentials differ in their last bits, and so may the order of experts that are as good.
                let is_as_good = (scores[expert] - scores[other]).abs() < 1e-6 || bias.is_some();
                assert!(expert == other || is_as_good, "{routing:?}, row {row}: {other} and not {expert}");
                let off = (f32::from_bits(weights[at]) - weight).abs();
                assert!(off < 1e-5 * weight.abs().max(1.0) || expert != other, "{routing:?}, row {row}: off by {off}");
            }
        }
    }
}

#[test]
fn a_chance_that_is_no_number_spoils_all_weights() {
    if !has_gpu() {
        return;
    }
    let sigmoid = RouterShape { scores: Scores::Sigmoid, ..SOFTMAX };
    for router in [SOFTMAX, sigmoid, RouterShape { groups: Some(Groups { count: 4, chosen: 2, best: 2 }), ..sigmoid }] {
        let routing = Routing { experts: 40, per_token: 3, router };
        let mut scores: Vec<f32> = (0..3 * 40).map(|place| (place % 7) as f32).collect();
        // The last row is well.
        (scores[1], scores[40 + 39]) = (f32::NAN, -f32::NAN);
        let leaning = Leaning { bias: None, factors: None, given: None };
        let table = tensor(&scores, (3, 40), DType::F32);
        let chosen = choose(&table, routing, leaning, 8, (&mut Buffer::default(), &Allocations::default())).unwrap();
        assert!(chosen.read().unwrap().iter().all(|expert| *expert < 40));
        let weights = chosen.list(List::Weights).unwrap().to_vec1::<u32>().unwrap();
        let are_nan: Vec<bool> = weights.into_iter().map(|bits| f32::from_bits(bits).is_nan()).collect();
        assert_eq!(are_nan, [[true; 3], [true; 3], [false; 3]].concat(), "{router:?}");
    }
}

#[test]
fn factors_of_experts_are_in_their_weights() {
    if !has_gpu() {
        return;
    }
    let routing = Routing { experts: 3, per_token: 2, router: SOFTMAX };
    let factors = Tensor::new(&[2.0_f32, 3.0, 5.0], &test_device()).unwrap();
    let leaning = Leaning { bias: None, factors: Some(&factors), given: None };
    let table = tensor(&[0.0, 0.0, -99.0], (1, 3), DType::F32);
    let chosen = choose(&table, routing, leaning, 8, (&mut Buffer::default(), &Allocations::default())).unwrap();
    assert_eq!(chosen.read().unwrap(), [0, 1]);
    let weights = chosen.list(List::Weights).unwrap().to_vec1::<u32>().unwrap();
    assert_eq!(weights.into_iter().map(f32::from_bits).collect::<Vec<_>>(), [1.0, 1.5]);
}

/// The experts of rows that choose by random scores, in tiles of so many rows.
fn random_rows(random: &mut Random, rows: usize, routing: Routing, tile_rows: usize) -> Chosen {
    let scores = numbers(random, rows * routing.experts);
    let leaning = Leaning { bias: None, factors: None, given: None };
    choose(
        &tensor(&scores, (rows, routing.experts), DType::F32),
        routing,
        leaning,
        tile_rows,
        (&mut Buffer::default(), &Allocations::default()),
    )
    .unwrap()
}

#[test]
fn rows_are_listed_once_for_each_of_their_experts() {
    if !has_gpu() {
        return;
    }
    let mut random = Random::seeded(2);
    for (rows, experts, per_token, tile_rows) in [(1, 128, 8, 8), (700, 7, 3, 64), (300, 60, 4, 16), (2, 2, 2, 32)] {
        let chosen = random_rows(&mut random, rows, Routing { experts, per_token, router: SOFTMAX }, tile_rows);
        let list = |list| chosen.list(list).unwrap().to_vec1::<u32>().unwrap();
        let (of_rows, listed, places) = (chosen.read().unwrap(), list(List::Rows), list(List::Places));
        let mut expected: Vec<(u32, u32)> =
            of_rows.iter().zip(0..).map(|(expert, pick)| (*expert, pick / per_token as u32)).collect();
        expected.sort_unstable();
        assert_eq!(listed, expected.iter().map(|(_, row)| *row).collect::<Vec<_>>());
        assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), rows * per_token);
        for (pick, (expert, place)) in of_rows.iter().zip(&places).enumerate() {
            assert_eq!(expected[*place as usize], (*expert, (pick / per_token) as u32));
        }
        let mut tiled = Vec::new();
        for tile in list(List::Tiles).chunks_exact(TILE_WORDS).filter(|tile| tile[0] != u32::MAX) {
            let &[expert, first, count] = tile else { unreachable!("a tile has three words") };
            assert!(count >= 1 && count as usize <= tile_rows);
            tiled.extend((first..first + count).map(|place| (expert, listed[place as usize])));
        }
        assert_eq!(tiled, expected);
    }
}

/// Matrices of random numbers and a bias for each.
struct Experts {
    matrices: Vec<Tensor>,
    biases: Vec<Tensor>,
    outputs: usize,
    inputs: usize,
}

impl Experts {
    fn new(random: &mut Random, count: usize, (outputs, inputs): (usize, usize), dtype: DType) -> Self {
        let matrices =
            (0..count).map(|_| tensor(&numbers(random, outputs * inputs), (outputs, inputs), dtype)).collect();
        let bias = |_| Tensor::new(numbers(random, outputs), &test_device()).unwrap();
        Self { matrices, biases: (0..count).map(bias).collect(), outputs, inputs }
    }

    fn table(&self, with_bias: bool) -> Table {
        let biases: Vec<&Tensor> = self.biases.iter().filter(|_| with_bias).collect();
        kernels::table(
            &self.matrices.iter().collect::<Vec<_>>(),
            &biases,
            self.matrices.len(),
            &mut SentAddresses::default(),
        )
        .unwrap()
    }

    /// What an expert makes of a row.
    fn expected(&self, expert: usize, row: &[f32], biased: bool) -> Vec<f64> {
        let matrix = self.matrices[expert].to_dtype(DType::F32).unwrap().to_vec2::<f32>().unwrap();
        let bias = self.biases[expert].to_vec1::<f32>().unwrap();
        let product = |(weights, bias): (&Vec<f32>, &f32)| {
            let sum: f64 = weights.iter().zip(row).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            if biased { sum + f64::from(*bias) } else { sum }
        };
        matrix.iter().zip(&bias).map(product).collect()
    }
}

#[test]
fn products_of_all_experts_are_as_defined_and_have_the_same_bits_in_every_tile() {
    if !has_gpu() {
        return;
    }
    let mut random = Random::seeded(3);
    for (rows, experts, per_token, shape, dtype) in [
        (9, 4, 2, (72, 104), DType::BF16),
        (70, 5, 3, (40, 512), DType::BF16),
        (3, 6, 1, (130, 8), DType::BF16),
        (19, 4, 2, (33, 30), DType::F32),
    ] {
        let (routing, biased) = (Routing { experts, per_token, router: SOFTMAX }, rows != 70);
        let all = Experts::new(&mut random, experts, shape, dtype);
        let scores = tensor(&numbers(&mut random, rows * experts), (rows, experts), DType::F32);
        let input = tensor(&numbers(&mut random, rows * all.inputs), (rows, all.inputs), dtype);
        let table = all.table(biased);
        let mut same: Option<Vec<Vec<f32>>> = None;
        for tile_rows in if dtype == DType::F32 { vec![8] } else { vec![8, 16, 32, 64] } {
            let leaning = Leaning { bias: None, factors: None, given: None };
            let chosen =
                choose(&scores, routing, leaning, tile_rows, (&mut Buffer::default(), &Allocations::default()))
                    .unwrap();
            let out = Tensor::full(f32::NAN, (rows * per_token, all.outputs), &test_device()).unwrap();
            kernels::multiply_experts(&input, (&table, None), &chosen, true, &out).unwrap();
            let found = out.to_vec2::<f32>().unwrap();
            assert!(same.as_ref().is_none_or(|same| *same == found), "tiles of {tile_rows} rows have other bits");
            let listed = chosen.list(List::Rows).unwrap();
            // Rows that lie as the list says are multiplied to the same, one expert after the other, too.
            let gathered = input.index_select(&listed, 0).unwrap();
            let again = Tensor::full(f32::NAN, (rows * per_token, all.outputs), &test_device()).unwrap();
            for expert in 0..experts {
                kernels::multiply_experts(&gathered, (&table, Some(expert)), &chosen, false, &again).unwrap();
            }
            assert_eq!(again.to_vec2::<f32>().unwrap(), found);
            let owners = owners(&chosen);
            let rows = gathered.to_dtype(DType::F32).unwrap().to_vec2::<f32>().unwrap();
            for ((found, row), expert) in found.iter().zip(&rows).zip(owners) {
                for (found, expected) in found.iter().zip(all.expected(expert, row, biased)) {
                    let off = (f64::from(*found) - expected).abs();
                    assert!(off < 1e-4 * expected.abs().max(10.0), "{found} and not {expected}");
                }
            }
            same = Some(found);
        }
    }
}

/// The expert of each place of the list.
fn owners(chosen: &Chosen) -> Vec<usize> {
    let mut owners: Vec<usize> = chosen.read().unwrap().into_iter().map(|expert| expert as usize).collect();
    owners.sort_unstable();
    owners
}

#[test]
fn each_row_adds_what_its_experts_give_in_the_order_of_their_numbers() {
    if !has_gpu() {
        return;
    }
    let mut random = Random::seeded(4);
    let (rows, experts, per_token, width) = (23, 9, 4, 300);
    let chosen = random_rows(&mut random, rows, Routing { experts, per_token, router: SOFTMAX }, 8);
    let given = numbers(&mut random, rows * per_token * width);
    let before = numbers(&mut random, rows * width);
    let sums = tensor(&before, (rows, width), DType::F32);
    kernels::add_experts(&tensor(&given, (rows * per_token, width), DType::F32), &chosen, 0.7, &sums).unwrap();
    let found = sums.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let list = |list| chosen.list(list).unwrap().to_vec1::<u32>().unwrap();
    let (of_rows, weights, places) = (list(List::Experts), list(List::Weights), list(List::Places));
    for row in 0..rows {
        let mut picks: Vec<usize> = (row * per_token..(row + 1) * per_token).collect();
        picks.sort_by_key(|pick| of_rows[*pick]);
        for column in 0..width {
            let sum = picks.iter().fold(before[row * width + column], |sum, pick| {
                sum + given[places[*pick] as usize * width + column] * (f32::from_bits(weights[*pick]) * 0.7)
            });
            assert_eq!(found[row * width + column].to_bits(), sum.to_bits(), "row {row}, column {column}");
        }
    }
}
