//! The trial passes what is right, and nothing else.

use super::{example::Tolerance, *};
use crate::engine::native::cpu::kernels::Pool;

fn processor(set: KernelSet, threads: usize) -> Processor {
    Processor { set, pool: Pool::new(threads).unwrap() }
}

#[test]
fn every_set_that_this_machine_runs_passes() {
    for set in KernelSet::tested() {
        let mut processor = processor(set, 3);
        assert_eq!(compare_with_portable(&mut processor), Ok(()), "{set}");
        assert_eq!(processor.set, set, "it is left as it was");
    }
}

#[test]
fn a_wrong_number_anywhere_in_an_example_is_found() {
    let mut processor = processor(KernelSet::PORTABLE, 1);
    for example in all() {
        let expected = (example.compute)(&mut processor);
        assert!(expected.len() > 10, "{}", example.operation);
        assert_eq!(example.compare(&expected, &expected), Ok(()));
        for index in (0..expected.len()).step_by(1 + expected.len() / 40) {
            let mut found = expected.clone();
            found[index] = match example.tolerance {
                _ if expected[index].is_nan() => 0.0,
                Tolerance::SameBits => f32::from_bits(expected[index].to_bits() ^ 1),
                Tolerance::Within(most) => expected[index] + 2.0 * most,
            };
            let mismatch = example.compare(&found, &expected).unwrap_err();
            assert_eq!(mismatch.index, index);
            found[index] = f32::NAN;
            assert_eq!(example.compare(&found, &expected).is_err(), !expected[index].is_nan());
        }
    }
}

/// A kernel that loses a row, a column or a step of the inner dimension is off by far more than the tolerance.
#[test]
fn examples_tell_a_lost_product_from_a_rounding() {
    let mut processor = processor(KernelSet::PORTABLE, 1);
    for example in all() {
        let numbers = (example.compute)(&mut processor);
        let Tolerance::Within(most) = example.tolerance else { continue };
        let differing = numbers.windows(2).filter(|pair| (pair[0] - pair[1]).abs() > 4.0 * most).count();
        assert!(2 * differing > numbers.iter().filter(|number| !number.is_nan()).count(), "{}", example.operation);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn signals_change_nothing() {
    let fastest = KernelSet::available()[0];
    assert_eq!(try_under_signals(fastest, 1).unwrap(), Ok(()), "{fastest}");
}
