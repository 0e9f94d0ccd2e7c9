mod generated;
mod hostile;

use std::path::PathBuf;

use time::OffsetDateTime;
use time::macros::datetime;

use super::*;

const NOW: OffsetDateTime = datetime!(2024-07-04 15:06:09.000123 UTC);

fn template(source: &str) -> Result<ChatTemplate, TemplateError> {
    let tokens = [("bos_token", "<s>"), ("eos_token", "</s>"), ("pad_token", "<pad>")];
    ChatTemplate::new(source, tokens.map(|(name, token)| (name.to_owned(), token.to_owned())).into_iter().collect())
}

fn render(source: &str, context: &str) -> Result<String, TemplateError> {
    let context = json::Value::parse(context).unwrap();
    template(source)?.render(context.as_object().unwrap(), NOW, &Patience::default())
}

fn golden(name: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../tests/golden/template", name].iter().collect();
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn golden_lines(name: &str) -> Vec<json::Value> {
    golden(name).lines().map(|line| json::Value::parse(line).unwrap()).collect()
}

fn text<'v>(value: &'v json::Value, key: &str) -> Option<&'v str> {
    value.get(key).and_then(json::Value::as_str)
}

#[test]
fn snippets_render_as_python_recorded_them() {
    let context = json::Value::parse(&golden("snippets.context.json")).unwrap();
    let mut wrong = Vec::new();
    for case in golden_lines("snippets.jsonl") {
        let source = text(&case, "template").unwrap();
        let rendered = template(source)
            .and_then(|template| template.render(context.as_object().unwrap(), NOW, &Patience::default()));
        let expected = text(&case, "text");
        if rendered.as_deref().ok() != expected {
            wrong.push(format!("{source:?}\n  expected {expected:?}\n  rendered {rendered:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn conversations_render_as_python_recorded_them() {
    for case in golden_lines("conversations.jsonl") {
        let name = text(&case, "template").unwrap();
        let template = template(&golden(&format!("{name}.jinja"))).unwrap();
        let context = case.get("context").and_then(json::Value::as_object).unwrap();
        let rendered = template.render(context, NOW, &Patience::default());
        assert_eq!(rendered.as_deref().ok(), text(&case, "text"), "{name}: {context:?}: {rendered:?}");
    }
}

#[test]
fn variables_hide_special_tokens() {
    assert_eq!(render("{{ bos_token }}{{ eos_token }}", r#"{"eos_token": "x"}"#).unwrap(), "<s>x");
}

#[test]
fn a_raised_message_arrives_alone() {
    let source =
        "{% macro m() %}{{ raise_exception('no ' ~ role) }}{% endmacro %}\n{% for x in [1] %}{{ m() }}{% endfor %}";
    let error = render(source, r#"{"role": "critic"}"#).unwrap_err();
    assert!(matches!(&error, TemplateError::Raised(message) if message == "no critic"), "{error:?}");
}

#[test]
fn failures_carry_the_innermost_message() {
    let error = render("{{ x.strip() }}", r#"{"x": null}"#).unwrap_err();
    assert!(
        matches!(&error, TemplateError::Render(message) if message == "'None' has no attribute 'strip'"),
        "{error:?}"
    );
}

#[test]
fn syntax_errors_name_their_line() {
    for source in ["a\nb\n{{ x", "a\nb\n{% nope %}", "\n\n{% if %}", "\r\n\r{{ 'a' 1 }}"] {
        let error = template(source).unwrap_err();
        assert!(matches!(error, TemplateError::Syntax { line: 3, .. }), "{source:?}: {error:?}");
    }
}

#[test]
fn lists_cannot_be_changed() {
    let error = render("{% set _ = l.append(1) %}", r#"{"l": []}"#).unwrap_err();
    assert_eq!(error.to_string(), "access to attribute 'append' of 'list' object is unsafe.");
}

#[test]
fn endless_templates_end() {
    let loops = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
    assert!(render(loops, "{}").is_err());
    assert!(render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{}").is_err());
}

#[test]
fn numbers_keep_their_spelling() {
    let context = r#"{"x": {"b": 1.0, "a": [1e-05, 123456789012345678901234567890123456789012, NaN, -0.0]}}"#;
    assert_eq!(render("{{ x | tojson }}", context).unwrap(), context[6..context.len() - 1]);
    assert_eq!(
        render("{{ x }} {{ x.b }}", context).unwrap(),
        "{'b': 1.0, 'a': [1e-05, 123456789012345678901234567890123456789012, nan, -0.0]} 1.0"
    );
}

#[test]
fn what_jinja2_can_and_we_cannot_fails() {
    for source in [
        "{{ '%s' % 'a' }}",
        "{{ '{:>3}'.format(1) }}",
        "{{ '{a}'.format(a=1) }}",
        "{{ '{}'.format(1.5) }}",
        "{{ '{}{}'.format(1) }}",
        "{{ d.items }}",
        "{{ 'é'.isalpha() }}",
        "{{ 2 ** 200 }}",
        "{% autoescape true %}{% endautoescape %}",
        "{% print 1 %}",
        "{{ strftime_now('%Q') }}",
        "{{ (-8) ** 0.5 }}",
        "{{ self }}",
        "{{ namespace() }}",
        "{{ range }}",
        "{{ 1 is sameas 1 }}",
    ] {
        assert!(render(source, r#"{"d": {}}"#).is_err(), "{source}");
    }
}

#[test]
fn renders_of_one_moment_agree() {
    assert_eq!(render("{{ strftime_now('%d %b %Y') }}", "{}").unwrap(), "04 Jul 2024");
}
