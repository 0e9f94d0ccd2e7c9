//! EBNF as Lark.

use std::fmt::Write as _;

use super::{Expr, Rules};
use crate::structured::lark::escape;

/// The longest regular expression that rules may become when each is written where it is used.
const LONGEST_PATTERN: usize = 1 << 18;
/// Rules in one another in it.
const DEEPEST: usize = 60;
/// The most single characters that repeated texts may become.
const MOST_SYMBOLS: usize = 200_000;

/// The grammar in Lark.
pub(super) fn lark(rules: &Rules) -> Result<String, String> {
    if rules.recurse() {
        return rules.characters();
    }
    let mut pattern = String::new();
    match rules.pattern(&rules.rules[rules.root], 0, &mut pattern) {
        Ok(()) if pattern.is_empty() => Ok("start: \"\"\n".to_owned()),
        Ok(()) => Ok(format!("start: /({pattern})/\n")),
        // A rule that is written out wherever it is used may be repeated beyond measure. As a rule it is written once.
        Err(TooLong) => rules.characters(),
    }
}

struct TooLong;

impl Rules {
    /// Whether a rule that `root` needs needs itself.
    fn recurse(&self) -> bool {
        #[derive(Clone, Copy, PartialEq)]
        enum Seen {
            Not,
            Open,
            Done,
        }

        let mut seen = vec![Seen::Not; self.rules.len()];
        // This function does not recurse, since a chain of rules may be long.
        let mut open = vec![(self.root, false)];
        while let Some((rule, leaving)) = open.pop() {
            if leaving {
                seen[rule] = Seen::Done;
                continue;
            }
            match seen[rule] {
                Seen::Open | Seen::Done => continue,
                Seen::Not => {}
            }
            seen[rule] = Seen::Open;
            open.push((rule, true));
            let mut used = Vec::new();
            self.rules[rule].uses(&mut used);
            if used.iter().any(|&rule| seen[rule] == Seen::Open) {
                return true;
            }
            open.extend(used.into_iter().map(|rule| (rule, false)));
        }
        false
    }

    /// Appends a regular expression.
    fn pattern(&self, expr: &Expr, depth: usize, out: &mut String) -> Result<(), TooLong> {
        if out.len() > LONGEST_PATTERN || depth > DEEPEST {
            return Err(TooLong);
        }
        match expr {
            Expr::Text(text) => text.chars().for_each(|c| escape(c, out)),
            Expr::Class { negated, ranges } => class(*negated, ranges, out),
            Expr::Rule(rule) => {
                out.push_str("(?:");
                self.pattern(&self.rules[*rule], depth + 1, out)?;
                out.push(')');
            }
            Expr::Sequence(parts) => parts.iter().try_for_each(|part| self.pattern(part, depth, out))?,
            Expr::Choice(choices) => {
                out.push_str("(?:");
                for (index, choice) in choices.iter().enumerate() {
                    if index > 0 {
                        out.push('|');
                    }
                    self.pattern(choice, depth, out)?;
                }
                out.push(')');
            }
            // The compiler knows no repetition of at most none.
            Expr::Repeat(_, _, Some(0)) => {}
            Expr::Repeat(part, least, most) => {
                out.push_str("(?:");
                self.pattern(part, depth, out)?;
                out.push(')');
                bounds(*least, *most, out);
            }
        }
        Ok(())
    }

    /// Writes all rules so that each lexeme is a single character.
    fn characters(&self) -> Result<String, String> {
        let mut writer = Characters { symbols: 0 };
        let mut lark = format!("start: r{}\n", self.root);
        for (index, rule) in self.rules.iter().enumerate() {
            let _ = write!(lark, "r{index}: ");
            writer.write(rule, &mut lark)?;
            lark.push('\n');
        }
        Ok(lark)
    }
}

impl Expr {
    /// Appends the rules that it uses.
    pub(super) fn uses(&self, used: &mut Vec<usize>) {
        match self {
            Self::Rule(rule) => used.push(*rule),
            Self::Sequence(parts) | Self::Choice(parts) => parts.iter().for_each(|part| part.uses(used)),
            Self::Repeat(part, ..) => part.uses(used),
            Self::Text(_) | Self::Class { .. } => {}
        }
    }
}

fn class(negated: bool, ranges: &[(char, char)], out: &mut String) {
    if ranges.is_empty() {
        out.push_str("(?:.|\\n)");
        return;
    }
    out.push_str(if negated { "[^" } else { "[" });
    for &(first, last) in ranges {
        escape(first, out);
        if first != last {
            out.push('-');
            escape(last, out);
        }
    }
    out.push(']');
}

fn bounds(least: u32, most: Option<u32>, out: &mut String) {
    match (least, most) {
        (0, None) => out.push('*'),
        (1, None) => out.push('+'),
        (0, Some(1)) => out.push('?'),
        (least, None) => {
            let _ = write!(out, "{{{least},}}");
        }
        (least, Some(most)) => {
            let _ = write!(out, "{{{least},{most}}}");
        }
    }
}

struct Characters {
    symbols: usize,
}

impl Characters {
    fn write(&mut self, expr: &Expr, out: &mut String) -> Result<(), String> {
        self.symbols += 1;
        if self.symbols > MOST_SYMBOLS {
            return Err("the grammar is too large".to_owned());
        }
        match expr {
            Expr::Text(text) if text.is_empty() => out.push_str("\"\""),
            Expr::Text(text) => {
                self.symbols += text.chars().count();
                for c in text.chars() {
                    out.push_str(" /");
                    escape(c, out);
                    out.push('/');
                }
            }
            Expr::Class { negated, ranges } => {
                out.push('/');
                class(*negated, ranges, out);
                out.push('/');
            }
            Expr::Rule(rule) => {
                let _ = write!(out, "r{rule}");
            }
            Expr::Sequence(parts) if parts.is_empty() => out.push_str("\"\""),
            Expr::Sequence(parts) => {
                for part in parts {
                    out.push('(');
                    self.write(part, out)?;
                    out.push_str(") ");
                }
            }
            Expr::Choice(choices) => {
                for (index, choice) in choices.iter().enumerate() {
                    out.push_str(if index > 0 { " | (" } else { "(" });
                    self.write(choice, out)?;
                    out.push(')');
                }
            }
            Expr::Repeat(_, _, Some(0)) => out.push_str("\"\""),
            Expr::Repeat(part, least, most) => {
                out.push('(');
                self.write(part, out)?;
                out.push(')');
                bounds(*least, *most, out);
            }
        }
        Ok(())
    }
}
