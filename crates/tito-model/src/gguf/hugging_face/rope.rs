//! Rotary embeddings: `rope_theta` and `rope_scaling`, from settings and from the tensor of factors.

use std::f64::consts::TAU;

use serde_json::{Value, json};

use super::{
    super::{GgufError, GgufFile, stored::read_vector},
    settings::Settings,
};

/// The factors of rotary frequencies, which config.json says in its own way.
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";

/// What config.json says of rotary embeddings.
pub(super) struct Rope {
    pub(super) theta: f64,
    /// `null` for none.
    pub(super) scaling: Value,
}

/// Settings that count with one way of scaling, and change nothing with the others.
const OF_SCALING: [&str; 7] = [
    "rope.scale_linear",
    "rope.scaling.factor",
    "rope.scaling.type",
    "rope.scaling.original_context_length",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
];

/// Reads the settings.
pub(super) fn read(settings: &Settings<'_>) -> Result<Rope, GgufError> {
    settings.ignore(&OF_SCALING);
    let theta = settings.float("rope.freq_base")?.unwrap_or(10_000.0);
    Ok(Rope { theta, scaling: scaling(settings)? })
}

/// The scaling of a family whose frequencies a file may divide by factors.
pub(super) fn with_factors(file: &GgufFile, settings: &Settings<'_>, pairs: usize) -> Result<Option<Value>, GgufError> {
    let Some(factors) = factors(file, pairs)? else { return Ok(None) };
    let Rope { theta, scaling } = read(settings)?;
    if !scaling.is_null() {
        return Err(GgufError::Unsupported(format!("it scales its rotary embedding twice, once by `{ROPE_FACTORS}`")));
    }
    llama3(theta, &factors).map(Some)
}

/// Factors for sequences that are no longer than those of the original training, and for longer ones.
pub(super) const LONGROPE: [&str; 2] = ["rope_factors_short.weight", "rope_factors_long.weight"];

/// The scaling by two lists of factors, and how long the sequences of the original training were.
pub(super) fn longrope(file: &GgufFile, settings: &Settings<'_>, pairs: usize) -> Result<(Value, usize), GgufError> {
    if !scaling(settings)?.is_null() {
        return Err(GgufError::Unsupported(format!("it scales its rotary embedding twice, once by `{}`", LONGROPE[0])));
    }
    let [short, long] = LONGROPE.map(|name| factors_of(file, name, pairs));
    let name = "rope.scaling.original_context_length";
    let original = settings.required_size(name)?;
    if original < 2 {
        return Err(GgufError::Invalid { key: settings.key(name), expected: "over 1" });
    }
    refuse_another_factor(settings, original)?;
    Ok((json!({"type": "longrope", "short_factor": short?, "long_factor": long?}), original))
}

/// Refuses what cosines and sines are multiplied by if it is not what follows from the lengths: published configurations do
/// not say it.
#[expect(clippy::cast_precision_loss, reason = "contexts have at most 2^24 positions")]
fn refuse_another_factor(settings: &Settings<'_>, original: usize) -> Result<(), GgufError> {
    let name = "rope.scaling.attn_factor";
    let (factor, context) = (settings.required_float(name)?, settings.required_size("context_length")?);
    let scale = context as f64 / original as f64;
    let expected = if scale > 1.0 { (1.0 + scale.ln() / (original as f64).ln()).sqrt() } else { 1.0 };
    if (factor - expected).abs() <= 1e-6 {
        return Ok(());
    }
    let key = settings.key(name);
    Err(GgufError::Unsupported(format!("`{key}` is {factor}, where the lengths of contexts say {expected}")))
}

fn scaling(settings: &Settings<'_>) -> Result<Value, GgufError> {
    let kind = settings.text("rope.scaling.type")?;
    let factor = match settings.float("rope.scaling.factor")? {
        None => settings.float("rope.scale_linear")?,
        given => given,
    };
    // Linear is what a file means that gives nothing but a factor; factors of 0 and 1 are no scaling.
    let factor =
        factor.filter(|factor| *factor != 0.0 && (kind == Some("yarn") || (factor - 1.0).abs() > f64::EPSILON));
    match (kind, factor) {
        (Some("none"), _) | (None | Some("linear"), None) => Ok(Value::Null),
        (None | Some("linear"), Some(factor)) => Ok(json!({"rope_type": "linear", "factor": factor})),
        (Some("yarn"), Some(factor)) => yarn(settings, factor),
        (Some("yarn"), None) => Err(GgufError::Missing(settings.key("rope.scaling.factor"))),
        (Some(other), _) => {
            let key = settings.key("rope.scaling.type");
            Err(GgufError::Unsupported(format!("it scales its rotary embedding by `{other}`, `{key}`")))
        }
    }
}

