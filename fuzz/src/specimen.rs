//! A model's directory, or a store of responses, of which one file is to be spoiled.
//!
//! Shared by the fuzz targets, by the tests that damage files, and by those that hand such files to the program.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/");
/// The weights of a model, and its config.json.
const MODEL: &str = "tests/golden/native/llama";
/// Those of a quantised one.
const QUANTIZED: &str = "tests/golden/quantized/compressed_int4_zero_points";
/// The tokenizer that goes with it.
const TOKENIZER: &str = "tests/fixtures/tiny-model";

/// What a file is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Gguf,
    Safetensors,
    Quantized,
    Index,
    Tokenizer,
    TokenizerConfig,
    Config,
    GenerationConfig,
    Store,
}

/// The root of the repository, which is above that of the fuzz targets.
fn root() -> PathBuf {
    let root = Path::new(ROOT);
    let own = root.join("fuzz").is_dir();
    if own { root.to_owned() } else { root.join("..") }
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Self; 9] = [
        Self::Gguf,
        Self::Safetensors,
        Self::Quantized,
        Self::Index,
        Self::Tokenizer,
        Self::TokenizerConfig,
        Self::Config,
        Self::GenerationConfig,
        Self::Store,
    ];

    /// Whether the file is JSON.
    pub(crate) fn is_text(self) -> bool {
        !matches!(self, Self::Gguf | Self::Safetensors | Self::Quantized | Self::Store)
    }

    /// The file's name in a model directory.
    fn name(self) -> &'static str {
        match self {
            Self::Gguf => "model.gguf",
            Self::Safetensors | Self::Quantized => "model.safetensors",
            Self::Index => "model.safetensors.index.json",
            Self::Tokenizer => "tokenizer.json",
            Self::TokenizerConfig => "tokenizer_config.json",
            Self::Config => "config.json",
            Self::GenerationConfig => "generation_config.json",
            Self::Store => "responses.redb",
        }
    }
}

/// A directory with a file of some kind, among all others that it needs.
pub(crate) struct Specimen {
    directory: TempDir,
    pub(crate) kind: Kind,
}

impl Specimen {
    /// With a store of responses that `store` makes, where that is the file.
    pub(crate) fn new(kind: Kind, store: impl FnOnce(&Path)) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let copy = |from: &str, name: &str| {
            fs::copy(root().join(from).join(name), directory.path().join(name)).expect("a file of a model");
        };
        if !matches!(kind, Kind::Gguf | Kind::Store) {
            for name in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
                copy(TOKENIZER, name);
            }
            for name in ["config.json", "model.safetensors"] {
                copy(if kind == Kind::Quantized { QUANTIZED } else { MODEL }, name);
            }
        }
        if kind == Kind::Index {
            let tensors = fs::read(directory.path().join("model.safetensors")).expect("the weights");
            fs::rename(directory.path().join("model.safetensors"), directory.path().join("1.safetensors"))
                .expect("another name");
            fs::write(directory.path().join(kind.name()), index_of(&tensors)).expect("the index");
        }
        let specimen = Self { directory, kind };
        if kind == Kind::Gguf {
            fs::copy(root().join("fuzz/seeds/gguf/whole"), specimen.path()).expect("a GGUF file");
        }
        if kind == Kind::Store {
            store(&specimen.path());
        }
        specimen
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join(self.kind.name())
    }

    /// What `tito serve` is given as the model: the GGUF file, or the directory.
    pub(crate) fn model(&self) -> PathBuf {
        if self.kind == Kind::Gguf { self.path() } else { self.directory.path().to_owned() }
    }

    /// The file as it was made.
    pub(crate) fn sound(&self) -> Vec<u8> {
        fs::read(self.path()).expect("the file")
    }
}

/// The index of a file of tensors, as a directory of shards has it.
fn index_of(tensors: &[u8]) -> String {
    let (length, rest) = tensors.split_first_chunk::<8>().expect("a length");
    let length = usize::try_from(u64::from_le_bytes(*length)).expect("a short header");
    let header: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&rest[..length]).expect("the header");
    let names = header.into_iter().filter(|(name, _)| name != "__metadata__");
    let map: serde_json::Map<_, _> = names.map(|(name, _)| (name, "1.safetensors".into())).collect();
    serde_json::json!({ "weight_map": map }).to_string()
}
