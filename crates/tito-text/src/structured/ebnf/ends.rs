//! Whether rules come to an end: a model that began one which does not could never finish.

use super::{Expr, Rules};

/// Refuses rules that `root` needs and that no finite text keeps to.
pub(super) fn check(rules: &Rules) -> Result<(), String> {
    let ends = that_end(rules);
    match needed(rules).into_iter().find(|&rule| !ends[rule]) {
        None => Ok(()),
        Some(rule) => Err(format!("rule {:?} needs itself without an end", rules.names[rule])),
    }
}

/// The least answer that agrees with itself.
fn that_end(rules: &Rules) -> Vec<bool> {
    let mut ends = vec![false; rules.rules.len()];
    loop {
        let mut changed = false;
        // What a rule needs is mostly defined after it.
        for (rule, expr) in rules.rules.iter().enumerate().rev() {
            if !ends[rule] && does_end(expr, &ends) {
                ends[rule] = true;
                changed = true;
            }
        }
        if !changed {
            return ends;
        }
    }
}

fn does_end(expr: &Expr, ends: &[bool]) -> bool {
    match expr {
        Expr::Text(_) | Expr::Class { .. } | Expr::Repeat(_, 0, _) => true,
        Expr::Rule(rule) => ends[*rule],
        Expr::Sequence(parts) => parts.iter().all(|part| does_end(part, ends)),
        Expr::Choice(choices) => choices.iter().any(|choice| does_end(choice, ends)),
        Expr::Repeat(part, ..) => does_end(part, ends),
    }
}

/// The rules that `root` needs, itself first.
fn needed(rules: &Rules) -> Vec<usize> {
    let mut seen = vec![false; rules.rules.len()];
    seen[rules.root] = true;
    let mut needed = vec![rules.root];
    let mut next = 0;
    while let Some(&rule) = needed.get(next) {
        next += 1;
        let mut used = Vec::new();
        rules.rules[rule].uses(&mut used);
        needed.extend(used.into_iter().filter(|&rule| !std::mem::replace(&mut seen[rule], true)));
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::{super::parse, *};

    fn check_text(grammar: &str) -> Result<(), String> {
        check(&parse::rules(grammar).unwrap())
    }

    #[test]
    fn rules_that_never_end_are_named() {
        for (grammar, rule) in [
            ("root ::= root", "root"),
            ("root ::= \"a\" root", "root"),
            ("root ::= a | \"x\"\na ::= \"y\" b\nb ::= a+", "a"),
        ] {
            assert_eq!(check_text(grammar), Err(format!("rule {rule:?} needs itself without an end")), "{grammar}");
        }
        for grammar in [
            "root ::= \"a\" root | \"\"",
            "root ::= a*\na ::= \"x\" root",
            "root ::= \"a\"\nunused ::= unused",
            "root ::= (\"a\" root)?",
        ] {
            assert_eq!(check_text(grammar), Ok(()), "{grammar}");
        }
    }
}
