//! Templates that are made to stop a server. Each is read, rendered and dropped on a thread with no more stack than the
//! threads have that serve requests: one that needs more ends the whole test.

use time::OffsetDateTime;

use super::super::bounds::{MAX_NESTING, MAX_SOURCE};
use super::super::*;

/// What tokio gives its threads, and the standard library too.
const STACK: usize = 2 << 20;

/// Enough for what ends, and soon used up by what does not.
const STEPS: u64 = 3_000_000;

pub(super) fn on_small_stack<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, run);
        thread.unwrap().join().unwrap()
    })
}

pub(super) fn context() -> json::Value {
    let deep = format!("{}1{}", "[".repeat(json::MAX_DEPTH - 1), "]".repeat(json::MAX_DEPTH - 1));
    let maps = format!("{}1{}", r#"{"a": "#.repeat(json::MAX_DEPTH - 1), "}".repeat(json::MAX_DEPTH - 1));
    let text = "ab \n".repeat(1000);
    let context = format!(
        r#"{{"x": 1, "l": [1, 2, 3], "deep": {deep}, "maps": {maps}, "text": {},
            "messages": [{{"role": "user", "content": "Hi"}}, {{"role": "assistant", "content": [{{"text": "a"}}]}}]}}"#,
        json::Value::from(text).to_json_string()
    );
    json::Value::parse(&context).unwrap()
}

fn render(source: &str) -> Result<String, TemplateError> {
    on_small_stack(|| {
        let context = context();
        let template = ChatTemplate::new(source, IndexMap::new())?;
        template.render(context.as_object().unwrap(), OffsetDateTime::UNIX_EPOCH, &Patience::for_steps(STEPS))
    })
}

fn limit(source: &str) -> Option<Limit> {
    match render(source) {
        Err(TemplateError::Exceeded(limit)) => Some(limit),
        Err(_) | Ok(_) => None,
    }
}

fn repeated(parts: [&str; 3], count: usize) -> String {
    [parts[0], &parts[1].repeat(count), parts[2]].concat()
}

#[test]
fn what_is_chained_takes_no_stack() {
    for (parts, count, printed) in [
        (["{{ x", " + x", " }}"], 10_000, "10001"),
        (["{{ x", " ~ ''", " }}"], 40_000, "1"),
        (["{{ x", " ** x", " }}"], 40_000, "1"),
        (["{{ ", "not ", "x }}"], 20_000, "True"),
        (["{{ ", "-", "x }}"], 100_000, "1"),
        (["{{ x", "|abs", " }}"], 10_000, "1"),
        (["{{ x", "|list.a", "|abs }}"], 1, "error"),
        (["{{ l", "[:]", "[0] }}"], 10_000, "1"),
        (["{{ x", " is defined", " }}"], 10_000, "error"),
        (["{{ x", " and x", " }}"], 40_000, "1"),
        (["{{ none", " or none", " }}"], 20_000, "None"),
        (["{{ x", " == x", " }}"], 40_000, "True"),
        (["{{ x", " if x", " }}"], 40_000, "1"),
        (["{{ 2 ", "if not x else 3 ", " }}"], 15_000, "3"),
        (["{{ '' ", "'a' ", "|length }}"], 60_000, "60000"),
        (["{% if not x %}", "{% elif not x %}", "{% else %}a{% endif %}"], 10_000, "a"),
        (["{% set a", ", a", " = l %}"], 10_000, "error"),
        (["{% filter upper", "|upper", " %}a{% endfilter %}"], 10_000, "A"),
        (["{% set a", "|upper", " %}a{% endset %}{{ a }}"], 10_000, "A"),
        (["", "{% set a = 1 %}", "{{ a }}"], 15_000, "1"),
        (["{{ {'a': 1}", ".a.a", " }}"], 10_000, "error"),
        (["{{ [", "1,", "]|length }}"], 100_000, "100000"),
        (["{{ dict(", "a=1,", ") }}"], 20_000, "{'a': 1}"),
    ] {
        let rendered = render(&repeated(parts, count));
        assert_eq!(rendered.as_deref().unwrap_or("error"), printed, "{parts:?}: {rendered:?}");
    }
}

