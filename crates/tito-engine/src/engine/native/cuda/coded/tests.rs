//! Widened codes against their definition, and models in codes against their widened ones, to the bit.

use std::{fs, path::Path};

use super::{
    super::{
        DeviceBackend,
        buffer::Allocations,
        tests::{processor, test_device},
    },
    *,
};
use crate::engine::native::{
    backend::Backend,
    model::{Model, ModelShape, Room, tests::logits},
    weights::{SomeRows, open_coded, open_directory},
};

/// Codes that somebody made up.
struct Made {
    code: Code,
    columns: usize,
    group: usize,
    is_rounded: bool,
    codes: Vec<u8>,
    scales: Vec<f32>,
}

impl Made {
    /// A row for each scale, with every code in every place of a group that is not a multiple of them all.
    fn every(code: Code, group: usize, is_rounded: bool, scales: &[f32]) -> Self {
        let (codes, columns) = match code {
            Code::E4m3 => (256_usize, 259),
            Code::E2m1 => (16, 67),
        };
        let code_at = |row: usize, column: usize| u8::try_from((row * 5 + column) % codes).unwrap();
        Self {
            code,
            columns,
            group,
            is_rounded,
            codes: (0..scales.len()).flat_map(|row| (0..columns).map(move |column| code_at(row, column))).collect(),
            // The groups of a row have the scales from its own on.
            scales: (0..scales.len())
                .flat_map(|row| (0..columns.div_ceil(group)).map(move |place| scales[(row + place) % scales.len()]))
                .collect(),
        }
    }
}

impl CodedRows for Made {
    fn code(&self) -> Code {
        self.code
    }

    fn rows(&self) -> usize {
        self.codes.len() / self.columns
    }

    fn columns(&self) -> usize {
        self.columns
    }

    fn group(&self) -> usize {
        self.group
    }

    fn is_rounded(&self) -> bool {
        self.is_rounded
    }

    fn read(&self, rows: Range<usize>) -> std::result::Result<Codes, WeightsError> {
        let groups = self.columns.div_ceil(self.group);
        Ok(Codes {
            codes: self.codes[rows.start * self.columns..rows.end * self.columns].to_vec(),
            scales: self.scales[rows.start * groups..rows.end * groups].to_vec(),
        })
    }
}

/// Scales of every kind that f32 has.
fn any_scales() -> Vec<f32> {
    let ordinary = [1.0, -0.75, 0.003_417_968_8, 1.0e-3, 239.7, -6.1e-5, 1.1];
    let ends = [0.0, -0.0, 1e-38, 1e-42, f32::MIN_POSITIVE, 3e37, f32::MAX, f32::INFINITY, f32::NAN];
    ordinary.into_iter().chain(ends).collect()
}

/// All powers of two that bf16 has.
fn powers() -> Vec<f32> {
    let least = [0.5 * f32::MIN_POSITIVE];
    least.into_iter().chain((1..255).map(|exponent| f32::from_bits(exponent << 23))).collect()
}

/// The bits of numbers, those of any NaN the same.
fn bits(numbers: impl IntoIterator<Item = f32>) -> Vec<u32> {
    numbers.into_iter().map(|number| if number.is_nan() { u32::MAX } else { number.to_bits() }).collect()
}

fn bits_of(tensor: &Tensor) -> Vec<u32> {
    bits(tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap())
}

