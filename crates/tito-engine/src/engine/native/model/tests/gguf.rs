//! The models of `tests/golden` in GGUF, as llama.cpp's converter writes them (`tests/golden/gguf`), against what
//! transformers made of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs::File,
};

use candle_core::{
    Device, Tensor,
    quantized::{GgmlDType, QTensor, gguf_file, gguf_file::Value as Setting},
};

use super::{
    families::{FAR, Golden},
    page::{self, ComparedTable},
    *,
};
use crate::{
    engine::native::{model::shape::Longest, weights::GgufWeights},
    gguf::{GgufFile, GgufTensors},
};

/// What the converter makes of a model.
struct Recorded {
    golden: Golden,
    content: Map<String, Value>,
}

impl Recorded {
    fn all() -> Vec<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/gguf");
        let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
        paths.sort();
        paths.iter().map(|path| Self::read(path)).collect()
    }

    fn read(path: &Path) -> Self {
        let name = path.file_stem().unwrap().to_string_lossy().replacen('_', "/", 1);
        Self { golden: Golden::named(&name), content: object(path) }
    }

    fn architecture(&self) -> String {
        self.content["settings"]["general.architecture"][1].as_str().unwrap().to_owned()
    }

    /// The file without these settings and with those, which goes away with the first of the two.
    fn write_with(&self, without: &str, more: &[(&str, Setting)]) -> (tempfile::TempDir, GgufFile) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model.gguf");
        let settings: Vec<(String, Setting)> = self.content["settings"]
            .as_object()
            .unwrap()
            .iter()
            .filter(|(key, _)| without.is_empty() || !key.starts_with(without))
            .map(|(key, value)| (key.clone(), setting(value)))
            .chain(more.iter().map(|(key, value)| ((*key).to_owned(), value.clone())))
            .collect();
        let numbers = self.golden.numbers();
        let tensors: Vec<(String, QTensor)> =
            self.tensors().map(|(name, tensor)| (name.clone(), made(tensor, &numbers))).collect();
        let settings: Vec<(&str, &Setting)> = settings.iter().map(|(key, value)| (&**key, value)).collect();
        let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(name, tensor)| (&**name, tensor)).collect();
        gguf_file::write(&mut File::create(&path).unwrap(), &settings, &tensors).unwrap();
        (directory, GgufFile::open(path).unwrap())
    }

    fn write(&self) -> (tempfile::TempDir, GgufFile) {
        self.write_with("", &[])
    }

    /// How far the model is off, and which setting ends what is computed of its longest prompt, if one does; or why it is
    /// refused.
    fn compare(&self) -> Outcome {
        let (_directory, file) = self.write();
        let config = file.model_config().map_err(|error| error.to_string())?;
        let context = "max_position_embeddings";
        if config[context].as_u64().unwrap() < u64::try_from(self.golden.longest()).unwrap() {
            return Err(format!("`{context}` is less than what the model is compared with"));
        }
        let shape = ModelShape::read(&config).map_err(|error| error.to_string())?;
        let weights = GgufWeights::open(&file).map_err(|error| error.to_string())?;
        let ends = shape.check_length(self.golden.longest()).err().and(shape.longest);
        if ends.is_some_and(|ends| ends.key == "rope_scaling") {
            return Err("`rope_scaling` has other angles for the beginning of a longer sequence".to_owned());
        }
        let backend = cpu(KernelSet::available()[0], 1, Precision::F32);
        let mut model = Model::load(backend, shape, &weights, &mut |_, _| ()).map_err(|error| error.to_string())?;
        model.allocate_cache(self.golden.room()).unwrap();
        self.compare_tensors(&file);
        Ok(match ends {
            Some(Longest { tokens, key, .. }) => (self.golden.compare_first(&mut model, tokens), Some(key)),
            None => (self.golden.compare(&mut model), None),
        })
    }

    /// Compares every tensor with the model's: the same bits, unless the converter computed with them.
    fn compare_tensors(&self, file: &GgufFile) {
        let tensors = GgufTensors::open(file).unwrap();
        let changed: Vec<&String> = self
            .tensors()
            .filter(|(_, made)| made.get("then").or(made.get("times")).is_some())
            .map(|(n, _)| n)
            .collect();
        let mut compared = 0;
        for (name, shape) in tensors.shapes() {
            let Some(expected) = self.golden.numbers_of(name, shape) else { continue };
            let tensor = tensors.get(name).unwrap();
            let mut numbers = Vec::new();
            tensor.read(0..tensor.rows(), &mut numbers).unwrap();
            if !tensors.sources(name).any(|source| changed.iter().any(|changed| *changed == source)) {
                assert!(numbers == expected, "{}: {name} is another tensor", self.golden.name);
                compared += 1;
            }
        }
        assert!(compared > 0, "{}: no tensor was compared", self.golden.name);
    }

    fn tensors(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.content["tensors"].as_object().unwrap().iter()
    }
}