#[test]
fn what_is_nested_is_bounded() {
    for (open, inner, close) in [
        ("(", "1", ")"),
        ("[", "1", "]"),
        ("{'a': ", "1", "}"),
        ("l[", "1", "]"),
        ("x|d(", "1", ")"),
        ("x is eq(", "1", ")"),
        ("dict(a=", "1", ")"),
        ("dict(*", "l", ")"),
        ("-(", "1", ")"),
        ("not (", "1", ")"),
        ("1 + (", "1", ")"),
        ("l[:", "1", "]"),
    ] {
        let nested = |depth: usize| format!("{{{{ {}{inner}{} }}}}", open.repeat(depth), close.repeat(depth));
        let within = render(&nested(MAX_NESTING / 2 - 1));
        assert!(
            !matches!(within, Err(TemplateError::Syntax { .. } | TemplateError::Exceeded(_))),
            "{open}: {within:?}"
        );
        for depth in [MAX_NESTING + 1, 20_000] {
            assert!(matches!(render(&nested(depth)), Err(TemplateError::Syntax { .. })), "{open}");
        }
        assert!(render(&format!("{{{{ {}", open.repeat(20_000))).is_err(), "{open}");
    }
    for (open, close) in [
        ("{% if x %}", "{% endif %}"),
        ("{% for a in l[:1] %}", "{% endfor %}"),
        ("{% with %}", "{% endwith %}"),
        ("{% filter upper %}", "{% endfilter %}"),
        ("{% set a %}", "{% endset %}"),
        ("{% generation %}", "{% endgeneration %}"),
        ("{% macro m() %}", "{% endmacro %}"),
        ("{% call x() %}", "{% endcall %}"),
    ] {
        let nested = |depth: usize| open.repeat(depth) + "a" + &close.repeat(depth);
        let within = render(&nested(MAX_NESTING - 2));
        assert!(
            !matches!(within, Err(TemplateError::Syntax { .. } | TemplateError::Exceeded(_))),
            "{open}: {within:?}"
        );
        for depth in [MAX_NESTING + 1, 5_000] {
            assert!(matches!(render(&nested(depth)), Err(TemplateError::Syntax { .. })), "{open}");
        }
    }
    assert!(render(&format!("{{% set {}a{} = 1 %}}", "(".repeat(20_000), ")".repeat(20_000))).is_err());
    let long = "a".repeat(MAX_SOURCE);
    assert_eq!(render(&long).unwrap(), long);
    assert!(matches!(render(&(long + "a")), Err(TemplateError::Syntax { .. })));
}

const MACROS: &str = "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}";

#[test]
fn recursion_ends_before_the_stack_does() {
    assert_eq!(render(&format!("{MACROS}{{{{ m(40) }}}}a")).unwrap(), "a");
    for source in [
        format!("{MACROS}{{{{ m(10000) }}}}"),
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".to_owned(),
        "{% macro m() %}{{ caller is defined }}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}".to_owned(),
        "{% macro m() %}{{ [[[[[[m()]]]]]] }}{% endmacro %}{{ m() }}".to_owned(),
        "{% macro m() %}{% set a %}{% filter upper %}{{ m() }}{% endfilter %}{% endset %}{% endmacro %}{{ m() }}".to_owned(),
        "{% macro m(a=m()) %}{% endmacro %}{{ m() }}".to_owned(),
        "{% macro m() %}{% for a in [1] if m() %}{% endfor %}{% endmacro %}{{ m() }}".to_owned(),
        "{% macro m() %}{{ 1 if m() else 2 }}{{ x|d(m()) }}{% endmacro %}{{ m() }}".to_owned(),
        "{% macro m() %}{{ x is eq(m()) }}{% endmacro %}{{ m() }}".to_owned(),
        "{% set n = namespace() %}{% set n.m = namespace %}{% macro m() %}{{ n.m(a=m()) }}{% endmacro %}{{ m() }}".to_owned(),
        "{% for a in l recursive %}{{ loop(l) }}{% endfor %}".to_owned(),
        "{% macro m() %}{{ caller() }}{% endmacro %}{% macro c() %}{% call m() %}{{ c() }}{% endcall %}{% endmacro %}{{ c() }}"
            .to_owned(),
    ] {
        assert_eq!(limit(&source), Some(Limit::Depth), "{source}: {:?}", render(&source));
    }
}

#[test]
fn values_are_not_nested_without_end() {
    let grown = |grows: &str, then: &str| {
        format!(
            "{{% set n = namespace(v=[]) %}}{{% for i in range(99999) %}}{{% set n.v = {grows} %}}{{% endfor %}}{then}"
        )
    };
    for grows in [
        "[n.v]",
        "(n.v,)",
        "{'a': n.v}",
        "dict(a=n.v)",
        "[n.v]|reverse",
        "[n.v]|list",
        "[n.v]|map('d')",
        "cycler(n.v)",
        "joiner(n.v)",
        "{'a': n.v}.items",
        "{'a': n.v}.values()",
        "{'a': n.v}|dictsort",
        "[n.v] + [n.v]",
        "[n.v] * 2",
        "[n.v][:]",
        "n.v|d([n.v], true) if n.v is none else [n.v]",
    ] {
        assert_eq!(limit(&grown(grows, "")), Some(Limit::ValueDepth), "{grows}: {:?}", render(&grown(grows, "")));
    }
    for macros in
        ["{% macro m() %}{% set n.v = varargs %}{% endmacro %}", "{% macro m() %}{% set n.v = kwargs %}{% endmacro %}"]
    {
        let call = if macros.contains("kwargs") { "m(a=n.v)" } else { "m(n.v)" };
        let source =
            format!("{{% set n = namespace(v=1) %}}{macros}{{% for i in range(999) %}}{{{{ {call} }}}}{{% endfor %}}");
        assert_eq!(limit(&source), Some(Limit::ValueDepth), "{source}: {:?}", render(&source));
    }
}