fn yarn(settings: &Settings<'_>, factor: f64) -> Result<Value, GgufError> {
    let original = match settings.size("rope.scaling.original_context_length")? {
        Some(original) => original,
        None => settings.required_size("context_length")?,
    };
    let mut scaling = json!({"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original});
    for (name, key) in [("beta_fast", "rope.scaling.yarn_beta_fast"), ("beta_slow", "rope.scaling.yarn_beta_slow")] {
        if let Some(value) = settings.float(key)? {
            scaling[name] = json!(value);
        }
    }
    // The one is `attention_factor` of config.json; the other multiplies what would be computed without it.
    let multiplier = settings.float("rope.scaling.attn_factor")?.filter(|value| (value - 1.0).abs() > f64::EPSILON);
    match (settings.float("rope.scaling.yarn_attn_factor")?, multiplier) {
        (None, None) => {}
        (Some(factor), None) => scaling["attention_factor"] = json!(factor),
        (None, Some(multiplier)) => {
            scaling["attention_factor"] = json!(multiplier * (1.0 + 0.1 * factor.max(1.0).ln()));
        }
        (Some(_), Some(_)) => {
            let keys = ["rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"].map(|name| settings.key(name));
            return Err(GgufError::Unsupported(format!("both `{}` and `{}` are there", keys[0], keys[1])));
        }
    }
    Ok(scaling)
}

/// What each frequency is divided by, if the file says.
fn factors(file: &GgufFile, pairs: usize) -> Result<Option<Vec<f64>>, GgufError> {
    if !file.content.tensors.contains_key(ROPE_FACTORS) {
        return Ok(None);
    }
    factors_of(file, ROPE_FACTORS, pairs).map(Some)
}

/// A factor for each pair of numbers that is rotated.
fn factors_of(file: &GgufFile, name: &str, pairs: usize) -> Result<Vec<f64>, GgufError> {
    let numbers = read_vector(file, name)?;
    if numbers.len() != pairs {
        let reason = format!("its shape is [{}], not [{pairs}]", numbers.len());
        return Err(GgufError::Tensor { name: name.to_owned(), reason });
    }
    Ok(numbers.into_iter().map(f64::from).collect())
}

/// What all models of Llama 3.1 and later have, but for the factor; Llama 4 blends no waves.
const LOW: f64 = 1.0;
const HIGH: [f64; 2] = [4.0, LOW];
const ORIGINAL: f64 = 8192.0;

/// Recovers the parameters of Llama 3's scaling by computing the factors with them.
fn llama3(theta: f64, factors: &[f64]) -> Result<Value, GgufError> {
    let is = |value: f64, expected: f64| (value - expected).abs() <= 1e-5 * expected;
    if factors.iter().all(|value| is(*value, 1.0)) {
        return Ok(Value::Null);
    }
    // The longest wave is stretched by the whole factor.
    let factor = factors.last().copied().unwrap_or(1.0).round();
    #[expect(clippy::cast_precision_loss, reason = "heads are small")]
    let turns = |pair: usize| ORIGINAL * theta.powf(-(pair as f64) / factors.len() as f64) / TAU;
    let agrees = |high: &f64| {
        let expected = (0..factors.len()).map(turns).map(|turns| match turns {
            turns if turns >= *high => 1.0,
            turns if turns <= LOW => factor,
            turns => {
                let kept = (turns - LOW) / (high - LOW);
                1.0 / ((1.0 - kept) / factor + kept)
            }
        });
        factors.iter().zip(expected).all(|(value, expected)| is(*value, expected))
    };
    match HIGH.into_iter().find(agrees) {
        Some(high) if factor >= 1.0 => Ok(json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": LOW,
            "high_freq_factor": high,
            "original_max_position_embeddings": 8192,
        })),
        _ => Err(GgufError::Unsupported(format!("`{ROPE_FACTORS}` is not the scaling of Llama 3.1 and later"))),
    }
}

