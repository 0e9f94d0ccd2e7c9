//! Prints what becomes of images, to be compared with what transformers makes of them: see
//! `tests/reference/record_images.py`.
//!
//! Argument: a folder with `config.json`, `preprocessor_config.json` and images. Prints a line
//! for each image: its name, and the grid with the hashes of the decoded pixels and of the patches, or why there are none.

#![expect(clippy::print_stdout, reason = "that is all that it does")]

mod folder;

use std::{env, error::Error, fs};

use sha2::{Digest, Sha256};
use tito_images::{ImageLimits, ImageProcessor, decode};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args().nth(1).ok_or("which folder?")?;
    let (processor, images) = folder::read(folder.as_ref())?;
    for path in &images {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match fingerprint(&processor, &fs::read(path)?) {
            Ok(line) => println!("{name} {line}"),
            Err(error) => println!("{name} error: {error}"),
        }
    }
    Ok(())
}

fn fingerprint(processor: &ImageProcessor, encoded: &[u8]) -> Result<String, Box<dyn Error>> {
    let decoded = decode(encoded, &ImageLimits::default())?;
    let pixels = sha256(decoded.pixels());
    let prepared = match processor.prepare(processor.identity(encoded), &decoded) {
        Ok(prepared) => prepared,
        Err(error) => return Ok(format!("{pixels} error: {error}")),
    };
    let patches = prepared.patches().iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
    let grid = prepared.grid();
    Ok(format!("{pixels} {}x{} {}", grid.rows, grid.columns, sha256(&patches)))
}

fn sha256(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}