#[test]
fn every_code_with_every_kind_of_scale_becomes_the_number_of_its_definition() {
    let mut cases = Vec::new();
    for group in [1, 32, 48, 128, 259, 1_000] {
        cases.extend([false, true].map(|is_rounded| Made::every(Code::E4m3, group, is_rounded, &any_scales())));
    }
    cases.extend([1, 7, 32, 67].map(|group| Made::every(Code::E2m1, group, false, &powers())));
    for made in cases {
        let rows = made.rows();
        let coded = Coded::zeros(&test_device(), rows, &made).unwrap();
        assert!(bits_of(&coded.widened(kind(DType::F32)).unwrap()).iter().all(|bits| *bits == 0), "zeros at first");
        // Of two tensors, the later one first.
        for part in [rows / 2..rows, 0..rows / 2] {
            let some = SomeRows::new(&made, part.clone());
            assert!(coded.takes(&some));
            coded.write_rows(&mut processor(2).pool, part.start, &some).unwrap();
        }
        let all = SomeRows::new(&made, 0..rows);
        let what = format!("{:?} in groups of {}, {}", made.code, made.group, made.is_rounded);
        let (mut wide, mut narrow) = (Vec::new(), Vec::new());
        Rows::read(&all, 0..rows, &mut wide).unwrap();
        all.read_bf16(0..rows, &mut narrow).unwrap();
        let narrow = bits(narrow.into_iter().map(bf16::to_f32));
        for (dtype, expected) in [(DType::F32, bits(wide)), (DType::BF16, narrow)] {
            assert!(bits_of(&coded.widened(kind(dtype)).unwrap()) == expected, "{what} in {dtype:?}");
            let part = coded.narrow(1..3).unwrap().widened(kind(dtype)).unwrap();
            assert!(bits_of(&part) == expected[made.columns..3 * made.columns], "{what} in {dtype:?}");
            let picked = Tensor::new(&[2_u32, 0, 2], &test_device()).unwrap();
            let picked = bits_of(&coded.select(&picked).unwrap().widened(kind(dtype)).unwrap());
            let row = |row: usize| &expected[row * made.columns..][..made.columns];
            assert!(picked == [row(2), row(0), row(2)].concat(), "{what} in {dtype:?}");
        }
    }
}

fn kind(dtype: DType) -> TensorKind<'static> {
    // A test has one device.
    let (device, allocations) = Box::leak(Box::new((test_device(), Allocations::default())));
    TensorKind { device, dtype, allocations }
}

#[test]
fn rows_of_another_kind_make_numbers_of_the_codes() {
    let made = Made::every(Code::E4m3, 32, false, &any_scales()[..4]);
    let other = Made::every(Code::E4m3, 48, false, &any_scales()[..2]);
    let mut backend = DeviceBackend::new(test_device(), DType::F32, processor(1)).keeping_codes();
    let mut matrix = backend.matrix(4, made.columns).unwrap();
    backend.write_rows(&mut matrix, 0, &SomeRows::new(&made, 0..4)).unwrap();
    assert_eq!(backend.matrix_bytes(&matrix), 0, "nobody copies codes");
    backend.write_rows(&mut matrix, 2, &SomeRows::new(&other, 0..2)).unwrap();
    assert_eq!(backend.matrix_bytes(&matrix), 4 * 4 * made.columns as u64, "they are no codes any more");
    let mut found = vec![0; 4 * 4 * made.columns];
    backend.read_rows(&matrix, 0..4, &mut found).unwrap();
    let mut expected = Vec::new();
    Rows::read(&SomeRows::new(&made, 0..2), 0..2, &mut expected).unwrap();
    Rows::read(&SomeRows::new(&other, 0..2), 0..2, &mut expected).unwrap();
    let found = found.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four));
    assert!(bits(found) == bits(expected));
}

#[test]
fn models_in_codes_compute_what_their_widened_ones_compute_to_the_bit() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/quantized");
    for case in ["fp8_blocks", "fp8_tensor", "compressed_fp8_channel", "modelopt_fp8", "gpt_oss"] {
        let directory = golden.join(case);
        let config = fs::read_to_string(directory.join("config.json")).unwrap();
        let config = serde_json::from_str(&config).unwrap();
        for (dtype, deterministic) in [(DType::BF16, false), (DType::F32, true)] {
            let rows = |keep: bool| {
                let backend = DeviceBackend::new(test_device(), dtype, processor(2));
                let backend = if deterministic { backend.deterministic() } else { backend };
                let (backend, weights) = if keep {
                    (backend.keeping_codes(), open_coded(&directory, &config).unwrap())
                } else {
                    (backend, open_directory(&directory, &config).unwrap())
                };
                let shape = ModelShape::read(&config).unwrap();
                let mut model = Model::load(backend, shape, &*weights, &mut |_, _| ()).unwrap();
                model.allocate_cache(Room { blocks: 6, slots: 0 }).unwrap();
                let rows = logits(&mut model, &[1, 5, 9, 33, 7, 7, 2, 30, 11, 39], 0);
                rows.into_iter().map(bits).collect::<Vec<_>>()
            };
            assert!(rows(true) == rows(false), "{case}: the logits of codes differ in {dtype:?}");
        }
    }
}
