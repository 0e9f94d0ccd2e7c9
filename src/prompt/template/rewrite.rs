//! Respells the few constructs of jinja2 that minijinja reads differently or not at all:
//! - `{% generation %}` becomes `{% with %}`, a scope of its own like jinja2's call block;
//! - string literals with escapes are decoded as Python decodes them;
//! - `x[a:b:c]`, `[…]`, `{…}` and `(…, …)` become calls that slice and build as Python does;
//! - what `{% for %}` iterates over passes a check, since Python iterates over no `None`;
//! - `x.items` without a call means the method, never the key, and `x['items']` the method where there is no key.
//!
//! What minijinja would silently do differently and cannot be respelled is refused.

use super::TemplateError;
use super::literal;
use super::scan::Tag;
use super::tokens::{Kind, Token, arguments, closing, find_at_depth_zero, inside};
use super::value::DICT_METHODS;

/// Builds a list.
pub(super) const LIST: &str = "__list__";
/// Builds a tuple.
pub(super) const TUPLE: &str = "__tuple__";
/// Builds a dict.
pub(super) const DICT: &str = "__dict__";
/// Slices its receiver.
pub(super) const SLICE: &str = "__getslice__";
/// Looks up an attribute of its receiver.
pub(super) const ATTRIBUTE: &str = "__getattr__";
/// Looks up an item of its receiver, or else an attribute.
pub(super) const ITEM: &str = "__getitem__";
/// Passes what can be iterated over.
pub(super) const ITERABLE: &str = "__iter__";

const STATEMENTS: [&str; 26] = [
    "for",
    "endfor",
    "if",
    "elif",
    "else",
    "endif",
    "macro",
    "endmacro",
    "call",
    "endcall",
    "filter",
    "endfilter",
    "set",
    "endset",
    "with",
    "endwith",
    "block",
    "endblock",
    "break",
    "continue",
    "generation",
    "endgeneration",
    "include",
    "import",
    "from",
    "extends",
];

// After these a value begins; after any other name one has ended.
const VALUE_FOLLOWS: [&str; 8] = ["in", "is", "and", "or", "not", "if", "else", "recursive"];

/// Returns the source as minijinja is to read it.
pub(super) fn rewrite(source: &str, tags: &[Tag<'_>]) -> Result<String, TemplateError> {
    let mut rewriter = Rewriter { source, edits: Vec::new() };
    for tag in tags {
        rewriter.tag(tag)?;
    }
    Ok(rewriter.apply())
}

struct Edit {
    start: usize,
    end: usize,
    text: String,
}

struct Rewriter<'s> {
    source: &'s str,
    edits: Vec<Edit>,
}

