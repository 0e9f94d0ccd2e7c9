//! Formats of calls: vLLM's names, and one file for each family of formats, which has its reader and what forces it.

mod argument_value;
mod arguments;
mod bare_json;
mod call_format;
mod call_grammar;
mod deepseek;
mod dots;
mod dsml;
mod forcing;
mod functiongemma;
mod gemma4;
mod glm45;
mod held;
mod hermes;
mod hunyuan;
mod invokes;
mod json_after_mark;
mod json_blocks;
mod json_call;
mod json_scan;
mod k2_horizon;
mod kimi_k2;
mod kimi_k3;
mod lexer;
mod llama3_json;
mod machine;
mod minicpm5;
mod minimax_m2;
mod minimax_m3;
mod mistral;
mod mistral_list;
mod number;
mod one_by_one;
mod openai;
mod pairs;
mod parameters;
mod plamo3;
mod pythonic;
mod qwen3_coder;
mod schema;
mod schema_types;
mod step3;
mod until_end;
mod xlam;
mod xml_text;

#[cfg(test)]
mod marks_in_values;
#[cfg(test)]
pub(super) mod tests;
#[cfg(test)]
mod unended;
#[cfg(test)]
mod written_values;

use std::{fmt, sync::Arc};

use self::{
    call_format::CallFormat,
    forcing::{Demand, Forcing, Grammar},
};
use super::{
    SpecialTokens,
    suffix::{self, SeveralSuffixes},
};
use crate::{chat::FunctionTool, structured::Constraint};

pub(super) use call_format::CallReader;
#[cfg(any(test, feature = "internals"))]
pub use forcing::ForcedBy;
pub use forcing::{ForcedCall, ForcingError};
pub(super) use openai::channels;

/// The formats, in the order of vLLM's names.
///
/// Those whose `adjust_request` in vLLM does not say otherwise keep no special tokens.
const FORMATS: &[CallFormat] = &[
    hermes::HERMES,
    json_after_mark::APERTUS,
    json_after_mark::COHERE_COMMAND3,
    json_after_mark::COHERE_COMMAND4,
    json_after_mark::ERNIE45,
    json_after_mark::GIGACHAT3,
    json_after_mark::GRANITE,
    json_after_mark::GRANITE_20B_FC,
    json_after_mark::GRANITE4,
    json_after_mark::HUNYUAN_A13B,
    json_after_mark::INTERNLM,
    json_after_mark::JAMBA,
    json_after_mark::LONGCAT,
    json_after_mark::PHI4_MINI_JSON,
    deepseek::V3,
    deepseek::V31,
    dots::DOTS,
    dsml::V32,
    dsml::V4,
    dsml::V41,
    functiongemma::FUNCTIONGEMMA,
    gemma4::GEMMA4,
    glm45::GLM45,
    glm45::GLM47,
    glm45::LING3,
    glm45::POOLSIDE_V1,
    hunyuan::HY_V3,
    hunyuan::HY_V4,
    k2_horizon::K2_HORIZON,
    kimi_k2::KIMI_K2,
    kimi_k3::KIMI_K3,
    llama3_json::LLAMA3_JSON,
    llama3_json::LLAMA4_JSON,
    pythonic::marked::LFM2,
    pythonic::marked::OLMO3,
    pythonic::LLAMA4_PYTHONIC,
    minicpm5::MINICPM5,
    minimax_m2::MINIMAX_M2,
    minimax_m3::MINIMAX_M3,
    mistral::MISTRAL,
    openai::OPENAI,
    plamo3::PLAMO3,
    pythonic::PYTHONIC,
    qwen3_coder::QWEN3_CODER,
    hermes::QWEN3_JSON,
    qwen3_coder::QWEN3_XML,
    qwen3_coder::MIMO,
    qwen3_coder::SEED_OSS,
    qwen3_coder::STEP3P5,
    qwen3_coder::STEP5,
    step3::STEP3,
    xlam::XLAM,
];