fn setting(described: &Value) -> Setting {
    let value = &described[1];
    let integer = || u32::try_from(value.as_u64().unwrap()).unwrap();
    #[expect(clippy::cast_possible_truncation, reason = "numbers that were written as f32")]
    match described[0].as_str().unwrap() {
        "string" => Setting::String(value.as_str().unwrap().to_owned()),
        "bool" => Setting::Bool(value.as_bool().unwrap()),
        "uint32" => Setting::U32(integer()),
        "float32" => Setting::F32(value.as_f64().unwrap() as f32),
        "array of float32" => Setting::Array(
            value.as_array().unwrap().iter().map(|number| Setting::F32(number.as_f64().unwrap() as f32)).collect(),
        ),
        "array of bool" => Setting::Array(
            value.as_array().unwrap().iter().map(|flag| Setting::Bool(flag.as_bool().unwrap())).collect(),
        ),
        "array of int32" => Setting::Array(
            value
                .as_array()
                .unwrap()
                .iter()
                .map(|number| Setting::I32(i32::try_from(number.as_i64().unwrap()).unwrap()))
                .collect(),
        ),
        other => panic!("a setting of type {other}"),
    }
}

/// A tensor of the file, made of the model's numbers.
fn made(described: &Value, numbers: &[f32]) -> QTensor {
    let shape: Vec<usize> = serde_json::from_value(described["shape"].clone()).unwrap();
    let mut values: Vec<f32> = match &described["places"] {
        Value::Null => serde_json::from_value(described["numbers"].clone()).unwrap(),
        places => places.as_array().unwrap().iter().flat_map(places_of).map(|place| numbers[place]).collect(),
    };
    match described["then"].as_str() {
        None => {}
        Some("add one") => values.iter_mut().for_each(|value| *value += 1.0),
        Some("negate exp") => values.iter_mut().for_each(|value| *value = -value.exp()),
        Some(other) => panic!("{other}"),
    }
    multiply(&mut values, &described["times"]);
    QTensor::quantize(&Tensor::from_vec(values, shape, &Device::Cpu).unwrap(), GgmlDType::F32).unwrap()
}

/// Multiplies the rows of a tensor: so many by this, the next ones by that.
fn multiply(values: &mut [f32], described: &Value) {
    let Some(described) = described.as_array() else { return };
    let runs: Vec<(usize, f64)> =
        described.iter().map(|run| (run[0].as_u64().unwrap().try_into().unwrap(), run[1].as_f64().unwrap())).collect();
    let columns = values.len() / runs.iter().map(|(rows, _)| rows).sum::<usize>();
    let mut rest = values;
    for (rows, factor) in runs {
        let (these, others) = rest.split_at_mut(rows * columns);
        for value in these {
            #[expect(clippy::cast_possible_truncation, reason = "the one rounding of a product")]
            let product = (f64::from(*value) * factor) as f32;
            *value = product;
        }
        rest = others;
    }
}

/// A first place, and lengths and steps from it on, the outermost first.
fn places_of(described: &Value) -> Vec<usize> {
    let (first, steps) = described.as_array().unwrap().split_first().unwrap();
    let mut places = vec![first.as_i64().unwrap()];
    for step in steps {
        let (length, step) = (step[0].as_i64().unwrap(), step[1].as_i64().unwrap());
        places = places.into_iter().flat_map(|place| (0..length).map(move |number| place + step * number)).collect();
    }
    places.into_iter().map(|place| usize::try_from(place).unwrap()).collect()
}

