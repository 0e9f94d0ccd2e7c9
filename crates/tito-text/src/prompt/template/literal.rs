//! String literals of templates, with the escapes that Python knows.

use super::tokens::{Token, TokenKind};

fn decode(text: &str) -> Option<String> {
    let mut decoded = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            decoded.push(c);
            continue;
        }
        let escape = rest.next()?;
        let code = match escape {
            '\n' => continue,
            '\\' | '\'' | '"' => u32::from(escape),
            'a' => 0x07,
            'b' => 0x08,
            'f' => 0x0c,
            'n' => 0x0a,
            'r' => 0x0d,
            't' => 0x09,
            'v' => 0x0b,
            'x' => take_digits(&mut rest, 16, 2, 2)?,
            'u' => take_digits(&mut rest, 16, 4, 4)?,
            'U' => take_digits(&mut rest, 16, 8, 8)?,
            '0'..='7' => {
                let first = escape.to_digit(8)?;
                let mut octal = first;
                for _ in 0..2 {
                    let Some(digit) = rest.clone().next().and_then(|next| next.to_digit(8)) else { break };
                    rest.next();
                    octal = octal * 8 + digit;
                }
                octal
            }
            // A named character: Python knows the names of all, we of none.
            'N' => return None,
            _ => {
                decoded.extend(['\\', escape]);
                continue;
            }
        };
        decoded.push(char::from_u32(code)?);
    }
    Some(decoded)
}

fn take_digits(rest: &mut std::str::Chars<'_>, radix: u32, least: usize, most: usize) -> Option<u32> {
    let mut code = 0_u32;
    for taken in 0..most {
        let Some(digit) = rest.clone().next().and_then(|next| next.to_digit(radix)) else {
            return (taken >= least).then_some(code);
        };
        rest.next();
        code = code.checked_mul(radix)?.checked_add(digit)?;
    }
    Some(code)
}

/// Returns the text of a string literal; none if the token is none, or its text has no UTF-8 form.
pub(super) fn text(token: &Token<'_>) -> Option<String> {
    if token.kind == TokenKind::String { decode(&token.text[1..token.text.len() - 1]) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_as_python_does() {
        assert_eq!(decode(r"\/\a\x41\u00e9\101\'\U0001F600\8").as_deref(), Some("\\/\u{7}AéA'😀\\8"));
        assert_eq!(decode("a\\\nb\\n\"").as_deref(), Some("ab\n\""));
    }

    #[test]
    fn what_has_no_text_is_refused() {
        for escape in [r"\ud83d", r"\N{BULLET}", r"\x4", r"\u12"] {
            assert_eq!(decode(escape), None, "{escape}");
        }
    }
}
