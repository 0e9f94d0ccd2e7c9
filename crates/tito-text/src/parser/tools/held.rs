//! What waits since a mark in the middle of a value: what follows says whether the mark ended the call, or is text.

use super::{
    call_grammar::{Grammar, begins_call, ends_value},
    json_scan::JsonScan,
    lexer::Token,
};

/// What was written since the mark, with that.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) tokens: Vec<Token>,
    /// The JSON up to the mark, if the mark stands in a string of that.
    json: Option<JsonScan>,
    /// Whether a mark that begins a call is among the tokens.
    calls: bool,
    /// Whether the last mark among the tokens may be the quote that ends the value.
    pub(super) quoted: bool,
}

impl Held {
    /// A mark in a value that a mark of its own ends.
    pub(super) fn in_value(mark: Token) -> Self {
        Self { tokens: vec![mark], ..Self::default() }
    }

    /// A mark in a string of JSON.
    pub(super) fn in_string(mark: Token, mut json: JsonScan) -> Self {
        json.goes_on(mark.as_str());
        Self { tokens: vec![mark], json: Some(json), ..Self::default() }
    }

    /// Takes the next token into account: whether the mark is text, if that is known now.
    ///
    /// In a string of JSON it is, if that ends later on and JSON goes on after it. In another value it is, if the end of that
    /// value follows before a call begins. Where one quote stands on both sides of values, a call may stand between them if
    /// what follows the next quote is what follows a value.
    pub(super) fn is_text<G: Grammar>(&mut self, token: &Token, grammar: &G) -> Option<bool> {
        if let Some(json) = &mut self.json {
            return json.goes_on(token.as_str());
        }
        if self.quoted {
            let text = token.as_str().trim_start();
            return (!text.is_empty()).then(|| text.starts_with([',', '}', ']']));
        }
        let Token::Marker(marker) = token else { return None };
        if G::QUOTES_VALUES {
            self.calls |= begins_call(grammar, marker);
            self.quoted = self.calls && ends_value(grammar, marker);
        }
        if ends_value(grammar, marker) {
            return (!self.quoted).then_some(true);
        }
        (!G::QUOTES_VALUES && begins_call(grammar, marker)).then_some(false)
    }
}
