//! Reading EBNF.

use std::collections::HashMap;

use super::{Expr, Rules};

/// Parentheses in one another.
const DEEPEST: usize = 100;
const MOST_REPETITIONS: u32 = 10_000;
const MOST_RULES: usize = 20_000;

/// Reads a grammar; what is wrong is said with its line.
pub(super) fn rules(grammar: &str) -> Result<Rules, String> {
    let mut parser = Parser { text: grammar, at: 0, names: HashMap::new(), rules: Vec::new(), depth: 0 };
    parser.grammar().map_err(|error| {
        let line = grammar[..parser.at].matches('\n').count() + 1;
        format!("line {line}: {error}")
    })
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// Rules that were named, defined or not.
    names: HashMap<&'a str, usize>,
    rules: Vec<Option<Expr>>,
    depth: usize,
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}

impl<'a> Parser<'a> {
    fn grammar(&mut self) -> Result<Rules, String> {
        self.skip();
        while self.at < self.text.len() {
            let name = self.name().ok_or("a rule's name is missing")?;
            self.skip();
            self.expect("::=")?;
            let body = self.choice()?;
            if is_empty(&body) {
                return Err(format!("rule {name:?} is empty; write an empty text as \"\""));
            }
            let index = self.index(name);
            if self.rules[index].replace(body).is_some() {
                return Err(format!("rule {name:?} is defined twice"));
            }
            self.skip();
        }
        if self.rules.len() > MOST_RULES {
            return Err(format!("{} rules are more than {MOST_RULES}", self.rules.len()));
        }
        let root = self.names.get("root").copied().ok_or("there is no rule \"root\"")?;
        let undefined = self.names.iter().find(|(_, index)| self.rules[**index].is_none());
        if let Some((name, _)) = undefined {
            return Err(format!("rule {name:?} is not defined"));
        }
        let mut names = vec![String::new(); self.rules.len()];
        self.names.iter().for_each(|(name, &index)| (*name).clone_into(&mut names[index]));
        Ok(Rules { rules: self.rules.drain(..).flatten().collect(), names, root })
    }

    fn index(&mut self, name: &'a str) -> usize {
        let next = self.rules.len();
        let index = *self.names.entry(name).or_insert(next);
        if index == next {
            self.rules.push(None);
        }
        index
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Result<char, String> {
        let c = self.peek().ok_or("the grammar ends too early")?;
        self.at += c.len_utf8();
        Ok(c)
    }

    fn eat(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        if found {
            self.at += text.len();
        }
        found
    }

    fn expect(&mut self, text: &str) -> Result<(), String> {
        if self.eat(text) { Ok(()) } else { Err(format!("{text:?} is missing")) }
    }

    /// White space and comments.
    fn skip(&mut self) {
        loop {
            self.at = self.text.len() - self.rest().trim_start().len();
            if !self.rest().starts_with('#') {
                return;
            }
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    fn name(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        self.at += end;
        (end > 0).then(|| &rest[..end])
    }

    fn choice(&mut self) -> Result<Expr, String> {
        let mut choices = vec![self.sequence()?];
        while self.eat("|") {
            choices.push(self.sequence()?);
        }
        if choices.len() > 1 && choices.iter().any(is_empty) {
            return Err("an alternative is empty; write an empty text as \"\"".to_owned());
        }
        Ok(if choices.len() == 1 { choices.remove(0) } else { Expr::Choice(choices) })
    }

    fn sequence(&mut self) -> Result<Expr, String> {
        let mut parts = Vec::new();
        loop {
            self.skip();
            match self.peek() {
                None | Some('|' | ')') => break,
                Some(_) if self.at_rule() => break,
                Some(_) => {
                    let part = self.part()?;
                    parts.push(self.repeated(part)?);
                }
            }
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expr::Sequence(parts) })
    }

    /// Whether the next rule begins here.
    fn at_rule(&self) -> bool {
        let rest = self.rest();
        let name = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        name > 0 && rest[name..].trim_start().starts_with("::=")
    }

    fn part(&mut self) -> Result<Expr, String> {
        match self.peek() {
            Some('"') => self.quoted(),
            Some('[') => self.class(),
            Some('.') => {
                self.at += 1;
                Ok(Expr::Class { negated: true, ranges: Vec::new() })
            }
            Some('(') => self.group(),
            Some(c) if is_name(c) => {
                let name = self.name().unwrap_or_default();
                if self.peek() == Some('(') {
                    return Err(format!("the macro {name:?} is not known"));
                }
                Ok(Expr::Rule(self.index(name)))
            }
            other => Err(format!("{:?} was not expected", other.unwrap_or(' '))),
        }
    }

    fn group(&mut self) -> Result<Expr, String> {
        self.at += 1;
        if self.rest().starts_with(['=', '!']) {
            return Err("lookaheads are not known".to_owned());
        }
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("parentheses are nested more than {DEEPEST} times"));
        }
        let inner = self.choice()?;
        self.depth -= 1;
        self.expect(")")?;
        Ok(if is_empty(&inner) { Expr::Text(String::new()) } else { inner })
    }

