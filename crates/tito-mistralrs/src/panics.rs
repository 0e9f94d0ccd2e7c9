//! What mistral.rs panics about while it loads: kept for the error, instead of written to standard error.
//!
//! It panics on its own threads, too, on models that it did not expect; what their owners then hear is that nobody
//! answers.

use std::{
    any::Any,
    panic::{self, PanicHookInfo},
    sync::Arc,
    thread,
};

use parking_lot::Mutex;

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Sync + Send + 'static>;

/// Keeps panics of the whole process from being printed, until it is dropped. Nothing is served meanwhile.
pub(super) struct Panics {
    messages: Arc<Mutex<Vec<String>>>,
    before: Option<Hook>,
}

impl Panics {
    /// Keeps what is said from now on.
    pub(super) fn keep() -> Self {
        let before = Some(panic::take_hook());
        let messages = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&messages);
        panic::set_hook(Box::new(move |info| {
            let text = panic_text(info.payload());
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            tracing::debug!("a panic while the model is loaded, at {place}: {text}");
            kept.lock().push(text);
        }));
        Self { messages, before }
    }

    /// Why loading failed, in one line: the first panic, whose consequence the others are, or `reason`.
    pub(super) fn explain(&self, reason: &str) -> String {
        one_line(self.messages.lock().first().map_or(reason, String::as_str))
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        // Hooks cannot be changed by a thread that panics; then the process ends, or this hook stays.
        if let Some(before) = self.before.take().filter(|_| !thread::panicking()) {
            panic::set_hook(before);
        }
    }
}

/// What a panic said.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a message".to_owned())
}

/// `text` without the backtrace that candle appends to some of its errors.
pub(super) fn one_line(text: &str) -> String {
    let is_frame = |line: &str| line.split_once(": ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let said: Vec<&str> = lines.take_while(|line| !is_frame(line) && !line.starts_with("stack backtrace")).collect();
    said.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backtraces_are_left_out_and_lines_joined() {
        assert_eq!(
            one_line("shape mismatch\n  in matmul\n   0: candle::bail\n      at x.rs\n   1: main"),
            "shape mismatch in matmul"
        );
        assert_eq!(one_line("plain"), "plain");
    }

    #[test]
    fn the_first_panic_is_the_reason() {
        let panics = Panics::keep();
        assert_eq!(panics.explain("nobody answered"), "nobody answered");
        for text in ["no such layer", "poisoned"] {
            thread::Builder::new().spawn(move || panic!("{text}")).unwrap().join().unwrap_err();
        }
        assert_eq!(panics.explain("nobody answered"), "no such layer");
    }
}
