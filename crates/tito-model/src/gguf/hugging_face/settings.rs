//! The settings of a model: what its metadata has under the architecture's name.

use std::{cell::RefCell, collections::BTreeSet};

use super::super::{GgufError, metadata::Metadata};

/// Settings that change nothing, or that every config.json has: notes on where a file comes from, how embeddings would be
/// pooled, sizes that are known.
const IGNORED: [&str; 5] =
    ["context_length", "pooling_type", "rope.scaling.finetuned", "tensor_data_layout", "vocab_size"];

/// Settings that change nothing with one of these values, wherever nobody reads them.
const NEUTRAL: [(&str, &[f64]); 11] = [
    ("attention.causal", &[1.0]),
    ("expert_gating_func", &[0.0, 1.0]),
    ("expert_group_count", &[0.0, 1.0]),
    ("expert_group_used_count", &[0.0, 1.0]),
    ("expert_shared_count", &[0.0]),
    ("expert_weights_scale", &[0.0, 1.0]),
    // llama.cpp multiplies cosines and sines by it, however positions are scaled.
    ("rope.scaling.attn_factor", &[1.0]),
    ("rope.scaling.yarn_ext_factor", &[-1.0, 1.0]),
    ("rope.scaling.yarn_log_multiplier", &[0.0]),
    ("leading_dense_block_count", &[0.0]),
    ("use_parallel_residual", &[0.0]),
];

/// Reads settings, and remembers which.
pub(super) struct Settings<'a> {
    metadata: Metadata<'a>,
    architecture: &'a str,
    known: RefCell<BTreeSet<String>>,
}

impl<'a> Settings<'a> {
    pub(super) fn new(metadata: Metadata<'a>, architecture: &'a str) -> Self {
        Self { metadata, architecture, known: RefCell::default() }
    }

    /// The key of a setting.
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    /// Takes settings for known that are read in no other way.
    pub(super) fn ignore(&self, names: &[&str]) {
        self.known.borrow_mut().extend(names.iter().map(|name| (*name).to_owned()));
    }

    fn key_of(&self, name: &str) -> String {
        self.ignore(&[name]);
        self.key(name)
    }

    /// Whether there is a setting, whatever its value.
    pub(super) fn has(&self, name: &str) -> bool {
        self.metadata.has(&self.key(name))
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>, GgufError> {
        self.metadata.text(&self.key_of(name))
    }

    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, GgufError> {
        self.metadata.flag(&self.key_of(name))
    }

    pub(super) fn size(&self, name: &str) -> Result<Option<usize>, GgufError> {
        self.metadata.size(&self.key_of(name))
    }

    pub(super) fn required_size(&self, name: &str) -> Result<usize, GgufError> {
        self.metadata.required_size(&self.key_of(name))
    }

    pub(super) fn float(&self, name: &str) -> Result<Option<f64>, GgufError> {
        self.metadata.float(&self.key_of(name))
    }

    pub(super) fn required_float(&self, name: &str) -> Result<f64, GgufError> {
        self.float(name)?.ok_or_else(|| GgufError::Missing(self.key(name)))
    }

    /// A factor. llama.cpp takes 0 for none at all, which config.json cannot say.
    pub(super) fn required_factor(&self, name: &str) -> Result<f64, GgufError> {
        match self.required_float(name)? {
            factor if factor > 0.0 => Ok(factor),
            _ => Err(GgufError::Invalid { key: self.key(name), expected: "over 0" }),
        }
    }

    /// What is added to the mean of squares.
    pub(super) fn required_epsilon(&self, name: &str) -> Result<f64, GgufError> {
        match self.required_float(name)? {
            epsilon if epsilon >= 0.0 => Ok(epsilon),
            _ => Err(GgufError::Invalid { key: self.key(name), expected: "0 or more" }),
        }
    }

    /// One flag for each layer.
    pub(super) fn flags(&self, name: &str) -> Result<Option<Vec<bool>>, GgufError> {
        self.metadata.flags(&self.key_of(name))
    }

    /// One number for each of so many layers, where one alone counts for all of them.
    pub(super) fn sizes(&self, name: &str, layers: usize) -> Result<Vec<usize>, GgufError> {
        let key = self.key_of(name);
        if self.metadata.is_list(&key) {
            let invalid = || GgufError::Invalid { key: key.clone(), expected: "a size for each layer" };
            let listed = self.metadata.required_integers(&key)?;
            let sizes: Option<Vec<usize>> = listed.into_iter().map(|size| usize::try_from(size).ok()).collect();
            return sizes.filter(|sizes| sizes.len() == layers).ok_or_else(invalid);
        }
        Ok(vec![self.metadata.required_size(&key)?; layers])
    }

    /// One number for each layer.
    pub(super) fn required_integers(&self, name: &str) -> Result<Vec<i64>, GgufError> {
        self.metadata.required_integers(&self.key_of(name))
    }

    /// Refuses a setting that is there with any other value than these, of which the first stands for none.
    pub(super) fn only(&self, name: &str, values: &[f64]) -> Result<(), GgufError> {
        let key = self.key_of(name);
        let value = self.metadata.number(&key)?.unwrap_or(values[0]);
        if values.iter().any(|known| (value - known).abs() < f64::EPSILON) {
            return Ok(());
        }
        Err(GgufError::Unsupported(format!("`{key}` is {value}, which config.json cannot say")))
    }

    /// Refuses settings that nobody has read and that may change a result.
    pub(super) fn refuse_others(&self) -> Result<(), GgufError> {
        self.ignore(&IGNORED);
        let known = self.known.borrow().clone();
        let has_experts = self.metadata.number(&self.key("expert_count"))?.is_some_and(|count| count != 0.0);
        for (key, setting) in self.metadata.keys_below(&format!("{}.", self.architecture)) {
            // Where there are no experts, nothing that is said of them counts.
            if known.contains(setting) || (!has_experts && setting.starts_with("expert_")) {
                continue;
            }
            match NEUTRAL.iter().find(|(name, _)| *name == setting) {
                Some((name, values)) => self.only(name, values)?,
                None => return Err(GgufError::Unsupported(format!("its setting `{key}` is not known"))),
            }
        }
        Ok(())
    }
}
