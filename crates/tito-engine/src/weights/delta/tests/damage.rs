//! Recorded deltas that were damaged: what they make of a tensor is what it should be, or they are refused.

use proptest::prelude::*;

use super::*;

const VERSIONS: [&str; 4] = [
    "slime_xor/weight_v000001",
    "slime_overwrite/weight_v000001",
    "slime_adler32/weight_v000001",
    "skyrl/delta-00000001",
];

#[derive(Debug, Clone)]
enum Damage {
    Flip(usize, u32),
    Truncate(usize),
    Length(usize, u64),
    Repeat(usize, usize),
}

impl Damage {
    fn apply(&self, file: &mut Vec<u8>) {
        let length = file.len();
        match *self {
            Self::Flip(at, bit) => file[at % length] ^= 1 << bit,
            Self::Truncate(at) => file.truncate(at % length),
            Self::Length(at, value) => {
                let at = at % length;
                let end = length.min(at + 8);
                file[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
            }
            Self::Repeat(from, to) => {
                let (from, to) = (from % length, to % length);
                let part = file[from.min(to)..from.max(to)].to_vec();
                file.extend(part);
            }
        }
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    let length = prop::sample::select(vec![0, 1 << 20, 1 << 32, u64::MAX, u64::MAX / 2, 99_999_999]);
    let at = 0_usize..20_000;
    prop_oneof![
        (at.clone(), 0_u32..8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        at.clone().prop_map(Damage::Truncate),
        (prop_oneof![Just(0), at.clone()], length).prop_map(|(at, value)| Damage::Length(at, value)),
        (at.clone(), at).prop_map(|(from, to)| Damage::Repeat(from, to)),
    ]
}

/// Everything that is done with a version, and whether all of it was possible.
fn use_version(directory: &Path, sound: &Delta) -> Result<(), DeltaError> {
    let delta = Delta::open(directory)?;
    for tensor in base() {
        let after = delta.apply(&tensor.name, tensor.bytes.to_vec())?;
        if delta.changes(&tensor.name) {
            assert_eq!(after, sound.apply(&tensor.name, tensor.bytes.to_vec()).unwrap(), "silently wrong");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn damaged_deltas_do_what_they_should_or_are_refused(
        version in prop::sample::select(VERSIONS.to_vec()),
        file in any::<prop::sample::Index>(),
        damages in prop::collection::vec(damage(), 1..3),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut paths: Vec<_> = fs::read_dir(golden(version)).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let damaged = file.index(paths.len());
        for (number, path) in paths.iter().enumerate() {
            let mut bytes = fs::read(path).unwrap();
            for damage in damages.iter().filter(|_| number == damaged) {
                if !bytes.is_empty() {
                    damage.apply(&mut bytes);
                }
            }
            fs::write(directory.path().join(path.file_name().unwrap()), bytes).unwrap();
        }
        let sound = Delta::open(&golden(version)).unwrap();
        if let Err(error) = use_version(directory.path(), &sound) {
            prop_assert_eq!(error.to_string().lines().count(), 1);
            prop_assert!(error.to_string().len() < 2000);
        }
    }
}
