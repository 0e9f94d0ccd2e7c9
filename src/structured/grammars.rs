//! Compiling constraints, and keeping what was compiled.
//!
//! A constraint comes from a client, so everything has a limit: its length, how deep it nests, the work of the
//! compiler, how many grammars are kept. A panic of the compiler is an error of the request.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock},
    thread,
};

use llguidance::{
    Matcher,
    api::{GrammarWithLexer, TopLevelGrammar},
};
use moka::sync::Cache;
use serde_json::{Value, json};

use super::{
    Constraint, JsonOptions, StructuredError, ebnf,
    following::CompiledGrammar,
    json_schema::prepared,
    lark::{literal, pattern},
    tags,
    vocabulary::Vocabulary,
};
use crate::{TokenId, sampling::SharedConstraint, tokenizer::Tokenizer};

/// Characters of a grammar.
const LONGEST: usize = 1 << 20;
/// Lines of a grammar, so at most as many rules that need each other.
const MOST_LINES: usize = 20_000;
/// Brackets in one another, in a grammar's text.
const DEEPEST: usize = 400;
/// What all kept grammars may take, in the cache's own estimate.
const CACHE_BYTES: u64 = 256 << 20;
/// The least that a grammar is taken for.
const LEAST_BYTES: usize = 128 << 10;
/// Compiled bytes that a byte of a grammar is taken for.
const EXPANSION: usize = 64;
/// The compiler recurses over what a client nests.
const STACK_BYTES: usize = 256 << 20;

/// Compiles constraints for a model.
pub struct Grammars {
    tokenizer: Arc<Tokenizer>,
    end: Vec<TokenId>,
    /// Built with the first constraint.
    vocabulary: OnceLock<Result<Arc<Vocabulary>, String>>,
    /// By the text of the grammar.
    compiled: Cache<String, SharedConstraint>,
}

impl std::fmt::Debug for Grammars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grammars").field("compiled", &self.compiled.entry_count()).finish_non_exhaustive()
    }
}

impl Grammars {
    /// `end` are the model's end-of-sequence tokens.
    pub fn new(tokenizer: Arc<Tokenizer>, end: impl IntoIterator<Item = TokenId>) -> Self {
        let weight = |text: &String, _: &SharedConstraint| {
            u32::try_from(text.len() * EXPANSION + LEAST_BYTES).unwrap_or(u32::MAX)
        };
        Self {
            tokenizer,
            end: end.into_iter().collect(),
            vocabulary: OnceLock::new(),
            compiled: Cache::builder().max_capacity(CACHE_BYTES).weigher(weight).build(),
        }
    }

    /// Compiles a constraint, or finds it compiled. May take a while: not for threads that serve connections.
    pub fn compile(&self, constraint: &Constraint) -> Result<SharedConstraint, StructuredError> {
        let grammar = self.grammar(constraint)?;
        let text = serde_json::to_string(&grammar).map_err(StructuredError::grammar)?;
        check_size(&text)?;
        // Requests that ask for the same grammar at once wait for one compilation.
        self.compiled.try_get_with(text, || self.compile_anew(grammar)).map_err(|error| (*error).clone())
    }

    fn vocabulary(&self) -> Result<Arc<Vocabulary>, StructuredError> {
        let vocabulary = self.vocabulary.get_or_init(|| Vocabulary::new(&self.tokenizer, &self.end).map(Arc::new));
        vocabulary.clone().map_err(StructuredError::new)
    }

    fn compile_anew(&self, grammar: TopLevelGrammar) -> Result<SharedConstraint, StructuredError> {
        let vocabulary = self.vocabulary()?;
        let compile = || {
            let parser = vocabulary.factory.create_parser(grammar).map_err(StructuredError::grammar)?;
            let matcher = Matcher::new(Ok(parser));
            match matcher.get_error() {
                Some(error) => Err(StructuredError::grammar(error)),
                None => Ok(matcher),
            }
        };
        let matcher = on_a_deep_stack(compile)?;
        Ok(SharedConstraint::new(Arc::new(CompiledGrammar::new(Arc::clone(&vocabulary), matcher))))
    }

    /// The grammar as the compiler reads it.
    fn grammar(&self, constraint: &Constraint) -> Result<TopLevelGrammar, StructuredError> {
        let lark = |text: String| TopLevelGrammar::from_grammar(GrammarWithLexer::from_lark(text));
        Ok(match constraint {
            Constraint::JsonObject(options) => of_schema(&json!({"type": "object"}), options)?,
            Constraint::Json(schema, options) => of_schema(schema, options)?,
            Constraint::Regex(regex) => lark(of_regex(regex)?),
            Constraint::Choice(choices) => lark(of_choices(choices)?),
            Constraint::Grammar(text) if ebnf::is_lark(text) => {
                check_size(text)?;
                lark(text.clone())
            }
            Constraint::Grammar(text) => lark(ebnf::to_lark(text)?),
            Constraint::Tags(format, options) => lark(tags::grammar(format, &self.tokenizer, options)?),
        })
    }
}

fn of_schema(schema: &Value, options: &JsonOptions) -> Result<TopLevelGrammar, StructuredError> {
    Ok(TopLevelGrammar::from_json_schema(prepared(schema, options)?))
}

fn of_regex(regex: &str) -> Result<String, StructuredError> {
    if regex.contains('\0') {
        return Err(StructuredError::new("structured_outputs.regex must not contain a NUL character ('\\x00')"));
    }
    // A single backslash at the end would be lost on the way to the compiler, and the rest compiled.
    let backslashes = regex.len() - regex.trim_end_matches('\\').len();
    if !backslashes.is_multiple_of(2) {
        return Err(StructuredError::grammar(format_args!("invalid regex {regex:?}: it ends within an escape")));
    }
    match pattern(regex).as_str() {
        "" => Ok("start: \"\"".to_owned()),
        pattern => Ok(format!("start: /{pattern}/")),
    }
}

fn of_choices(choices: &[String]) -> Result<String, StructuredError> {
    if choices.is_empty() {
        return Err(StructuredError::new("Choice '[]' cannot be an empty list"));
    }
    let texts: Vec<String> = choices.iter().filter(|choice| !choice.is_empty()).map(|choice| literal(choice)).collect();
    let empty = texts.len() < choices.len();
    Ok(match (texts.is_empty(), empty) {
        (true, _) => "start: \"\"".to_owned(),
        // One lexeme, so that a choice may begin with another one.
        (false, true) => format!("start: CHOICE?\nCHOICE: {}", texts.join(" | ")),
        (false, false) => format!("start: CHOICE\nCHOICE: {}", texts.join(" | ")),
    })
}

/// Refuses what the compiler could be exhausted with before its own limits count.
fn check_size(text: &str) -> Result<(), StructuredError> {
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
fn on_a_deep_stack<T: Send>(compile: impl FnOnce() -> Result<T, StructuredError> + Send) -> Result<T, StructuredError> {
    let caught = || {
        let result = catch_unwind(AssertUnwindSafe(compile));
        result.unwrap_or_else(|_| Err(StructuredError::grammar("the compiler of grammars failed")))
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("grammar".to_owned()).stack_size(STACK_BYTES);
        match thread.spawn_scoped(scope, caught) {
            Ok(thread) => thread.join().unwrap_or_else(|_| Err(StructuredError::grammar("the compiler failed"))),
            Err(error) => Err(StructuredError::new(format!("no thread to compile the grammar on: {error}"))),
        }
    })
}