#[test]
fn values_that_share_their_parts_are_not_walked_without_end() {
    // Each has one list more than the one before, and twice as many items when it is walked.
    let grown = |start: &str, grows: &str, then: &str| {
        format!(
            "{{% set n = namespace(v={start}, w={start}) %}}{{% for i in range(250) %}}{{% set n.v = {grows} %}}\
             {{% set n.w = {} %}}{{% endfor %}}{then}",
            grows.replace("n.v", "n.w")
        )
    };
    for (start, grows) in [("[1]", "[n.v, n.v]"), ("[1]", "{'a': n.v, 'b': n.v}"), ("(1,)", "(n.v, n.v)")] {
        for then in [
            "{{ n.v }}",
            "{{ n.v|string|length }}",
            "{{ n.v ~ '' }}",
            "{{ n.v|tojson }}",
            "{{ n.v == n.w }}",
            "{{ n.v in [n.w] }}",
            "{{ [n.v, n.w]|join }}",
            "{{ n.v|replace('a', 'b') }}",
            "{{ [n.v].index(n.w) }}",
            "{{ [[n.v], [n.w]]|sort(attribute=0) }}",
            "{{ raise_exception(n.v) }}",
        ] {
            let rendered = render(&grown(start, grows, then));
            let is_unordered = grows.contains('{') && then.contains("sort");
            let ends = matches!(rendered, Err(TemplateError::Exceeded(Limit::Steps | Limit::Memory)));
            assert!(ends || is_unordered && rendered.is_err(), "{grows} {then}: {rendered:?}");
        }
    }
}

#[test]
fn what_refers_to_itself_ends() {
    let source = "{% set n = namespace() %}{% set n.n = n %}{% set n.l = [n, n.n] %}{{ n.n.n.n.l[0].l|length }}";
    assert_eq!(render(source).unwrap(), "2");
    for then in ["{{ n }}", "{{ n.l }}", "{{ n|tojson }}", "{{ n|list }}", "{{ n|string }}", "{{ n|map('list') }}"] {
        let rendered = render(&format!("{source}{then}"));
        assert!(matches!(rendered, Err(TemplateError::Render(_))), "{then}: {rendered:?}");
    }
    assert_eq!(render(&format!("{source}{{{{ n == n.n }}}}{{{{ n.l == [n, n] }}}}")).unwrap(), "2TrueTrue");
    let scopes = "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}b{% endmacro %}{% set c = [a, b] %}{{ a() }}";
    assert_eq!(render(scopes).unwrap(), "b");
}

