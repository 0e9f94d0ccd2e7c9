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
    /// Nothing is said of steps that take no time.
    is_silent: bool,
}

/// A step that is being taken.
pub(super) struct Step {
    name: String,
    started: Instant,
    bar: Option<ProgressBar>,
    /// When the last line was written, where there is no bar.
    last_line: Mutex<Instant>,
    is_silent: bool,
}

/// A file that is being fetched.
struct Download {
    step: Step,
    received: u64,
    all: u64,
}

const SPINNER: &str = "{spinner} {wide_msg} {elapsed}";
const COUNT: &str = "{spinner} {msg} [{wide_bar}] {pos}/{len}";
const BYTES: &str = "{spinner} {msg} [{wide_bar}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec}";
const BYTES_LEFT: &str = "{spinner} {msg} [{wide_bar}] {decimal_bytes}/{decimal_total_bytes}, {eta} left";
/// Between two pictures of a bar.
const TICK: Duration = Duration::from_millis(100);
/// How long there is no other line of a step's progress.
const BETWEEN_LINES: Duration = Duration::from_secs(5);

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates above are valid")
}

/// Writes a line to standard error; that nobody reads it is no reason to stop.
fn line(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { bars: std::io::stderr().is_terminal().then(MultiProgress::new), is_silent: false }
    }

    /// Reports downloads only.
    pub(super) fn silent() -> Self {
        Self { is_silent: true, ..Self::new() }
    }

    /// Starts a step.
    pub(super) fn step(&self, name: &str) -> Step {
        let bars = self.bars.as_ref().filter(|_| !self.is_silent);
        let bar = bars.map(|bars| {
            let bar = bars.add(ProgressBar::new_spinner().with_style(style(SPINNER)).with_message(name.to_owned()));
            bar.enable_steady_tick(TICK);
            bar
        });
        if bar.is_none() && !self.is_silent {
            line(&format!("{name} ..."));
        }
        Step { is_silent: self.is_silent, ..Step::new(name.to_owned(), bar) }
    }

    /// Reports downloads, one file at a time.
    pub(super) fn downloads(&self) -> DownloadProgress {
        let bars = self.bars.clone();
        let current = Mutex::new(None::<Download>);
        Arc::new(move |event| match event {
            DownloadEvent::Started { file, size_bytes } => {
                let name = format!("fetching {file}");
                let bar = bars.as_ref().map(|bars| {
                    let bar = bars.add(ProgressBar::new(size_bytes as u64).with_style(style(BYTES)));
                    // A connection that says nothing is seen to be waited for.
                    bar.enable_steady_tick(TICK);
                    bar.with_message(name.clone())
                });
                if bar.is_none() {
                    line(&format!("{name} ({}) ...", size(size_bytes as u64)));
                }
                *current.lock() = Some(Download { step: Step::new(name, bar), received: 0, all: size_bytes as u64 });
            }
            DownloadEvent::Received { bytes } => {
                if let Some(Download { step, received, all }) = current.lock().as_mut() {
                    *received = received.saturating_add(bytes as u64).min(*all);
                    step.bytes(*received, *all);
                }
            }
            DownloadEvent::Finished => {
                if let Some(Download { step, .. }) = current.lock().take() {
                    step.done_if_long();
                }
            }
        })
    }

    /// Says something between two steps.
    pub(super) fn say(&self, text: &str) {
        match &self.bars {
            _ if self.is_silent => {}
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
    fn new(name: String, bar: Option<ProgressBar>) -> Self {
        let started = Instant::now();
        Self { name, started, bar, last_line: Mutex::new(started), is_silent: false }
    }

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

    /// Reports that `done` of `all` bytes are through: on the bar, or in a line every few seconds.
    pub(super) fn bytes(&self, done: u64, all: u64) {
        if let Some(bar) = &self.bar {
            if bar.length() != Some(all) {
                bar.set_style(style(BYTES_LEFT));
                bar.set_length(all);
            }
            bar.set_position(done);
            return;
        }
        if let Some(text) = self.due(done, all, Instant::now()) {
            line(&text);
        }
    }

    /// The line that says at the time `now` how much is through, unless the last one is too young.
    fn due(&self, done: u64, all: u64, now: Instant) -> Option<String> {
        let mut last = self.last_line.lock();
        let is_due = !self.is_silent && done < all && now.duration_since(*last) >= BETWEEN_LINES;
        is_due.then(|| {
            *last = now;
            format!("{}: {}", self.name, so_far(done, all, now.duration_since(self.started)))
        })
    }

    /// Ends the step.
    pub(super) fn done(self) {
        let mut text = self.name;
        let _ = write!(text, ": {:.1} s", self.started.elapsed().as_secs_f64());
        match self.bar {
            Some(bar) => bar.finish_and_clear(),
            None if self.is_silent => {}
            None => line(&text),
        }
    }

    /// Ends the step, without a line if there was none of its progress.
    fn done_if_long(self) {
        let is_short = self.started.elapsed() < BETWEEN_LINES;
        Self { is_silent: is_short, ..self }.done();
    }
}

/// So many bytes.
#[expect(clippy::cast_precision_loss, reason = "numbers for people")]
fn size(bytes: u64) -> String {
    match unit(bytes) {
        (_, "B") => format!("{bytes} B"),
        (unit, name) => format!("{:.1} {name}", bytes as f64 / unit),
    }
}

/// The unit in which a number of bytes is said.
fn unit(bytes: u64) -> (f64, &'static str) {
    match bytes {
        0..1_000 => (1.0, "B"),
        1_000..1_000_000 => (1e3, "kB"),
        1_000_000..1_000_000_000 => (1e6, "MB"),
        _ => (1e9, "GB"),
    }
}

/// How much is through, and how long the rest takes at that pace.
#[expect(clippy::cast_precision_loss, reason = "numbers for people")]
fn so_far(done: u64, all: u64, taken: Duration) -> String {
    let (unit, _) = unit(all);
    let text = format!("{:.1} of {}", done as f64 / unit, size(all));
    match done {
        0 => text,
        done => format!("{text}, {:.0} s left", taken.as_secs_f64() * (all - done) as f64 / done as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_no_person_watches_a_long_step_says_a_line_every_five_seconds() {
        let step = Step::new("fetching a".to_owned(), None);
        let after = |seconds| step.started + Duration::from_secs(seconds);
        let said = |done: u64, seconds| step.due(done * 1_000_000_000, 16_000_000_000, after(seconds));
        assert_eq!(said(1, 4), None);
        assert_eq!(said(2, 5).as_deref(), Some("fetching a: 2.0 of 16.0 GB, 35 s left"));
        assert_eq!(said(3, 9), None);
        assert_eq!(said(4, 10).as_deref(), Some("fetching a: 4.0 of 16.0 GB, 30 s left"));
        // What is through is said by the end of the step.
        assert_eq!(said(16, 40), None);
        let silent = Step { is_silent: true, ..Step::new("loading".to_owned(), None) };
        assert_eq!(silent.due(1, 2, silent.started + BETWEEN_LINES), None);
    }

    #[test]
    fn a_line_says_how_much_is_through_and_how_long_the_rest_takes() {
        assert_eq!(so_far(0, 16_000_000_000, Duration::from_secs(5)), "0.0 of 16.0 GB");
        assert_eq!(so_far(4_000_000_000, 16_000_000_000, Duration::from_secs(6)), "4.0 of 16.0 GB, 18 s left");
        assert_eq!(so_far(49_000_000, 98_000_000, Duration::from_secs(6)), "49.0 of 98.0 MB, 6 s left");
        assert_eq!([664, 1_400, 224_584].map(size), ["664 B", "1.4 kB", "224.6 kB"]);
    }
}
