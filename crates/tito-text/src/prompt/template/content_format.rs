//! Finds out whether a template takes a message's content as a string or as a list of parts, by the rules of vLLM's
//! `--chat-template-content-format auto`: parts, if some loop runs over a message's content. Since prompt ids depend
//! on the answer, the rules are followed even where they guess wrong. Of the spellings they know, one is not seen:
//! a variable in brackets of its own, as in `(message).content`.

use super::bounds;
use super::error::{Error, TemplateError};
use super::literal;
use super::scan::Tag;
use super::tokens::{Token, TokenKind, arguments, closing, find_at_depth_zero, inside};

/// What a template expects a message's content to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentFormat {
    /// One string.
    String,
    /// A list of parts as in OpenAI's API.
    OpenAi,
}

/// What looking at one token among many costs, in the bytes that are looked through in the same time.
const STEP: usize = 16;

type Tokens<'t, 's> = &'t [Token<'s>];

/// Returns the content format of a scanned template; an error where finding it out takes too many steps.
pub(super) fn detect(tags: &[Tag<'_>]) -> Result<ContentFormat, TemplateError> {
    match iterates_content(tags) {
        Ok(true) => Ok(ContentFormat::OpenAi),
        Ok(false) | Err(Ended::NotAName) => Ok(ContentFormat::String),
        Err(Ended::Exceeded(error)) => Err(error.into()),
    }
}

// Why the search ends early.
enum Ended {
    // Where vLLM's detection expects one variable and meets something else, it gives up.
    NotAName,
    Exceeded(Error),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Exceeded(error)
    }
}

struct Loop<'t, 's> {
    target: Tokens<'t, 's>,
    iterated: Tokens<'t, 's>,
    // Index of the macro that the loop is part of.
    within: Option<usize>,
}

struct Macro<'s> {
    name: &'s str,
    parameters: Vec<&'s str>,
    // The parameters that some call passes a message's content to.
    content: Vec<&'s str>,
}

fn iterates_content(tags: &[Tag<'_>]) -> Result<bool, Ended> {
    let lists = names_for_messages(tags)?;
    let (loops, mut macros) = loops_and_macros(tags);
    let mut messages = Vec::new();
    for each in &loops {
        bounds::look_through(lists.len() * STEP)?;
        if lists.iter().any(|list| accesses(each.iterated, list, None)) {
            messages.push(name(each.target)?);
        }
    }
    let is_content = |tokens: Tokens<'_, '_>| messages.iter().any(|message| accesses(tokens, message, Some("content")));
    for tag in tags.iter().filter(|tag| tag.statement() != Some("macro")) {
        for called in &mut macros {
            bounds::look_through(tag.tokens.len() * STEP * (1 + messages.len()))?;
            calls(&tag.tokens, called, &is_content);
        }
    }
    for each in &loops {
        bounds::look_through(messages.len() * STEP)?;
        let is_bare = |name: &str| matches!(each.iterated, [only] if only.is_name(name));
        let by_name = match each.within {
            Some(index) => macros[index].content.iter().any(|parameter| is_bare(parameter)),
            None => is_bare("content"),
        };
        if by_name || is_content(each.iterated) {
            name(each.target)?;
            return Ok(true);
        }
    }
    Ok(false)
}

fn name<'s>(target: Tokens<'_, 's>) -> Result<&'s str, Ended> {
    match unparenthesised(target) {
        [only] if only.kind == TokenKind::Name => Ok(only.text),
        _ => Err(Ended::NotAName),
    }
}

// `messages` and every variable that is set to it, directly or through others.
fn names_for_messages<'s>(tags: &[Tag<'s>]) -> Result<Vec<&'s str>, Ended> {
    let assignments: Vec<(Tokens<'_, 's>, Tokens<'_, 's>)> = tags
        .iter()
        .filter(|tag| tag.statement() == Some("set"))
        .filter_map(|tag| {
            let equals = find_at_depth_zero(&tag.tokens, |token| token.is_operator("="))?;
            Some((&tag.tokens[1..equals], &tag.tokens[equals + 1..]))
        })
        .collect();
    let mut names = vec!["messages"];
    let mut seen = 0;
    while let Some(&known) = names.get(seen) {
        seen += 1;
        bounds::look_through((assignments.len() + names.len()) * STEP)?;
        for (target, value) in &assignments {
            if accesses(value, known, None) {
                let target = name(target)?;
                if !names.contains(&target) {
                    names.push(target);
                }
            }
        }
    }
    Ok(names)
}