#[test]
fn what_grows_is_bounded() {
    let doubled = |start: &str, grows: &str| {
        format!(
            "{{% set n = namespace(v={start}) %}}{{% for i in range(99) %}}{{% set n.v = {grows} %}}{{% endfor %}}{{{{ n.v|length }}}}"
        )
    };
    for (start, grows) in [
        ("text", "n.v ~ n.v"),
        ("text", "n.v + n.v"),
        ("text", "n.v * 10"),
        ("text", "n.v * 100000000000000000000000000"),
        ("text", "n.v.replace('a', n.v)"),
        ("text", "n.v|replace('', n.v)"),
        ("text", "[n.v, n.v]|join"),
        ("text", "n.v.join(n.v)"),
        ("text", "n.v|join(n.v)"),
        ("text", "n.v.join([n.v, n.v])"),
        ("text", "'%s%s'|format(n.v, n.v)"),
        ("text", "n.v|indent(n.v)"),
        ("text", "n.v|indent(1000)"),
        ("text", "n.v.center(n.v|length * 2)"),
        ("text", "n.v.ljust(9223372036854775807)"),
        ("text", "n.v.zfill(100000000000)"),
        ("text", "[n.v]|string ~ [n.v]"),
        ("text", "[n.v, n.v]|tojson"),
        ("text", "l|tojson(indent=n.v)"),
        ("text", "l|tojson(separators=(n.v, n.v))"),
        ("text", "n.v|e ~ n.v"),
        ("l", "n.v + n.v"),
        ("l", "n.v * 10"),
        ("l", "n.v * 1000000000000000000000000"),
        ("(1, 2)", "n.v + n.v"),
        ("(1, 2)", "n.v * 1000000000000"),
        ("[text]", "[(n.v * 1000)|join] * 1000"),
        ("[text]", "n.v|map('center', 10000)|list + n.v + n.v"),
        ("text", "(n.v ~ n.v)|list|join"),
        ("text", "(n.v ~ n.v).split('a')|join('aa')"),
    ] {
        let rendered = render(&doubled(start, grows));
        let ends = matches!(rendered, Err(TemplateError::Exceeded(Limit::Steps | Limit::Memory)));
        assert!(ends, "{grows}: {rendered:?}");
    }
    let big = "{% set b = range(99999)|list * 10 %}{% set t = text * 4000 %}";
    for held in [
        "{{ dict(*b, a=dict(*b, a=dict(*b))) }}",
        "{{ t ~ (t ~ (t ~ (t ~ (t ~ '')))) }}",
        "{% macro m() %}{% for a in b if m() %}{% endfor %}{% endmacro %}{{ m() }}",
        "{% macro m() %}{% for a in b %}{{ m() }}{% endfor %}{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ t }}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ (text * 8000).split('a') }}",
        "{{ (text * 8000).split() }}",
        "{{ (text * 8000).splitlines() }}",
        "{{ (text * 8000)|list }}",
        "{{ b|sort|length }}{{ (b * 2)|sort|length }}",
    ] {
        let source = format!("{big}{held}");
        assert!(matches!(limit(&source), Some(Limit::Memory)), "{held}: {:?}", render(&source).map(|text| text.len()));
    }
    let printed = "{% for i in range(99999) %}{% for j in range(99999) %}{{ text }}{% endfor %}{% endfor %}";
    for source in [
        printed.to_owned(),
        format!("{{% set a %}}{printed}{{% endset %}}"),
        format!("{{% filter upper %}}{printed}{{% endfilter %}}"),
        format!("{{% macro m() %}}{printed}{{% endmacro %}}{{{{ m() }}}}"),
        format!("{}{}{}", "{% set a %}{% for i in range(99999) %}", "a".repeat(100_000), "{% endfor %}{% endset %}"),
    ] {
        assert!(matches!(limit(&source), Some(Limit::Memory | Limit::Steps)), "{}", &source[..40]);
    }
}

#[test]
fn what_prints_nothing_ends_too() {
    for body in [
        "",
        "{% set a = text == text ~ 'a' %}",
        "{% set a = text in text %}",
        "{% set a = text|length %}",
        "{% set a = text[4000] %}",
        "{% set a = text < text %}",
        "{% set a = text.count('b') %}",
        "{% set a = text is upper %}",
        "{% set a = namespace(a=1) %}",
        "{% macro m() %}{% endmacro %}",
        "{% set a = range(99999) %}",
        "{% set a = deep == deep %}",
        "{% set a = maps|tojson %}",
        "{% set a = l|sort %}",
        "{% continue %}",
        "{% for c in range(99999) if not c %}{% endfor %}",
        "{% set a = range(99999)|map('string')|select('eq', '')|list %}",
    ] {
        let source =
            format!("{{% for a in range(99999) %}}{{% for b in range(99999) %}}{body}{{% endfor %}}{{% endfor %}}");
        assert!(matches!(limit(&source), Some(Limit::Memory | Limit::Steps)), "{body}: {:?}", render(&source));
    }
}

#[test]
fn the_deepest_values_of_requests_can_be_shown() {
    for source in ["{{ deep }}", "{{ deep|tojson }}", "{{ [deep]|tojson(indent=2) }}", "{{ deep == [deep][0] }}"] {
        render(source).unwrap();
    }
    assert_eq!(render("{{ maps|tojson == maps|tojson and maps == {'a': maps.a} }}").unwrap(), "True");
}

#[test]
fn reading_takes_no_longer_than_a_source_is_long() {
    let many = |part: &str| part.repeat(MAX_SOURCE / part.len());
    let numbered = |count: usize, part: fn(usize) -> String| (0..count).map(part).collect::<String>();
    for source in [
        many("{% set a = messages %}"),
        numbered(8_000, |number| format!("{{% set a{number} = messages %}}")),
        numbered(4_000, |number| format!("{{% for a{number} in messages %}}{{% endfor %}}")),
        numbered(4_000, |number| format!("{{% macro a{number}(b) %}}{{% endmacro %}}")),
        numbered(3_000, |number| format!("{{% macro a{number}(b) %}}{{{{ a{number}(b) }}}}{{% endmacro %}}")),
        many("{{ ((((a)))) }}"),
        many("{#"),
        many("{% raw %}"),
        many("{%"),
        many("{{ '"),
        many("{"),
    ] {
        let read = on_small_stack(|| ChatTemplate::new(&source, IndexMap::new()).err());
        let is_expected =
            matches!(read, None | Some(TemplateError::Syntax { .. } | TemplateError::Exceeded(Limit::Steps)));
        assert!(is_expected, "{}: {read:?}", &source[..20.min(source.len())]);
    }
}
