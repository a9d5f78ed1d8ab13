//! Arguments and results of system calls.

use super::Parsed;
use super::scanner::{Meaning, Scanner};
use crate::script::Expression;

/// Expressions up to the closing mark, which is taken.
pub(super) fn list(scanner: &mut Scanner<'_>, close: char) -> Parsed<Vec<Expression>> {
    let mut expressions = Vec::new();
    scanner.skip_space()?;
    if scanner.peek() == Some(close) {
        scanner.advance(1);
        return Ok(expressions);
    }
    loop {
        expressions.push(expression(scanner)?);
        scanner.skip_space()?;
        match scanner.peek() {
            Some(',') => scanner.advance(1),
            Some(found) if found == close => {
                scanner.advance(1);
                return Ok(expressions);
            }
            _ => return Err(scanner.error(format!("expected `,` or `{close}`"))),
        }
    }
}

pub(super) fn expression(scanner: &mut Scanner<'_>) -> Parsed<Expression> {
    let left = term(scanner)?;
    scanner.skip_space()?;
    if scanner.peek() == Some('|') {
        scanner.advance(1);
        let right = expression(scanner)?;
        return Ok(match left {
            // `events = A | B` names the whole of it.
            Expression::Assign(name, value) => {
                Expression::Assign(name, Box::new(Expression::Or(value, Box::new(right))))
            }
            left => Expression::Or(Box::new(left), Box::new(right)),
        });
    }
    Ok(left)
}

fn term(scanner: &mut Scanner<'_>) -> Parsed<Expression> {
    scanner.skip_space()?;
    if scanner.accept("...") {
        return Ok(Expression::Ellipsis);
    }
    match scanner.peek() {
        Some('[') => {
            scanner.advance(1);
            Ok(Expression::List(list(scanner, ']')?))
        }
        Some('{') => {
            scanner.advance(1);
            Ok(Expression::Braces(list(scanner, '}')?))
        }
        Some('"') => text(scanner),
        Some(c) if c.is_ascii_digit() || c == '-' => Ok(Expression::Integer(scanner.integer()?)),
        Some(c) if c.is_ascii_alphabetic() || c == '_' => word(scanner),
        _ => Err(scanner.error("expected an expression")),
    }
}

/// A constant, a function, or a name with its value.
fn word(scanner: &mut Scanner<'_>) -> Parsed<Expression> {
    let name = scanner.raw_word();
    match scanner.meaning(&name) {
        Some(Meaning::Integer(value)) => return Ok(Expression::Integer(*value)),
        Some(Meaning::Text(text)) => return Ok(Expression::Text(unescape(text))),
        Some(Meaning::Word(word)) => return Ok(Expression::Word(word.clone())),
        None => {}
    }
    scanner.skip_space()?;
    let mut arguments = None;
    if scanner.peek() == Some('(') {
        scanner.advance(1);
        arguments = Some(list(scanner, ')')?);
        scanner.skip_space()?;
    }
    if scanner.peek() == Some('=') {
        scanner.advance(1);
        return Ok(Expression::Assign(name, Box::new(expression(scanner)?)));
    }
    Ok(match arguments {
        Some(arguments) => Expression::Function(name, arguments),
        None => Expression::Word(name),
    })
}

/// One string, or several that make one.
fn text(scanner: &mut Scanner<'_>) -> Parsed<Expression> {
    let mut bytes = Vec::new();
    while scanner.peek() == Some('"') {
        bytes.extend(unescape(&scanner.quoted('"')?));
        scanner.skip_space()?;
    }
    // `"abc"...` is a string of which only the beginning matters.
    scanner.accept("...");
    Ok(Expression::Text(bytes))
}

/// C's escapes.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'\\' {
            bytes.push(first);
            continue;
        }
        let Some((&escape, tail)) = rest.split_first() else { break };
        rest = tail;
        match escape {
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'r' => bytes.push(b'\r'),
            b'x' => {
                let digits = rest.iter().take(2).take_while(|b| b.is_ascii_hexdigit()).count();
                bytes.push(radix(&rest[..digits], 16));
                rest = &rest[digits..];
            }
            b'0'..=b'7' => {
                let more = rest.iter().take(2).take_while(|b| (b'0'..=b'7').contains(b)).count();
                let mut digits = vec![escape];
                digits.extend_from_slice(&rest[..more]);
                bytes.push(radix(&digits, 8));
                rest = &rest[more..];
            }
            other => bytes.push(other),
        }
    }
    bytes
}

fn radix(digits: &[u8], radix: u32) -> u8 {
    let digit = |byte: &u8| char::from(*byte).to_digit(radix).unwrap_or(0);
    digits.iter().fold(0, |value: u32, byte| value * radix + digit(byte)) as u8
}