fn loops_and_macros<'t, 's>(tags: &'t [Tag<'s>]) -> (Vec<Loop<'t, 's>>, Vec<Macro<'s>>) {
    let mut loops = Vec::new();
    let mut macros = Vec::new();
    let mut open = Vec::new();
    for tag in tags {
        let tokens = &tag.tokens[..];
        match tag.statement() {
            Some("macro") if tokens.len() > 3 => {
                open.push(macros.len());
                let parameters = arguments(&tokens[2..]).into_iter().filter_map(|argument| argument.first());
                let parameters = parameters.map(|parameter| parameter.text).collect();
                macros.push(Macro { name: tokens[1].text, parameters, content: Vec::new() });
            }
            Some("endmacro") => {
                open.pop();
            }
            Some("for") => {
                let Some(keyword) = find_at_depth_zero(tokens, |token| token.is_name("in")) else { continue };
                let rest = &tokens[keyword + 1..];
                let end = find_at_depth_zero(rest, |token| token.is_name("if") || token.is_name("recursive"));
                let iterated = unparenthesised(&rest[..end.unwrap_or(rest.len())]);
                loops.push(Loop { target: &tokens[1..keyword], iterated, within: open.last().copied() });
            }
            _ => {}
        }
    }
    (loops, macros)
}

// Notes which parameters of a macro the calls among the tokens pass a message's content to.
fn calls<'s>(tokens: &[Token<'s>], called: &mut Macro<'s>, is_content: &impl Fn(Tokens<'_, '_>) -> bool) {
    for (index, pair) in tokens.windows(2).enumerate() {
        let preceded = index > 0 && matches!(tokens[index - 1].text, "." | "|" | "is");
        if preceded || !pair[0].is_name(called.name) || !pair[1].is_operator("(") {
            continue;
        }
        for (position, argument) in arguments(&tokens[index + 1..]).into_iter().enumerate() {
            let parameter = match argument {
                [name, equals, value @ ..] if equals.is_operator("=") => {
                    called.parameters.iter().find(|parameter| name.is_name(parameter)).filter(|_| is_content(value))
                }
                _ => called.parameters.get(position).filter(|_| is_content(argument)),
            };
            if let Some(&parameter) = parameter {
                called.content.push(parameter);
            }
        }
    }
}

fn unparenthesised<'t, 's>(tokens: Tokens<'t, 's>) -> Tokens<'t, 's> {
    match tokens {
        [open, inner @ .., close] if open.is_operator("(") && closing(tokens, 0).start == close.start => {
            unparenthesised(inner)
        }
        _ => tokens,
    }
}

// Whether an expression is the variable, or its attribute if a key is given, sliced, filtered and tested at most.
fn accesses(tokens: Tokens<'_, '_>, variable: &str, key: Option<&str>) -> bool {
    let [first, rest @ ..] = unparenthesised(tokens) else { return false };
    if !first.is_name(variable) {
        return false;
    }
    let rest = match (key, rest) {
        (None, rest) => rest,
        (Some(key), [dot, name, rest @ ..]) if dot.is_operator(".") && name.is_name(key) => rest,
        (Some(key), [open, item, close, rest @ ..])
            if open.is_operator("[") && close.is_operator("]") && literal::text(item).as_deref() == Some(key) =>
        {
            rest
        }
        _ => return false,
    };
    only_slices_filters_and_tests(rest)
}

