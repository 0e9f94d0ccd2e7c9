//! What a person sees while the server starts: bars on a terminal, plain lines otherwise.

use std::{
    fmt::Write as _,
    io::{IsTerminal, Write},
    sync::Arc,
    time::{Duration, Instant},
};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use parking_lot::Mutex;

use crate::model::{DownloadEvent, DownloadProgress};

/// Reports the steps of a start.
pub(super) struct Progress {
    /// `None` where no person watches.
    bars: Option<MultiProgress>,
}

/// A step that is being taken.
pub(super) struct Step {
    name: String,
    started: Instant,
    bar: Option<ProgressBar>,
}

const SPINNER: &str = "{spinner} {wide_msg} {elapsed}";
const COUNT: &str = "{spinner} {msg} [{wide_bar}] {pos}/{len}";
const BYTES: &str = "{spinner} {msg} [{wide_bar}] {bytes}/{total_bytes} {bytes_per_sec}";

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates above are valid")
}

/// Writes a line to standard error; that nobody reads it is no reason to stop.
fn line(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { bars: std::io::stderr().is_terminal().then(MultiProgress::new) }
    }

    /// Starts a step.
    pub(super) fn step(&self, name: &str) -> Step {
        let bar = self.bars.as_ref().map(|bars| {
            let bar = bars.add(ProgressBar::new_spinner().with_style(style(SPINNER)).with_message(name.to_owned()));
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        if bar.is_none() {
            line(&format!("{name} ..."));
        }
        Step { name: name.to_owned(), started: Instant::now(), bar }
    }

    /// Reports downloads, one file at a time.
    pub(super) fn downloads(&self) -> DownloadProgress {
        let bars = self.bars.clone();
        let current = Mutex::new(None::<ProgressBar>);
        Arc::new(move |event| match (event, &bars) {
            (DownloadEvent::Started { file, size_bytes }, Some(bars)) => {
                let bar = bars.add(ProgressBar::new(size_bytes as u64).with_style(style(BYTES)));
                bar.set_message(file.to_owned());
                *current.lock() = Some(bar);
            }
            (DownloadEvent::Started { file, size_bytes }, None) => {
                line(&format!("fetching {file} ({} MB) ...", size_bytes.div_ceil(1_000_000)));
            }
            (DownloadEvent::Received { bytes }, _) => {
                if let Some(bar) = current.lock().as_ref() {
                    bar.inc(bytes as u64);
                }
            }
            (DownloadEvent::Finished, _) => {
                if let Some(bar) = current.lock().take() {
                    bar.finish_and_clear();
                }
            }
        })
    }

    /// Says something between two steps.
    pub(super) fn say(&self, text: &str) {
        match &self.bars {
            Some(bars) => _ = bars.println(text),
            None => line(text),
        }
    }

    /// Says the one thing that stays.
    pub(super) fn banner(&self, text: &str) {
        if let Some(bars) = &self.bars {
            let _ = bars.clear();
        }
        line(text);
    }
}

impl Step {
    /// Reports that `done` of `all` parts are through.
    pub(super) fn count(&self, done: usize, all: usize) {
        if let Some(bar) = &self.bar {
            if bar.length() != Some(all as u64) {
                bar.set_style(style(COUNT));
                bar.set_length(all as u64);
            }
            bar.set_position(done as u64);
        }
    }

    /// Ends the step.
    pub(super) fn done(self) {
        let mut text = self.name;
        let _ = write!(text, ": {:.1} s", self.started.elapsed().as_secs_f64());
        match self.bar {
            Some(bar) => bar.finish_and_clear(),
            None => line(&text),
        }
    }
}