/// Which calls are read out of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolFormat {
    /// The format that the model writes.
    pub parser: ToolParser,
    /// The tools of the request.
    pub tools: Arc<[FunctionTool]>,
    /// What the model was forced to write, which says how it is to be read.
    pub forced: Option<ForcedCall>,
    /// Whether the answer makes one call at most. Of several, which no grammar prevented, the first is kept; all of them
    /// must be readable nevertheless.
    pub first_only: bool,
    /// Whether calls that the model begins by itself keep to the format and to the tools' names, even if no tool is
    /// `strict`.
    pub held: bool,
}

impl ToolFormat {
    /// A reader of these calls.
    pub(super) fn reader(&self) -> Box<dyn CallReader> {
        match (&self.forced, &self.parser.0.forcing) {
            (Some(forced), Forcing::BareJson) => bare_json::reader(forced),
            _ => self.parser.reader(&self.tools),
        }
    }

    /// Whether the text is the JSON of calls and nothing else, without a marker.
    pub(super) fn is_bare_json(&self) -> bool {
        self.forced.is_some() && matches!(self.parser.0.forcing, Forcing::BareJson)
    }

    /// The markers that certainly begin calls.
    pub fn begins_call(&self) -> &'static [&'static str] {
        if self.is_bare_json() { &[] } else { self.parser.0.begins_call }
    }

    /// The markers that an answer has once if it makes one call: those of calls, and of lists of them.
    pub fn begins_single_call(&self) -> impl Iterator<Item = &'static str> {
        let each = if self.is_bare_json() { &[] } else { self.parser.0.begins_each };
        self.begins_call().iter().chain(each).copied()
    }

    /// What the calls demand of the output, where the model's vocabulary has the tokens that `has_token` says; `None`
    /// where they demand nothing.
    pub fn constraint(&self, has_token: &dyn Fn(&str) -> bool) -> Result<Option<Constraint>, ForcingError> {
        let CallFormat { name, forcing, .. } = self.parser.0;
        if self.forced.is_none() && (!self.holds() || matches!(forcing, Forcing::BareJson)) {
            return Ok(None);
        }
        let demand = self.demand(self.forced.as_ref(), has_token)?;
        match forcing {
            Forcing::Native(grammar) => grammar.constraint(&demand),
            Forcing::BareJson => bare_json::constraint(&demand).map(Some),
            Forcing::Unknown if self.forced.is_none() => Ok(None),
            Forcing::Unknown => Err(ForcingError::Unknown(name)),
        }
    }

    /// What the schemas of strict tools say that calls are not held to as the format writes them, as `TOOL: KEYWORD`.
    pub fn unheld(&self) -> Vec<String> {
        let Forcing::Native(Grammar { one_by_one: Some(text), .. }) = self.parser.0.forcing else { return Vec::new() };
        // What cannot be demanded is refused where it is.
        let Ok(demand) = self.demand(self.forced.as_ref(), &|_| false) else { return Vec::new() };
        let of_tool =
            |tool| one_by_one::unheld(tool, text).into_iter().map(|keyword| format!("{}: {keyword}", tool.name));
        demand.tools.iter().flat_map(of_tool).collect()
    }

    /// What an answer keeps to that is either calls which the model makes by itself, or text of a form; the form alone
    /// where calls demand nothing, since none is free then. `None` where no grammar says exactly that.
    pub fn constraint_or(
        &self,
        form: &Constraint,
        has_token: &dyn Fn(&str) -> bool,
    ) -> Result<Option<Constraint>, ForcingError> {
        match &self.parser.0.forcing {
            Forcing::Native(grammar) if self.holds() && grammar.holds_any => {
                // Text that is not of the form could stand beside calls that are merely allowed.
                let demand = self.demand(Some(&ForcedCall::Required), has_token)?;
                Ok(grammar.constraint(&demand)?.and_then(|calls| calls.or_form(form)))
            }
            Forcing::Native(_) | Forcing::BareJson | Forcing::Unknown => Ok(Some(form.clone())),
        }
    }

    fn demand<'a>(
        &'a self,
        forced: Option<&ForcedCall>,
        has_token: &'a dyn Fn(&str) -> bool,
    ) -> Result<Demand<'a>, ForcingError> {
        let CallFormat { name, suffix, .. } = *self.parser.0;
        let demand = Demand::new(name, &self.tools, forced, has_token)?;
        Ok(Demand { suffix, at_most_one: self.first_only, ..demand })
    }

    /// Whether calls that the model makes by itself are held to anything.
    fn holds(&self) -> bool {
        self.held || self.tools.iter().any(|tool| tool.strict == Some(true))
    }
}

