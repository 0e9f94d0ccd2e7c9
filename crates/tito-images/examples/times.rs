//! Prints how long images take, by part, in milliseconds; see `benches/README.md`.
//!
//! Arguments: how often each image is read, and a folder as `fingerprints` takes it. Prints a line for each image: its name,
//! and the least and the median time of its identity, of decoding, of the processor, and of patches.

#![expect(clippy::print_stdout, reason = "that is all that it does")]

mod folder;

use std::{env, error::Error, fs, hint::black_box, time::Instant};

use tito_images::{ImageLimits, ImageProcessor, decode};

fn main() -> Result<(), Box<dyn Error>> {
    let rounds = env::args().nth(1).ok_or("how often?")?.parse::<usize>()?.max(1);
    let folder = env::args().nth(2).ok_or("which folder?")?;
    let (processor, images) = folder::read(folder.as_ref())?;
    for path in &images {
        let encoded = fs::read(path)?;
        let taken = (0..rounds).map(|_| times(&processor, &encoded)).collect::<Result<Vec<_>, _>>()?;
        print!("{}", path.file_name().unwrap_or_default().to_string_lossy());
        for (part, name) in ["identity", "decoding", "processor", "patches"].into_iter().enumerate() {
            let mut all = taken.iter().map(|times| times[part]).collect::<Vec<_>>();
            all.sort_by(f64::total_cmp);
            print!(" {name} {:.3} {:.3}", all[0], all[rounds / 2]);
        }
        println!();
    }
    Ok(())
}

fn times(processor: &ImageProcessor, encoded: &[u8]) -> Result<[f64; 4], Box<dyn Error>> {
    let (identity, hashing) = timed(|| processor.identity(black_box(encoded)));
    let (decoded, decoding) = timed(|| decode(black_box(encoded), &ImageLimits::default()));
    let decoded = decoded?;
    let (prepared, processing) = timed(|| processor.prepare(identity, black_box(&decoded)));
    let prepared = prepared?;
    let (patches, reading) = timed(|| black_box(&prepared).patches());
    black_box(patches);
    Ok([hashing, decoding, processing, reading])
}

/// What `work` returns, and the milliseconds that it takes.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let done = work();
    (done, 1e3 * start.elapsed().as_secs_f64())
}