/// The list of docs/models.md: which models agree, and which are refused for what.
fn table(outcomes: &BTreeMap<String, [BTreeSet<String>; 2]>) -> String {
    let mut list = String::new();
    for (architecture, columns) in outcomes {
        let [agree, refused] = columns.each_ref().map(|names| {
            if names.is_empty() { "nothing".to_owned() } else { names.iter().cloned().collect::<Vec<_>>().join(", ") }
        });
        write!(list, "- `{architecture}`: {agree}.").unwrap();
        if !columns[1].is_empty() {
            write!(list, " Refused: {refused}.").unwrap();
        }
        list.push('\n');
    }
    list
}

/// What came of a comparison.
type Outcome = Result<(f64, Option<&'static str>), String>;

/// All of them with their outcomes, as many at a time as there are processors.
fn compared(all: &[Recorded]) -> Vec<(&Recorded, Outcome)> {
    let at_a_time = all.len().div_ceil(std::thread::available_parallelism().map_or(1, usize::from));
    std::thread::scope(|scope| {
        let threads: Vec<_> = all
            .chunks(at_a_time)
            .map(|part| scope.spawn(move || part.iter().map(|one| (one, one.compare())).collect::<Vec<_>>()))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn what_llama_cpp_makes_of_a_model_is_computed_as_the_model_or_refused() {
    let mut outcomes: BTreeMap<String, [BTreeSet<String>; 2]> = BTreeMap::new();
    for (recorded, outcome) in compared(&Recorded::all()) {
        let name = recorded.golden.name.rsplit('/').next().unwrap().replace('_', " ");
        let [agree, refused] = outcomes.entry(recorded.architecture()).or_default();
        match outcome {
            Ok((worst, ends)) => {
                assert!(worst < FAR, "{} is off by {worst:.1e}", recorded.golden.name);
                agree.insert(ends.map_or(name.clone(), |key| format!("{name} up to `{key}`")));
            }
            Err(reason) => {
                let of_tensor = || reason.strip_prefix("tensor ")?.split(':').next();
                let key = reason.split('`').nth(1).or_else(of_tensor).expect("what is refused is named");
                refused.insert(format!("{name} (`{key}`)"));
            }
        }
    }
    page::compare(ComparedTable::Gguf, |_| table(&outcomes));
}

/// Where a file of gpt-oss says no scaling, there is none: without a word in config.json, transformers takes that of the
/// published models for granted.
#[test]
fn a_gpt_oss_file_without_scaling_has_none() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/gguf/families_gpt_oss_plain.json");
    let (recorded, kind) = (Recorded::read(&path), "gpt-oss.rope.scaling.type");
    let named = |name: &str| (kind, Setting::String(name.to_owned()));
    let factor = |factor| ("gpt-oss.rope.scaling.factor", Setting::F32(factor));
    for said in [vec![], vec![named("none"), factor(4.0)], vec![named("linear")], vec![named("linear"), factor(1.0)]] {
        let (_directory, file) = recorded.write_with("gpt-oss.rope.scaling.", &said);
        let config = file.model_config().unwrap();
        assert_eq!(config["rope_scaling"], serde_json::json!({"rope_type": "default"}), "{said:?}");
        assert!(ModelShape::read(&config).unwrap() == ModelShape::read(&unscaled(&config)).unwrap(), "{said:?}");
    }
    let (_directory, file) = recorded.write();
    let config = file.model_config().unwrap();
    assert_eq!(config["rope_scaling"]["rope_type"], "yarn");
    assert!(ModelShape::read(&config).unwrap() != ModelShape::read(&unscaled(&config)).unwrap());
}

/// The same in the words of transformers 5.
fn unscaled(config: &Map<String, Value>) -> Map<String, Value> {
    let mut config = config.clone();
    let theta = config.remove("rope_theta").unwrap();
    config.remove("rope_scaling");
    config.insert("rope_parameters".to_owned(), serde_json::json!({"rope_type": "default", "rope_theta": theta}));
    config
}
