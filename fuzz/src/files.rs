//! Any bytes as one of the files that tito reads: it is loaded as it is, or refused with one line; never a panic.
//!
//! Shared by the fuzz targets, by the test that replays their seeds and by the one that damages files.

#[path = "specimen.rs"]
mod specimen;

use std::{fs, path::Path};

pub(crate) use specimen::{Kind, Specimen};
use tito::internals::{
    engine::native::{self, NativeEngine, NativeSettings, WeightsSource},
    files::one_line,
    gguf::GgufFile,
    model::{ModelFiles, ModelSource},
    store::{DiskStore, RecordState, ResponseStore},
};

const ROOM: u64 = 1 << 30;
/// Bytes of the response store's file that a fuzzer changes at most.
const MOST_CHANGES: usize = 64;

/// A sound file of this kind, among all that it needs.
pub(crate) fn specimen(kind: Kind) -> Specimen {
    Specimen::new(kind, write_store)
}

fn write_store(path: &Path) {
    let store = DiskStore::open(path, ROOM).expect("a store");
    for id in 0..STORED {
        store.put(&id.to_string(), RecordState::Done, &record(id)).expect("room");
    }
}

impl Specimen {
    /// Replaces the file, and loads what it belongs to; the one line that says why that cannot be done.
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<(), String> {
        fs::write(self.path(), bytes).expect("room for a file");
        let outcome = if self.kind == Kind::Store { read_store(&self.path()) } else { self.load() };
        // As it is printed: a message may quote a line break of the file.
        let outcome = outcome.map_err(|reason| one_line(&reason));
        assert_ne!(outcome, Err(String::new()), "a reason is missing");
        outcome
    }

    /// Loads the model as `tito serve` does. A tokenizer that no damage reaches takes longer to read than all else; it is left out.
    fn load(&self) -> Result<(), String> {
        let said = |error: &dyn std::fmt::Display| error.to_string();
        let files = ModelFiles::open(&self.model()).map_err(|error| said(&error))?;
        if !matches!(self.kind, Kind::Safetensors | Kind::Quantized | Kind::Index) {
            let tokenizer = files.tokenizer().map_err(|error| said(&error))?;
            files.eos(&tokenizer).map_err(|error| said(&error))?;
        }
        let (source, config) = match &files.source {
            ModelSource::Directory { path } => (WeightsSource::Directory(path.clone()), files.config.raw.clone()),
            ModelSource::Gguf { path } => {
                let config = GgufFile::open(path).and_then(|file| file.model_config()).map_err(|error| said(&error))?;
                (WeightsSource::Gguf { path: path.clone(), keep_blocks: true }, config)
            }
        };
        native::supports(&config, native::ModelParts::All)?;
        NativeEngine::load(&NativeSettings::least(source, config), &mut |_, _| ()).map_err(|error| said(&error))?;
        Ok(())
    }
}

const STORED: usize = 12;

fn record(id: usize) -> Vec<u8> {
    (0..150 * id).map(|place| u8::try_from(place % 251).expect("less than 251") ^ 0x5a).collect()
}

/// Opens a store, and reads and writes it: what it has is what was written, or it says that something is wrong.
fn read_store(path: &Path) -> Result<(), String> {
    let store = DiskStore::open(path, ROOM).map_err(|error| error.to_string())?;
    for id in 0..STORED {
        let found = store.get(&id.to_string()).map_err(|error| error.to_string())?;
        assert_eq!(found, Some((RecordState::Done, record(id))), "another record, or none, without a word");
    }
    store.put("new", RecordState::Done, b"new").map_err(|error| error.to_string())?;
    let found = store.get("new").map_err(|error| error.to_string())?;
    assert_eq!(found, Some((RecordState::Done, b"new".to_vec())));
    Ok(())
}

/// What a fuzzer's bytes stand for: the file itself, but for two kinds that are too large to be invented.
///
/// Of safetensors they are the header, and the tensors follow as zeros. Of the store they are changes to a sound file:
/// first where it is cut, if its first byte is odd, then four bytes of place and one that is added for each change.
pub(crate) fn file_of(kind: Kind, data: &[u8], sound: &[u8]) -> Vec<u8> {
    match kind {
        Kind::Safetensors => {
            let header = sound.first_chunk::<8>().map_or(0, |length| u64::from_le_bytes(*length));
            let tensors = sound.len() - 8 - usize::try_from(header).expect("a short header");
            let mut file = data.to_vec();
            file.resize(data.len() + tensors, 0);
            file
        }
        Kind::Store => {
            let mut file = sound.to_vec();
            let place = |place: &[u8; 4], length: usize| u32::from_le_bytes(*place) as usize % length.max(1);
            let Some((cut, mut changes)) = data.split_first() else { return file };
            if let (1, Some((at, rest))) = (cut % 2, changes.split_first_chunk::<4>()) {
                file.truncate(place(at, file.len()));
                changes = rest;
            }
            for change in changes.chunks_exact(5).take(MOST_CHANGES) {
                let at = place(change.first_chunk().expect("five bytes"), file.len());
                if let Some(byte) = file.get_mut(at) {
                    *byte = byte.wrapping_add(change[4]);
                }
            }
            file
        }
        _ => data.to_vec(),
    }
}

/// Checks what a fuzzer made.
pub(crate) fn check(kind: Kind, data: &[u8]) -> Result<(), String> {
    thread_local!(static SPECIMENS: std::cell::RefCell<Vec<(Kind, Specimen, Vec<u8>)>> = const { std::cell::RefCell::new(Vec::new()) });
    SPECIMENS.with_borrow_mut(|specimens| {
        if !specimens.iter().any(|(other, ..)| *other == kind) {
            let specimen = self::specimen(kind);
            let sound = specimen.sound();
            specimens.push((kind, specimen, sound));
        }
        let (_, specimen, sound) = specimens.iter().find(|(other, ..)| *other == kind).expect("it was made");
        specimen.check(&file_of(kind, data, sound))
    })
}