/// A format of tool calls.
#[derive(Clone, Copy)]
pub struct ToolParser(&'static CallFormat);

/// The name alone: functions are shown by their addresses, which differ from process to process, and what is shown is a
/// part of fingerprints that several processes compare.
impl fmt::Debug for ToolParser {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("ToolParser").field(&self.0.name).field(&self.0.suffix).finish()
    }
}

impl PartialEq for ToolParser {
    fn eq(&self, other: &Self) -> bool {
        (self.0.name, self.0.suffix) == (other.0.name, other.0.suffix)
    }
}

impl Eq for ToolParser {}

impl ToolParser {
    /// vLLM's names of the formats that are known here.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FORMATS.iter().map(|format| format.name)
    }

    /// The format that vLLM calls so.
    pub fn named(name: &str) -> Option<Self> {
        FORMATS.iter().find(|format| format.name == name).map(Self)
    }

    /// vLLM's name of the format.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// What a call is written in that the model is forced to make, for the table in docs/models.md.
    #[cfg(any(test, feature = "internals"))]
    pub fn forced_by(self) -> ForcedBy {
        match self.0.forcing {
            Forcing::Native(_) => ForcedBy::OwnFormat,
            Forcing::BareJson => ForcedBy::BareJson,
            Forcing::Unknown => ForcedBy::Nothing,
        }
    }

    /// The format as a checkpoint writes it whose vocabulary has these `tokens`: its marks may have a suffix. `declared` is
    /// the one that the tokenizer's configuration names.
    ///
    /// # Errors
    ///
    /// If the vocabulary has the marks with several suffixes, and none is declared.
    pub fn of_vocabulary(
        self,
        tokens: &mut dyn Iterator<Item = String>,
        declared: Option<&str>,
    ) -> Result<Self, SeveralSuffixes> {
        if self.0.of_tokens.is_none() {
            return Ok(self);
        }
        let suffix = suffix::found(tokens, self.0.needs, declared)?;
        Ok(if suffix.is_empty() { self } else { Self(Box::leak(Box::new(self.0.with_suffix(&suffix)))) })
    }

    /// Whether calls that the model begins by itself can be held to the format, and to schemas.
    pub fn holds_any(self) -> bool {
        matches!(&self.0.forcing, Forcing::Native(grammar) if grammar.holds_any)
    }

    /// The markers that may be special tokens; none where they are not known.
    pub(super) fn marks(self) -> &'static [&'static str] {
        self.0.marks
    }

    /// Which special tokens have a text.
    pub(super) fn special_tokens(self) -> SpecialTokens {
        match self.0 {
            CallFormat { drops_others: true, marks, .. } => SpecialTokens::Only(marks.to_vec()),
            CallFormat { keeps_special_tokens: true, .. } => SpecialTokens::All,
            _ => SpecialTokens::AsAsked,
        }
    }

    /// Tokens without which vLLM refuses to start with this parser.
    pub fn needed_tokens(self) -> &'static [&'static str] {
        self.0.needs
    }

    pub(super) fn silence_is_null(self) -> bool {
        self.0.silence_is_null
    }

    pub(super) fn is_channels(self) -> bool {
        self.0.channels
    }

    /// Whether content before calls loses the white space at its end.
    pub(super) fn trims(self) -> bool {
        self.0.trims
    }

    pub(super) fn reader(self, tools: &[FunctionTool]) -> Box<dyn CallReader> {
        self.0.reader(tools)
    }
}
