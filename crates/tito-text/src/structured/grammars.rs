//! Compiling constraints, and keeping what was compiled.

use std::sync::{Arc, OnceLock};

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use moka::sync::Cache;
use serde_json::{Value, json};

use super::{
    Cancellation, Constraint, JsonOptions, StructuredError,
    compile::{Failure, check_size, compile, on_a_deep_stack, still_awaited},
    ebnf,
    json_schema::prepared,
    lark::{literal, pattern},
    lark_json, tags,
    vocabulary::Vocabulary,
};
use crate::{TokenId, sampling::SharedConstraint, tokenizer::Tokenizer};

/// What all kept grammars may take, in the cache's own estimate.
const CACHE_BYTES: u64 = 256 << 20;
/// The least that a grammar is taken for.
const LEAST_BYTES: usize = 128 << 10;
/// How many compiled bytes a byte of a grammar is reckoned to become.
const EXPANSION: usize = 64;

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
    /// A compiler for this tokenizer, where `end` are the model's end-of-sequence tokens.
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

    /// Compiles a constraint, or finds it compiled. This may take a while, so it is not for threads that serve
    /// connections.  A constraint that nobody waits for any more is an error that nobody reads.
    pub fn compile(
        &self,
        constraint: &Constraint,
        cancellation: &Cancellation,
    ) -> Result<SharedConstraint, StructuredError> {
        let grammar = self.grammar(constraint)?;
        let text = serde_json::to_string(&grammar).map_err(StructuredError::grammar)?;
        check_size(&text)?;
        // Tags with the same grammar may differ in whether they are told apart.
        let key = match constraint {
            Constraint::Tags(..) => serde_json::to_string(constraint).map_err(StructuredError::grammar)?,
            _ => text,
        };
        loop {
            // Requests that ask for the same grammar at once wait for one compilation.
            let compiled =
                self.compiled.try_get_with_by_ref(&key, || self.compile_anew(constraint, &grammar, cancellation));
            match compiled.map_err(|failure| (*failure).clone()) {
                Ok(compiled) => return Ok(compiled),
                Err(Failure::Refused(error)) => return Err(error),
                // The request that compiled it has gone, but this one has not.
                Err(Failure::Abandoned) if !cancellation.is_cancelled() => {}
                Err(Failure::Abandoned) => {
                    return Err(StructuredError::new("nobody waits for the grammar any more"));
                }
            }
        }
    }

    fn vocabulary(&self) -> Result<Arc<Vocabulary>, StructuredError> {
        let vocabulary = self.vocabulary.get_or_init(|| Vocabulary::new(&self.tokenizer, &self.end).map(Arc::new));
        vocabulary.clone().map_err(StructuredError::new)
    }

    fn compile_anew(
        &self,
        constraint: &Constraint,
        grammar: &TopLevelGrammar,
        cancellation: &Cancellation,
    ) -> Result<SharedConstraint, Failure> {
        still_awaited(cancellation)?;
        let vocabulary = self.vocabulary()?;
        let compiled = compile(&vocabulary, self.exact(constraint, grammar)?, cancellation)?;
        Ok(SharedConstraint::new(Arc::new(compiled)))
    }

    /// The grammar to compile. Whether tags are told apart takes a while to find out, so it is only asked here.
    fn exact(&self, constraint: &Constraint, grammar: &TopLevelGrammar) -> Result<TopLevelGrammar, Failure> {
        match constraint {
            Constraint::Tags(format, options) => {
                on_a_deep_stack(|| Ok(lark(tags::exact(format, &self.tokenizer, options)?)))
            }
            _ => Ok(grammar.clone()),
        }
    }

    /// The grammar of a constraint; that of tags may not be exact.
    fn grammar(&self, constraint: &Constraint) -> Result<TopLevelGrammar, StructuredError> {
        Ok(match constraint {
            Constraint::JsonObject(options) => of_schema(&json!({"type": "object"}), options)?,
            Constraint::Json(schema, options) => of_schema(schema, options)?,
            Constraint::Regex(regex) => lark(of_regex(regex)?),
            Constraint::Choice(choices) => lark(of_choices(choices)?),
            Constraint::Grammar(text) if ebnf::is_lark(text) => {
                check_size(text)?;
                lark(lark_json::bounded(text)?)
            }
            Constraint::Grammar(text) => lark(ebnf::to_lark(text)?),
            Constraint::Tags(format, options) => lark(tags::grammar(format, &self.tokenizer, options)?),
        })
    }
}

fn lark(text: String) -> TopLevelGrammar {
    TopLevelGrammar::from_grammar(GrammarWithLexer::from_lark(text))
}

fn of_schema(schema: &Value, options: &JsonOptions) -> Result<TopLevelGrammar, StructuredError> {
    Ok(TopLevelGrammar::from_json_schema(prepared(schema, options)?))
}

fn of_regex(regex: &str) -> Result<String, StructuredError> {
    if regex.contains('\0') {
        return Err(StructuredError::new("structured_outputs.regex must not contain a NUL character ('\\x00')"));
    }
    // A single backslash at the end would be lost on the way to the compiler, which would compile the rest.
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