impl Rewriter<'_> {
    fn replace(&mut self, token: &Token<'_>, text: impl Into<String>) {
        self.edits.push(Edit { start: token.start, end: token.end(), text: text.into() });
    }

    fn insert(&mut self, at: usize, text: &str) {
        self.edits.push(Edit { start: at, end: at, text: text.to_owned() });
    }

    fn apply(mut self) -> String {
        // An insertion goes before what is replaced at its place; the sort is stable, so several stay in their order.
        self.edits.sort_by_key(|edit| (edit.start, edit.end));
        let mut rewritten = String::with_capacity(self.source.len() + 64);
        let mut copied = 0;
        for edit in &self.edits {
            rewritten.push_str(&self.source[copied..edit.start]);
            rewritten.push_str(&edit.text);
            copied = edit.end;
        }
        rewritten.push_str(&self.source[copied..]);
        rewritten
    }

    fn tag(&mut self, tag: &Tag<'_>) -> Result<(), TemplateError> {
        let tokens = &tag.tokens;
        if tag.is_block {
            let Some(name) = tag.statement().filter(|name| STATEMENTS.contains(name)) else {
                let (found, at) = tokens.first().map_or(("", 0), |token| (token.text, token.start));
                return Err(TemplateError::syntax(format!("Encountered unknown tag '{found}'."), self.source, at));
            };
            match name {
                "generation" | "endgeneration" => {
                    if let Some(extra) = tokens.get(1) {
                        let message = format!("expected token 'end of statement block', got '{}'", extra.text);
                        return Err(TemplateError::syntax(message, self.source, extra.start));
                    }
                    self.replace(&tokens[0], if name == "generation" { "with" } else { "endwith" });
                }
                "macro" => self.defaults(tokens)?,
                _ => {}
            }
        }
        let iterated = if tag.statement() == Some("for") { iterated(tokens) } else { None };
        // Around everything that the expressions themselves insert at the same places.
        if let Some((start, _)) = iterated {
            self.insert(start, "(");
        }
        self.expressions(tokens, targets(tag))?;
        if let Some((_, end)) = iterated {
            self.insert(end, &format!(")|{ITERABLE}"));
        }
        Ok(())
    }

    // minijinja does not let a default see the parameters before it.
    fn defaults(&self, tokens: &[Token<'_>]) -> Result<(), TemplateError> {
        let parameters = arguments(tokens.get(2..).unwrap_or_default());
        for (index, parameter) in parameters.iter().enumerate() {
            let [_, _, default @ ..] = parameter else { continue };
            let before = &parameters[..index];
            let sees = |token: &&Token<'_>| {
                before.iter().any(|earlier| earlier.first().is_some_and(|name| token.is_name(name.text)))
            };
            if let Some(token) = default.iter().find(sees) {
                let message = format!("the default of a macro's parameter cannot be '{}'", token.text);
                return Err(TemplateError::syntax(message, self.source, token.start));
            }
        }
        Ok(())
    }

    fn expressions(&mut self, tokens: &[Token<'_>], targets: usize) -> Result<(), TemplateError> {
        for (index, token) in tokens.iter().enumerate() {
            match token.kind {
                Kind::String if token.text.contains('\\') => {
                    let literal = literal::respell(token.text)
                        .ok_or_else(|| TemplateError::syntax("invalid escape in a string", self.source, token.start))?;
                    self.replace(token, literal);
                }
                Kind::Operator if token.text == "[" => self.bracket(tokens, index),
                Kind::Operator if token.text == "(" && index >= targets => self.parenthesis(tokens, index),
                Kind::Operator if token.text == "{" => {
                    self.insert(token.start, &format!("{DICT}("));
                    self.insert(closing(tokens, index).end(), ")");
                }
                Kind::Operator if token.text == "." && index >= targets => self.attribute(&tokens[index..]),
                _ => {}
            }
        }
        Ok(())
    }

    fn attribute(&mut self, tokens: &[Token<'_>]) {
        if let [dot, name, rest @ ..] = tokens
            && name.kind == Kind::Name
            && DICT_METHODS.contains(&name.text)
            && !rest.first().is_some_and(|next| next.is_operator("("))
        {
            self.replace(dot, format!(".{ATTRIBUTE}(\""));
            self.insert(name.end(), "\")");
        }
    }

    fn parenthesis(&mut self, tokens: &[Token<'_>], open: usize) {
        let inner = inside(tokens, open);
        let calls = open > 0 && ends_value(&tokens[open - 1], open == 1);
        if !calls && (inner.is_empty() || find_at_depth_zero(inner, |token| token.is_operator(",")).is_some()) {
            self.insert(tokens[open].start, TUPLE);
        }
    }

    fn bracket(&mut self, tokens: &[Token<'_>], open: usize) {
        let close = closing(tokens, open);
        let inner = inside(tokens, open);
        let subscripts = open > 0 && ends_value(&tokens[open - 1], open == 1);
        if !subscripts {
            self.replace(&tokens[open], format!("{LIST}("));
            self.replace(close, ")");
            return;
        }
        if let [only] = inner
            && literal::text(only).is_some_and(|name| DICT_METHODS.contains(&&*name))
        {
            self.replace(&tokens[open], format!(".{ITEM}("));
            self.replace(close, ")");
            return;
        }
        let mut colons: Vec<usize> = Vec::new();
        while let Some(next) =
            find_at_depth_zero(&inner[colons.last().map_or(0, |last| last + 1)..], |token| token.is_operator(":"))
        {
            colons.push(colons.last().map_or(0, |last| last + 1) + next);
        }
        if colons.is_empty() {
            return;
        }
        self.replace(&tokens[open], format!(".{SLICE}("));
        let mut part = 0;
        for &colon in &colons {
            let text = if colon == part { "none," } else { "," };
            self.replace(&inner[colon], text);
            part = colon + 1;
        }
        self.replace(close, if part == inner.len() { "none)" } else { ")" });
    }
}

// A statement's own name is no value, hence `first`.
fn ends_value(token: &Token<'_>, first: bool) -> bool {
    match token.kind {
        Kind::Name => !first_is_keyword(token, first) && !VALUE_FOLLOWS.contains(&token.text),
        Kind::Number | Kind::String => true,
        Kind::Operator => matches!(token.text, ")" | "]" | "}"),
    }
}

fn first_is_keyword(token: &Token<'_>, first: bool) -> bool {
    first && STATEMENTS.contains(&token.text)
}

// Where the value that a `for` runs over starts and ends.
fn iterated(tokens: &[Token<'_>]) -> Option<(usize, usize)> {
    let keyword = find_at_depth_zero(tokens, |token| token.is_name("in"))?;
    let rest = &tokens[keyword + 1..];
    let length = find_at_depth_zero(rest, |token| token.is_name("if") || token.is_name("recursive"));
    let value = &rest[..length.unwrap_or(rest.len())];
    Some((value.first()?.start, value.last()?.end()))
}

// How many leading tokens name what the statement assigns to.
fn targets(tag: &Tag<'_>) -> usize {
    let end = match tag.statement() {
        Some("set") => find_at_depth_zero(&tag.tokens, |token| token.is_operator("=")),
        Some("for") => find_at_depth_zero(&tag.tokens, |token| token.is_name("in")),
        // The parameters of a `call` block stand right behind its name.
        Some("call") if tag.tokens.get(1).is_some_and(|token| token.is_operator("(")) => Some(2),
        _ => return 0,
    };
    end.unwrap_or(tag.tokens.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::template::scan;

    fn rewritten(source: &str) -> String {
        rewrite(source, &scan::scan(source).unwrap()).unwrap()
    }

    #[test]
    fn generation_becomes_a_scope_and_keeps_its_whitespace_markers() {
        assert_eq!(rewritten("{%- generation -%}x{%+ endgeneration +%}"), "{%- with -%}x{%+ endwith +%}");
        assert_eq!(rewritten("{{ '{% generation %}' }}"), "{{ '{% generation %}' }}");
        assert_eq!(rewritten("{# {% generation %} #}"), "{# {% generation %} #}");
    }

    #[test]
    fn slices_become_calls() {
        assert_eq!(rewritten("{{ a[1:] }}"), "{{ a.__getslice__(1,none) }}");
        assert_eq!(rewritten("{{ a[:-1][::-1] }}"), "{{ a.__getslice__(none,-1).__getslice__(none,none,-1) }}");
        assert_eq!(rewritten("{{ a[b[1:2]:c] }}"), "{{ a.__getslice__(b.__getslice__(1,2),c) }}");
        assert_eq!(rewritten("{{ a[b] }}"), "{{ a[b] }}");
    }

    #[test]
    fn literals_become_calls() {
        assert_eq!(rewritten("{{ [1, {'a': []}] }}"), "{{ __list__(1, __dict__({'a': __list__()})) }}");
        assert_eq!(rewritten("{% if [a] %}{% elif x in [1] %}"), "{% if __list__(a) %}{% elif x in __list__(1) %}");
        assert_eq!(rewritten("{{ (1,) ~ (a) ~ f((), b) }}"), "{{ __tuple__(1,) ~ (a) ~ f(__tuple__(), b) }}");
        assert_eq!(
            rewritten("{% for (a, b) in c %}{% set (a, b) = c %}"),
            "{% for (a, b) in (c)|__iter__ %}{% set (a, b) = c %}"
        );
    }

    #[test]
    fn what_is_iterated_over_is_checked() {
        assert_eq!(rewritten("{% for a, b in c.d if e %}"), "{% for a, b in (c.d)|__iter__ if e %}");
        assert_eq!(rewritten("{% for a in b recursive %}"), "{% for a in (b)|__iter__ recursive %}");
        assert_eq!(rewritten("{% for a in [1] %}"), "{% for a in (__list__(1))|__iter__ %}");
        assert_eq!(
            rewritten("{% for a in {'b': c.items} %}"),
            "{% for a in (__dict__({'b': c.__getattr__(\"items\")}))|__iter__ %}"
        );
        assert_eq!(rewritten("{% for a in b.items %}"), "{% for a in (b.__getattr__(\"items\"))|__iter__ %}");
    }

    #[test]
    fn methods_hide_keys_unless_called_or_assigned() {
        assert_eq!(rewritten("{{ a.items.b }}"), "{{ a.__getattr__(\"items\").b }}");
        assert_eq!(rewritten("{{ a.items() }}"), "{{ a.items() }}");
        assert_eq!(rewritten("{{ a['items'].b['c'] }}"), "{{ a.__getitem__('items').b['c'] }}");
        assert_eq!(rewritten("{% set ns.items = ns.items %}"), "{% set ns.items = ns.__getattr__(\"items\") %}");
    }

    #[test]
    fn strings_with_escapes_are_respelled() {
        assert_eq!(rewritten(r"{{ 'a\/' ~ 'b' }}"), r#"{{ "a\\/" ~ 'b' }}"#);
        let source = r"{{ '\ud83d' }}";
        assert!(rewrite(source, &scan::scan(source).unwrap()).is_err());
    }

    #[test]
    fn statements_that_jinja2_does_not_know_are_refused() {
        for source in ["{% do a %}", "{% generation x %}", "{% %}", "{% autoescape true %}", "{% macro m(a, b=a) %}"] {
            assert!(rewrite(source, &scan::scan(source).unwrap()).is_err(), "{source}");
        }
    }
}
