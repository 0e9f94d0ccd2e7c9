//! States of each layer against those that transformers has after it (`tests/golden/states`).

use super::{families::Golden, *};

/// How far a number of a state may be from that of transformers, both in f32, in lengths of its row.
const FAR: f64 = 1e-5;

/// What transformers has after each layer of a model: lengths of rows, and some of their numbers.
pub(super) struct States {
    pub(super) golden: Golden,
    content: Map<String, Value>,
}

impl States {
    /// Those of a model, if they were recorded.
    pub(super) fn of(golden: Golden) -> Option<Self> {
        let path = Self::folder().join(format!("{}.json", golden.name.replacen('/', "_", 1)));
        path.exists().then(|| Self { golden, content: object(&path) })
    }

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/states")
    }

    /// All that were recorded.
    fn all() -> Vec<Self> {
        let entries = std::fs::read_dir(Self::folder()).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let read = |path: &PathBuf| {
            let name = path.file_stem().unwrap().to_string_lossy().replacen('_', "/", 1);
            Self { golden: Golden::named(&name), content: object(path) }
        };
        paths.iter().map(read).collect()
    }

    /// The greatest difference of a number from that of transformers, in lengths of its row, and that of lengths.
    pub(super) fn compare<B: Backend>(&self, backend: B) -> f64 {
        let list = |key: &str| -> Vec<usize> { serde_json::from_value(self.content[key].clone()).unwrap() };
        let (positions, columns) = (list("positions"), list("columns"));
        let layers = self.content["layers"].as_array().unwrap();
        let found = self.outputs(backend, positions.last().unwrap() + 1);
        assert_eq!(found.len(), layers.len(), "{}: the layers of both", self.golden.name);
        let mut worst = 0.0_f64;
        for (rows, layer) in found.iter().zip(layers) {
            let (lengths, numbers) = (floats(&layer["norms"]), layer["numbers"].as_array().unwrap());
            assert_eq!((lengths.len(), numbers.len()), (positions.len(), positions.len()));
            for ((position, length), expected) in positions.iter().zip(lengths).zip(numbers) {
                let row = &rows[*position];
                let own = row.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>().sqrt();
                let expected = floats(expected);
                assert_eq!(expected.len(), columns.len());
                let pairs = columns.iter().map(|column| f64::from(row[*column])).zip(expected);
                worst = pairs.chain([(own, length)]).fold(worst, |worst, (own, other)| {
                    // `max` would pass over what is no number.
                    let off = (own - other).abs() / length;
                    if off.is_nan() { f64::INFINITY } else { worst.max(off) }
                });
            }
        }
        worst
    }

    /// The states of so many tokens after each layer.
    fn outputs<B: Backend>(&self, backend: B, tokens: usize) -> Vec<Vec<Vec<f32>>> {
        let shape = ModelShape::read(self.golden.config()).unwrap();
        let hidden = shape.hidden;
        let mut model = self.golden.loaded(backend, shape);
        let blocks = (0..).take(tokens.div_ceil(BLOCK_TOKENS)).collect();
        let span =
            Span { first_row: 0, tokens, first_position: 0, blocks, slot: 0, adapter: None, snapshots: Vec::new() };
        let token_ids = self.golden.token_ids()[..tokens].to_vec();
        let batch = Batch { token_ids, spans: vec![span], logit_rows: Vec::new(), images: Vec::new() };
        let mut layers = Vec::new();
        let nobody = |_: usize, _: &mut [f32]| ();
        let mut keep = |backend: &mut B, states: &B::States| {
            let numbers = backend.read(states, hidden);
            layers.push(numbers.chunks_exact(hidden).map(<[f32]>::to_vec).collect());
        };
        model.forward_watched(&batch, &nobody, Some(&mut keep));
        layers
    }
}

#[test]
fn states_of_each_layer_are_those_of_transformers() {
    for states in States::all() {
        for set in KernelSet::tested() {
            let worst = states.compare(cpu(set, 2, Precision::F32));
            assert!(worst < FAR, "{} is off by {worst:.1e} on {set}", states.golden.name);
        }
    }
}
