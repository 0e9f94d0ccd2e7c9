//! The compiler of grammars, with bounds around it.
//!
//! A constraint comes from a client, so everything has a limit: its length, how deep it nests, the work of the compiler.
//! A panic of the compiler is an error of the request. A grammar whose first token already asks for too much is refused
//! here rather than in the middle of an answer.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
};

use llguidance::api::TopLevelGrammar;

use super::{
    Cancellation, StructuredError,
    follower::{Fault, Follower},
    following::CompiledGrammar,
    vocabulary::Vocabulary,
};

/// Characters of a grammar.
const LONGEST: usize = 1 << 20;
/// The most lines of a grammar, which bounds how many rules can need each other.
const MOST_LINES: usize = 20_000;
/// How deep brackets may nest in the text of a grammar.
const DEEPEST: usize = 400;
/// The compiler recurses over what a client nests.
const STACK_BYTES: usize = 256 << 20;

/// Why there is no grammar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    Refused(StructuredError),
    /// Nobody waits for it any more.
    Abandoned,
}

impl From<StructuredError> for Failure {
    fn from(error: StructuredError) -> Self {
        Self::Refused(error)
    }
}

/// Compiles a grammar and tries it.
pub(super) fn compile(
    vocabulary: &Arc<Vocabulary>,
    grammar: TopLevelGrammar,
    cancellation: &Cancellation,
) -> Result<CompiledGrammar, Failure> {
    let start = on_a_deep_stack(|| {
        still_awaited(cancellation)?;
        let parser = vocabulary.factory.create_parser(grammar).map_err(StructuredError::grammar)?;
        still_awaited(cancellation)?;
        tried(Follower::new(parser, &vocabulary.watchdog), vocabulary, cancellation)
    })?;
    Ok(CompiledGrammar::new(Arc::clone(vocabulary), start))
}

/// An error once nobody waits any more.
pub(super) fn still_awaited(cancellation: &Cancellation) -> Result<(), Failure> {
    if cancellation.is_cancelled() { Err(Failure::Abandoned) } else { Ok(()) }
}

/// Works out what an output may begin with, and what may follow where its beginning is fixed. What that taught the lexer
/// is kept for all sequences.
fn tried(start: Follower, vocabulary: &Vocabulary, cancellation: &Cancellation) -> Result<Follower, Failure> {
    let judged = |fault: Fault| match fault {
        Fault::Cancelled if cancellation.is_cancelled() => Err(Failure::Abandoned),
        fault if fault.is_excess() => {
            let message = format_args!("the grammar cannot be followed: {}", fault.reason());
            Err(StructuredError::grammar(message).into())
        }
        // Any other fault is met at the first token, and reported then.
        _ => Ok(()),
    };
    let mut first = start.copy(&vocabulary.watchdog);
    cancellation.covers(first.handle());
    if let Err(fault) = first.mask() {
        return judged(fault).map(|()| start.resting());
    }
    let mut ahead = first.copy(&vocabulary.watchdog);
    cancellation.covers(ahead.handle());
    if let Err(fault) = ahead.try_ahead() {
        judged(fault)?;
    }
    Ok(first.resting())
}

/// Refuses what the compiler could be exhausted with before its own limits count.
pub(super) fn check_size(text: &str) -> Result<(), StructuredError> {
    if text.len() > LONGEST {
        let message = format!("a grammar of {} bytes is more than the {LONGEST} that are compiled", text.len());
        return Err(StructuredError::new(message));
    }
    if text.lines().count() > MOST_LINES || text.matches("\\n").count() > MOST_LINES {
        return Err(StructuredError::new(format!("a grammar of more than {MOST_LINES} lines is not compiled")));
    }
    let (mut depth, mut deepest) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    if deepest > DEEPEST {
        return Err(StructuredError::new(format!("a grammar that nests more than {DEEPEST} brackets is not compiled")));
    }
    Ok(())
}

/// Runs the compiler where its recursion cannot end the process, and its panics end the request only.
pub(super) fn on_a_deep_stack<T: Send>(compile: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    let failed = |why: &str| Failure::Refused(StructuredError::grammar(why));
    let caught = || {
        let result = catch_unwind(AssertUnwindSafe(compile));
        result.unwrap_or_else(|_| Err(failed("the compiler of grammars failed")))
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("grammar".to_owned()).stack_size(STACK_BYTES);
        match thread.spawn_scoped(scope, caught) {
            Ok(thread) => thread.join().unwrap_or_else(|_| Err(failed("the compiler failed"))),
            Err(error) => Err(failed(&format!("no thread to compile the grammar on: {error}"))),
        }
    })
}
