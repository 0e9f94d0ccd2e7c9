//! Text to calls: vLLM's names, and one file for each family of formats.

mod deepseek;
pub(super) mod forced;
mod functiongemma;
mod gemma4;
mod glm45;
mod hermes;
mod kimi_k2;
mod lexer;
mod llama3_json;
mod machine;
mod minimax_m2;
mod mistral;
mod mistral_list;
mod number;
pub(super) mod openai;
mod parameters;
mod pythonic;
mod qwen3_coder;
mod schema;
mod until_end;

#[cfg(test)]
mod every_format;

use std::fmt;

use super::{Piece, SpecialTokens};
use crate::chat::FunctionTool;

/// Reads the calls of one generation, out of text that a reader of reasoning has left.
///
/// What was pushed in pieces gives what the whole text gives. [`Piece::Reasoning`] comes from formats only in which
/// reasoning cannot be told from calls.
pub(super) trait CallReader: Send + fmt::Debug {
    /// Takes the next piece of text, and appends what became certain.
    fn push(&mut self, text: &str, out: &mut Vec<Piece>);

    /// Takes the end of the text, and appends what is left.
    fn finish(&mut self, out: &mut Vec<Piece>);

    /// Whether the text so far ends in reasoning, in formats that have it.
    fn is_reasoning(&self) -> bool {
        false
    }
}

/// Makes the reader of a format for a request's tools.
type MakeReader = fn(&[FunctionTool]) -> Box<dyn CallReader>;

/// What the rest of the server has to know about a format.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a property that formats have or have not")]
struct Format {
    name: &'static str,
    reader: MakeReader,
    /// Content in front of calls loses the white space behind it.
    trims: bool,
    /// Markers may be special tokens, so that these stay in the text.
    keeps_special_tokens: bool,
    /// All markers that may be special tokens.
    marks: &'static [&'static str],
    /// Special tokens that are no markers have no text.
    drops_others: bool,
    /// A forced call is bare JSON instead of the format.
    forces_json: bool,
    /// An answer that neither says nor calls anything has null for content.
    silence_is_null: bool,
    /// Everything is in channels, reasoning too.
    channels: bool,
    /// Tokens without which vLLM refuses to start with this parser.
    needs: &'static [&'static str],
}

impl Format {
    const fn new(name: &'static str, reader: MakeReader) -> Self {
        Self {
            name,
            reader,
            trims: false,
            keeps_special_tokens: true,
            marks: &[],
            drops_others: false,
            forces_json: false,
            silence_is_null: false,
            channels: false,
            needs: &[],
        }
    }

    /// One that vLLM reads with its `parser/engine`.
    const fn engine(name: &'static str, reader: MakeReader, marks: &'static [&'static str]) -> Self {
        Self { trims: true, silence_is_null: true, marks, drops_others: true, ..Self::new(name, reader) }
    }

    const fn deepseek(name: &'static str, reader: MakeReader) -> Self {
        Self { keeps_special_tokens: false, marks: deepseek::MARKS, needs: deepseek::NEEDS, ..Self::new(name, reader) }
    }

    const fn pythonic(name: &'static str, reader: MakeReader) -> Self {
        Self { keeps_special_tokens: false, forces_json: true, ..Self::new(name, reader) }
    }
}

/// The formats by vLLM's names.
///
/// Those of vLLM's `parser/engine` trim and have null for silence; those without a `structural_tag_model` force JSON; those
/// whose `adjust_request` does not say otherwise keep no special tokens.
const FORMATS: &[Format] = &[
    Format { marks: hermes::MARKS, ..Format::new("hermes", hermes::reader) },
    Format::deepseek("deepseek_v3", deepseek::v3_reader),
    Format::deepseek("deepseek_v31", deepseek::v31_reader),
    Format {
        marks: functiongemma::MARKS,
        forces_json: true,
        trims: true,
        ..Format::new("functiongemma", functiongemma::reader)
    },
    Format::engine("gemma4", gemma4::reader, gemma4::MARKS),
    Format::engine("glm45", glm45::reader, glm45::MARKS),
    Format::engine("glm47", glm45::reader, glm45::MARKS),
    Format { trims: false, ..Format::engine("kimi_k2", kimi_k2::reader, kimi_k2::MARKS) },
    llama("llama3_json"),
    llama("llama4_json"),
    Format { marks: pythonic::MARKS, ..Format::pythonic("llama4_pythonic", pythonic::llama4_reader) },
    Format::engine("minimax_m2", minimax_m2::reader, minimax_m2::MARKS),
    Format {
        marks: mistral::MARKS,
        drops_others: true,
        needs: mistral::NEEDS,
        silence_is_null: true,
        ..Format::new("mistral", mistral::reader)
    },
    Format { channels: true, ..Format::new("openai", openai::reader) },
    Format::pythonic("pythonic", pythonic::reader),
    Format::engine("qwen3_coder", qwen3_coder::reader, qwen3_coder::MARKS),
    Format { marks: hermes::MARKS, ..Format::new("qwen3_json", hermes::reader) },
    Format::engine("qwen3_xml", qwen3_coder::reader, qwen3_coder::MARKS),
];

const fn llama(name: &'static str) -> Format {
    Format {
        keeps_special_tokens: false,
        marks: llama3_json::NEEDS,
        needs: llama3_json::NEEDS,
        ..Format::new(name, llama3_json::reader)
    }
}

/// A format of tool calls.
#[derive(Debug, Clone, Copy)]
pub struct ToolParser(&'static Format);

impl PartialEq for ToolParser {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
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

    /// The markers that may be special tokens; none where they are not known.
    pub(super) fn marks(self) -> &'static [&'static str] {
        self.0.marks
    }

    /// Which special tokens have a text.
    pub(super) fn special_tokens(self) -> SpecialTokens {
        match self.0 {
            Format { drops_others: true, marks, .. } => SpecialTokens::Only(marks.to_vec()),
            Format { keeps_special_tokens: true, .. } => SpecialTokens::All,
            _ => SpecialTokens::AsAsked,
        }
    }

    /// Whether a forced call is written as bare JSON: a list of `{"name", "parameters"}` where one is required, the
    /// arguments alone where it is named. The other formats are written as they are.
    pub fn forces_json(self) -> bool {
        self.0.forces_json
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

    /// Whether content in front of calls loses the white space behind it.
    pub(super) fn trims(self) -> bool {
        self.0.trims
    }

    pub(super) fn reader(self, tools: &[FunctionTool]) -> Box<dyn CallReader> {
        (self.0.reader)(tools)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_format_and_no_other_has() {
        for name in ToolParser::names() {
            assert_eq!(ToolParser::named(name).map(ToolParser::name), Some(name));
        }
        assert_eq!(ToolParser::named("Hermes"), None);
    }
}