fn only_slices_filters_and_tests(mut rest: Tokens<'_, '_>) -> bool {
    loop {
        rest = match rest {
            [] => return true,
            [open, ..] if open.is_operator("[") => {
                let (inner, after) = bracketed(rest);
                if find_at_depth_zero(inner, |token| token.is_operator(":")).is_none() {
                    return false;
                }
                after
            }
            [pipe, _name, after @ ..] if pipe.is_operator("|") => without_arguments(after),
            [is, name, after @ ..] if is.is_name("is") && !name.is_name("not") => match after {
                // A test's only argument may stand without brackets.
                [argument] if !argument.is_operator(")") => return true,
                _ => without_arguments(after),
            },
            _ => return false,
        }
    }
}

fn bracketed<'t, 's>(tokens: Tokens<'t, 's>) -> (Tokens<'t, 's>, Tokens<'t, 's>) {
    let inner = inside(tokens, 0);
    (inner, &tokens[inner.len() + 2..])
}

fn without_arguments<'t, 's>(tokens: Tokens<'t, 's>) -> Tokens<'t, 's> {
    if tokens.first().is_some_and(|token| token.is_operator("(")) { bracketed(tokens).1 } else { tokens }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::template::scan::scan;

    fn format(source: &str) -> ContentFormat {
        detect(&scan(source).unwrap().tags).unwrap()
    }

    #[test]
    fn a_loop_over_a_message_s_content_means_parts() {
        for body in [
            "{% for part in message.content %}{% endfor %}",
            "{% for part in message['content'] %}{% endfor %}",
            "{% for part in message[\"content\"] | selectattr('type', 'equalto', 'text') %}{% endfor %}",
            "{% for part in (message.content[1:]) if part %}{% endfor %}",
            "{% set content = message.content %}{% for part in content %}{% endfor %}",
        ] {
            let source = format!("{{% for message in messages %}}{body}{{% endfor %}}");
            assert_eq!(format(&source), ContentFormat::OpenAi, "{source}");
        }
    }

    #[test]
    fn messages_are_recognised_under_other_names() {
        let source = "{% set a = messages[1:] %}{% set b = a | list %}{% for m in b %}{% for c in m.content %}{% endfor %}{% endfor %}";
        assert_eq!(format(source), ContentFormat::OpenAi);
    }

    #[test]
    fn everything_else_means_a_string() {
        for source in [
            "{% for message in messages %}{{ message.content }}{% endfor %}",
            "{% for message in messages %}{% for call in message.tool_calls %}{% endfor %}{% endfor %}",
            "{% for message in other %}{% for c in message.content %}{% endfor %}{% endfor %}",
            "{% for message in messages %}{% for c in message.content.parts %}{% endfor %}{% endfor %}",
            "{% for message in messages %}{% for c in message.content or [] %}{% endfor %}{% endfor %}",
            "{# {% for content in message.content %} #}",
        ] {
            assert_eq!(format(source), ContentFormat::String, "{source}");
        }
    }

    #[test]
    fn content_is_followed_into_the_parameters_of_macros() {
        let template = |parameter: &str, call: &str| {
            format!(
                "{{% macro show(x, {parameter}) %}}{{% for c in {parameter} %}}{{% endfor %}}{{% endmacro %}}\
                 {{% for m in messages %}}{{{{ {call} }}}}{{% endfor %}}"
            )
        };
        assert_eq!(format(&template("items", "show(1, m.content)")), ContentFormat::OpenAi);
        assert_eq!(format(&template("items", "show(1, items=m.content)")), ContentFormat::OpenAi);
        assert_eq!(format(&template("items", "show(m.content, 1)")), ContentFormat::String);
        assert_eq!(format(&template("content", "show(1, 2)")), ContentFormat::String);
    }

    #[test]
    fn a_loop_that_unpacks_messages_ends_the_search() {
        let source = "{% for a, b in messages %}{% endfor %}{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}";
        assert_eq!(format(source), ContentFormat::String);
    }
}
