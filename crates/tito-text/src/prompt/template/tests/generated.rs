//! Templates of a grammar that prefers what grows, nests and repeats, as many as a property test makes.

use proptest::prelude::*;
use time::OffsetDateTime;

use super::super::*;
use super::hostile::{context, on_small_stack};

#[expect(clippy::too_many_lines, reason = "a grammar, rule by rule")]
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "x",
        "l",
        "text",
        "deep",
        "maps",
        "messages",
        "n.v",
        "n",
        "m",
        "loop",
        "missing",
        "'ab'",
        "1",
        "99999",
        "-1",
        "1.5",
        "none",
        "true",
        "range(999)",
        "[]",
        "{}",
        "namespace(v=n.v)",
        "caller",
        "varargs",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(5, 24, 3, |inner| {
        let operators = vec!["+", "-", "*", "/", "//", "%", "**", "~", "==", "<", "in", "not in", "and", "or"];
        let filters = vec![
            "list",
            "join(text)",
            "replace('a', text)",
            "tojson",
            "tojson(indent=9)",
            "string",
            "reverse",
            "sort",
            "unique",
            "map('string')",
            "map('list')",
            "select",
            "indent(99)",
            "center(9999)",
            "length",
            "first",
            "last",
            "sum",
            "dictsort",
            "items",
            "upper",
            "int",
            "d(l)",
            "format(l, text)",
            "batch(2)",
            "attr('v')",
            "max",
        ];
        let steps = vec![
            ".v",
            "[0]",
            "[-1]",
            "[::-1]",
            "[1:]",
            ".items()",
            ".values()",
            ".split('a')",
            ".join(l)",
            ".strip()",
            "()",
            "(n.v)",
            "(*l)",
            "(**maps)",
            ".ljust(999)",
            ".count('a')",
            ".items",
            " is defined",
            " is iterable",
        ];
        prop_oneof![
            (inner.clone(), prop::sample::select(operators), inner.clone())
                .prop_map(|(left, operator, right)| format!("({left} {operator} {right})")),
            (inner.clone(), prop::sample::select(filters)).prop_map(|(value, filter)| format!("({value}|{filter})")),
            (inner.clone(), prop::sample::select(steps)).prop_map(|(value, step)| format!("({value}{step})")),
            prop::collection::vec(inner.clone(), 0..3).prop_map(|items| format!("[{}]", items.join(", "))),
            inner.clone().prop_map(|value| format!("{{'a': {value}, 'v': {value}}}")),
            (inner.clone(), inner.clone()).prop_map(|(value, test)| format!("({value} if {test} else n.v)")),
            inner.prop_map(|value| format!("m({value})")),
        ]
    })
}

fn statements() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        expression().prop_map(|value| format!("{{{{ {value} }}}}")),
        expression().prop_map(|value| format!("{{% set n.v = {value} %}}")),
        expression().prop_map(|value| format!("{{% set a, b = {value} %}}")),
        Just("text ".to_owned()),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let body = prop::collection::vec(inner, 1..4).prop_map(|parts| parts.concat());
        prop_oneof![
            (expression(), body.clone())
                .prop_map(|(value, body)| format!("{{% for x in {value} %}}{body}{{% else %}}{body}{{% endfor %}}")),
            body.clone().prop_map(|body| format!("{{% for x in range(300) recursive %}}{body}{{% endfor %}}")),
            (expression(), body.clone()).prop_map(|(value, body)| format!("{{% if {value} %}}{body}{{% endif %}}")),
            body.clone().prop_map(|body| format!("{{% macro m(x=n.v) %}}{body}{{% endmacro %}}")),
            body.clone().prop_map(|body| format!("{{% set n.v %}}{body}{{% endset %}}")),
            body.clone().prop_map(|body| format!("{{% filter upper %}}{body}{{% endfilter %}}")),
            body.clone().prop_map(|body| format!("{{% call m(n.v) %}}{body}{{% endcall %}}")),
            body.prop_map(|body| format!("{{% with x = n.v %}}{body}{{% endwith %}}")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_template_says_it_ends_and_leaves_nothing(parts in prop::collection::vec(statements(), 1..5)) {
        let source = format!(
            "{{% set n = namespace(v=l) %}}{{% macro m(x) %}}{{{{ x }}}}{{% endmacro %}}{}",
            parts.concat()
        );
        // What is left behind fails an assertion of the render.
        let rendered = on_small_stack(|| {
            let context = context();
            let template = ChatTemplate::new(&source, IndexMap::new())?;
            let patience = Patience::for_steps(200_000);
            template.render(context.as_object().unwrap(), OffsetDateTime::UNIX_EPOCH, &patience)
        });
        if let Err(TemplateError::Syntax { message, .. }) = &rendered {
            panic!("{source}: {message}");
        }
    }
}