#[cfg(test)]
mod tests {
    use candle_core::quantized::{GgmlDType, gguf_file::Value as Setting};

    use super::*;
    use crate::gguf::fixture::Gguf;

    fn scaling_with(settings: &[(&str, Setting)]) -> Result<Value, GgufError> {
        let mut gguf = Gguf::tiny();
        for (key, value) in settings {
            gguf.set(&format!("llama.rope.{key}"), value.clone());
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model.gguf");
        gguf.write(&path);
        Ok(GgufFile::open(path)?.model_config()?["rope_scaling"].clone())
    }

    fn kind(name: &str) -> (&'static str, Setting) {
        ("scaling.type", Setting::String(name.to_owned()))
    }

    #[test]
    fn settings_say_how_positions_are_scaled() {
        let factor = ("scaling.factor", Setting::F32(4.0));
        let linear = json!({"rope_type": "linear", "factor": 4.0});
        assert_eq!(scaling_with(std::slice::from_ref(&factor)).unwrap(), linear);
        assert_eq!(scaling_with(&[("scale_linear", Setting::F32(4.0))]).unwrap(), linear);
        assert_eq!(scaling_with(&[("scaling.attn_factor", Setting::F32(1.0))]).unwrap(), Value::Null);
        assert_eq!(scaling_with(&[kind("none"), factor.clone()]).unwrap(), Value::Null);
        assert_eq!(scaling_with(&[kind("linear"), ("scaling.factor", Setting::F32(1.0))]).unwrap(), Value::Null);
        let mut yarn = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512});
        assert_eq!(scaling_with(&[kind("yarn"), factor.clone()]).unwrap(), yarn);
        // What llama.cpp multiplies by it is 0.1 ln(4) + 1.
        yarn["attention_factor"] = json!(0.5 * (1.0 + 0.1 * 4.0_f64.ln()));
        let halved = [kind("yarn"), factor, ("scaling.attn_factor", Setting::F32(0.5))];
        assert_eq!(scaling_with(&halved).unwrap(), yarn);
    }

    #[test]
    fn scaling_that_config_json_cannot_say_is_refused_by_its_key() {
        let factor = ("scaling.factor", Setting::F32(4.0));
        for (named, settings) in [
            ("rope.scaling.type", vec![kind("longrope")]),
            ("rope.scaling.factor", vec![kind("yarn")]),
            (
                "yarn_log_multiplier",
                vec![kind("yarn"), factor.clone(), ("scaling.yarn_log_multiplier", Setting::F32(0.1))],
            ),
            ("yarn_ext_factor", vec![kind("yarn"), factor.clone(), ("scaling.yarn_ext_factor", Setting::F32(0.5))]),
            (
                "both",
                vec![
                    kind("yarn"),
                    factor.clone(),
                    ("scaling.attn_factor", Setting::F32(0.5)),
                    ("scaling.yarn_attn_factor", Setting::F32(0.5)),
                ],
            ),
            ("rope.dimension_sections", vec![("dimension_sections", Setting::U32(1))]),
            ("rope.scaling.attn_factor", vec![("scaling.attn_factor", Setting::F32(0.5))]),
            ("rope.scaling.attn_factor", vec![factor.clone(), ("scaling.attn_factor", Setting::F32(0.5))]),
        ] {
            let error = scaling_with(&settings).unwrap_err().to_string();
            assert!(error.contains(named), "{named}: {error}");
        }
    }

    #[test]
    fn factors_beside_another_scaling_or_of_another_length_are_refused() {
        let mut gguf = Gguf::tiny();
        gguf.add_tensor(ROPE_FACTORS, &[4], GgmlDType::F32);
        gguf.set("llama.rope.scaling.factor", Setting::F32(4.0));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model.gguf");
        gguf.write(&path);
        assert!(GgufFile::open(&path).unwrap().model_config().unwrap_err().to_string().contains("twice"));
        gguf.metadata.remove("llama.rope.scaling.factor");
        gguf.add_tensor(ROPE_FACTORS, &[5], GgmlDType::F32);
        gguf.write(&path);
        assert!(GgufFile::open(&path).unwrap().model_config().unwrap_err().to_string().contains("[5], not [4]"));
    }

    /// What a file says with tensors of so many factors.
    fn longrope_with(numbers: [usize; 2], settings: &[(&str, Setting)]) -> Result<(Value, usize), GgufError> {
        let mut gguf = Gguf::tiny();
        for (name, numbers) in LONGROPE.into_iter().zip(numbers) {
            gguf.add_tensor(name, &[numbers], GgmlDType::F32);
        }
        for (key, value) in settings {
            gguf.set(&format!("llama.rope.{key}"), value.clone());
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model.gguf");
        gguf.write(&path);
        let file = GgufFile::open(path)?;
        longrope(&file, &Settings::new(file.metadata(), "llama"), 4)
    }

    #[test]
    fn two_lists_of_factors_are_those_of_the_file() {
        // The context has 512 tokens.
        let original = ("scaling.original_context_length", Setting::U32(64));
        let factor = |factor: f32| ("scaling.attn_factor", Setting::F32(factor));
        let expected = (1.0 + 8.0_f32.ln() / 64.0_f32.ln()).sqrt();
        let (scaling, length) = longrope_with([4, 4], &[original.clone(), factor(expected)]).unwrap();
        assert_eq!((scaling["type"].as_str(), length), (Some("longrope"), 64));
        assert_eq!(["short_factor", "long_factor"].map(|name| scaling[name].as_array().unwrap().len()), [4, 4]);
        for (named, numbers, settings) in [
            ("rope_factors_long.weight", [4, 3], vec![original.clone(), factor(expected)]),
            ("rope.scaling.attn_factor", [4, 4], vec![original.clone(), factor(1.0)]),
            ("rope.scaling.attn_factor", [4, 4], vec![original.clone()]),
            ("rope.scaling.original_context_length", [4, 4], vec![factor(expected)]),
            ("twice", [4, 4], vec![original, factor(expected), kind("linear"), ("scaling.factor", Setting::F32(4.0))]),
        ] {
            let error = longrope_with(numbers, &settings).unwrap_err().to_string();
            assert!(error.contains(named), "{named}: {error}");
        }
    }

    /// As the converter of llama.cpp computes them, in f32.
    fn factors(theta: f32, pairs: u16, factor: f32, original: f32) -> Vec<f64> {
        let of_pair = |pair: u16| {
            let frequency = 1.0 / theta.powf(f32::from(2 * pair) / f32::from(2 * pairs));
            let wave = std::f32::consts::TAU / frequency;
            let smooth = (original / wave - 1.0) / 3.0;
            if wave < original / 4.0 {
                1.0
            } else if wave > original {
                factor
            } else {
                1.0 / ((1.0 - smooth) / factor + smooth)
            }
        };
        (0..pairs).map(of_pair).map(f64::from).collect()
    }

    #[test]
    fn the_scaling_of_llama_3_is_recovered_from_its_factors() {
        for (theta, pairs, factor) in [(500_000.0, 64, 8.0), (500_000.0, 32, 32.0)] {
            let scaling = llama3(f64::from(theta), &factors(theta, pairs, factor, 8192.0)).unwrap();
            assert_eq!(scaling["factor"], f64::from(factor));
            assert_eq!(scaling["original_max_position_embeddings"], 8192);
        }
        assert_eq!(llama3(500_000.0, &[1.0; 64]).unwrap(), Value::Null);
    }

    #[test]
    fn other_factors_are_refused() {
        let good = factors(500_000.0, 64, 8.0, 8192.0);
        let mut bent = good.clone();
        bent[30] *= 1.001;
        for (theta, factors) in [
            (10_000.0, good),
            (500_000.0, bent),
            (500_000.0, factors(500_000.0, 64, 8.5, 8192.0)),
            (500_000.0, factors(500_000.0, 64, 8.0, 4096.0)),
            (500_000.0, vec![0.0; 64]),
        ] {
            assert!(llama3(theta, &factors).unwrap_err().to_string().contains(ROPE_FACTORS));
        }
    }
}