    fn repeated(&mut self, mut part: Expr) -> Result<Expr, String> {
        loop {
            let (least, most) = match self.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => {
                    let (least, most) = self.bounds()?;
                    part = Expr::Repeat(Box::new(part), least, most);
                    continue;
                }
                _ => return Ok(part),
            };
            self.at += 1;
            part = Expr::Repeat(Box::new(part), least, most);
        }
    }

    /// `{2}`, `{2,}` and `{2,3}`.
    fn bounds(&mut self) -> Result<(u32, Option<u32>), String> {
        self.at += 1;
        let first = self.number()?;
        let least = first.unwrap_or(0);
        let most = if self.eat(",") { self.number()? } else { first };
        self.expect("}")?;
        if first.is_none() && most.is_none() {
            return Err("a repetition in braces has no number".to_owned());
        }
        if most.is_some_and(|most| most < least) {
            return Err(format!("a repetition of at least {least} has a smaller limit"));
        }
        Ok((least, most))
    }

    fn number(&mut self) -> Result<Option<u32>, String> {
        self.skip();
        let digits = self.rest().find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest().len());
        let text = &self.rest()[..digits];
        self.at += digits;
        self.skip();
        match text.parse() {
            Ok(number) if number <= MOST_REPETITIONS => Ok(Some(number)),
            Err(_) if text.is_empty() => Ok(None),
            _ => Err(format!("{text} repetitions are more than {MOST_REPETITIONS}")),
        }
    }

    fn quoted(&mut self) -> Result<Expr, String> {
        self.at += 1;
        let mut text = String::new();
        loop {
            match self.next()? {
                '"' => return Ok(Expr::Text(text)),
                '\n' => return Err("a text is not closed".to_owned()),
                '\\' => text.push(self.escape()?),
                c => text.push(c),
            }
        }
    }

    fn class(&mut self) -> Result<Expr, String> {
        self.at += 1;
        let negated = self.eat("^");
        let mut ranges = Vec::new();
        while !self.eat("]") {
            let first = self.class_char()?;
            let is_range = self.rest().starts_with('-') && !self.rest().starts_with("-]");
            let last = if is_range {
                self.at += 1;
                self.class_char()?
            } else {
                first
            };
            if last < first {
                return Err(format!("the range {first:?} to {last:?} is empty"));
            }
            ranges.push((first, last));
        }
        if ranges.is_empty() && !negated {
            return Err("a class of characters is empty".to_owned());
        }
        Ok(Expr::Class { negated, ranges })
    }

    fn class_char(&mut self) -> Result<char, String> {
        match self.next()? {
            '\\' => self.escape(),
            '\n' => Err("a class of characters is not closed".to_owned()),
            c => Ok(c),
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        let digits = match self.next()? {
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            'b' => return Ok('\u{8}'),
            'f' => return Ok('\u{c}'),
            'v' => return Ok('\u{b}'),
            'a' => return Ok('\u{7}'),
            'e' => return Ok('\u{1b}'),
            '0' => return Ok('\0'),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            c if c.is_alphanumeric() => return Err(format!("the escape \\{c} is not known")),
            c => return Ok(c),
        };
        let code = self.rest().get(..digits).unwrap_or_default();
        let c = u32::from_str_radix(code, 16).ok().and_then(char::from_u32);
        let c = c.ok_or_else(|| format!("{code:?} is not the code of a character"))?;
        self.at += digits;
        Ok(c)
    }
}

/// Whether nothing was written: xgrammar refuses that but for `()`.
fn is_empty(body: &Expr) -> bool {
    matches!(body, Expr::Sequence(parts) if parts.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_line() {
        let error = |grammar: &str| rules(grammar).unwrap_err();
        assert_eq!(error("root ::= \"a\"\nb ::= c"), "line 2: rule \"c\" is not defined");
        assert_eq!(error("b ::= \"a\""), "line 1: there is no rule \"root\"");
        assert_eq!(error("root ::= \"a"), "line 1: the grammar ends too early");
        assert_eq!(error("root ::= TagDispatch(a)"), "line 1: the macro \"TagDispatch\" is not known");
        assert_eq!(error("root ::= (=\"a\")"), "line 1: lookaheads are not known");
        assert_eq!(error("root ::= \"\\q\""), "line 1: the escape \\q is not known");
        assert_eq!(error("root ::= \"a\"{3,2}"), "line 1: a repetition of at least 3 has a smaller limit");
        for braces in ["{}", "{ }", "{,}"] {
            assert_eq!(error(&format!("root ::= \"a\"{braces}")), "line 1: a repetition in braces has no number");
        }
        for alternative in ["\"a\" || \"b\"", "| \"a\"", "\"a\" |", "(\"a\" |) \"b\""] {
            assert!(error(&format!("root ::= {alternative}")).contains("an alternative is empty"), "{alternative}");
        }
        assert_eq!(error("root ::= x\nx ::="), "line 2: rule \"x\" is empty; write an empty text as \"\"");
        assert!(rules("root ::= () | \"\"").is_ok());
        assert!(error(&format!("root ::= {}", "(".repeat(100_000))).contains("nested"));
        assert_eq!(error("root ::= \"a\"\nroot ::= \"b\""), "line 2: rule \"root\" is defined twice");
    }

    #[test]
    fn a_rule_goes_on_over_lines_until_the_next_one() {
        let rules = rules("# first\nroot ::= a |\n  \"x\" # last\na ::= [^\"\\\\\\x41-\\u0043]").unwrap();
        let root = Expr::Choice(vec![Expr::Rule(rules.rules.len() - 2), Expr::Text("x".to_owned())]);
        assert_eq!(rules.rules.len(), 2);
        let class = Expr::Class { negated: true, ranges: vec![('"', '"'), ('\\', '\\'), ('A', 'C')] };
        assert!(rules.rules.contains(&class));
        assert!(
            matches!((&rules.rules[rules.root], root), (Expr::Choice(left), Expr::Choice(right)) if left[1] == right[1])
        );
    }
}
