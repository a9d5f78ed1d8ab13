//! Text to [`Script`]: a recursive descent without a separate lexer, because what a character
//! means depends on where it stands (`1:1001` is a sequence range, `1::1` an address).
//!
//! The language is packetdrill's. Left out, with an error that says so: encapsulation (`ipv4 >
//! ... :`, `gre`, `mpls`, `psp`).

mod expression;
mod packet;
mod scanner;

use crate::script::{Action, Call, Event, Script, When};
use scanner::Scanner;

/// What is wrong with a script, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Line, from 1.
    pub line: usize,
    /// A sentence.
    pub message: String,
}

type Parsed<T> = Result<T, ParseError>;

/// Reads a script.
///
/// # Errors
/// The first thing that is not of the language.
pub fn parse(text: &str) -> Result<Script, ParseError> {
    let mut scanner = Scanner::new(text);
    let mut script = Script {
        not_on_linux: refusal(text, "linux:"),
        not_in_batches: refusal(text, "batches:"),
        ..Script::default()
    };
    scanner.skip_space()?;
    while scanner.accept("--") {
        let (name, value) = option(&mut scanner)?;
        if name == "define"
            && let Some((symbol, meaning)) = value.split_once('=')
        {
            scanner.define(symbol, meaning);
        }
        script.options.push((name, value));
        scanner.skip_space()?;
    }
    if scanner.peek() == Some('`') {
        script.init = Some(scanner.quoted('`')?);
        scanner.skip_space()?;
    }
    while !scanner.is_at_end() {
        if scanner.peek() == Some('`') {
            script.cleanup = Some(scanner.quoted('`')?);
            scanner.skip_space()?;
            if !scanner.is_at_end() {
                return Err(scanner.error("a command without a time must be the first or the last"));
            }
            break;
        }
        let event = event(&mut scanner)?;
        script.events.push(event);
        scanner.skip_space()?;
    }
    if script.events.is_empty() {
        return Err(scanner.error("the script has no events"));
    }
    Ok(script)
}

/// The reason of a line `// what: no (reason)`.
fn refusal(text: &str, what: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let comment = line.trim().strip_prefix("//")?.trim();
        let verdict = comment.strip_prefix(what)?.trim();
        let reason = verdict.strip_prefix("no")?.trim();
        Some(reason.trim_start_matches('(').trim_end_matches(')').to_owned())
    })
}

fn option(scanner: &mut Scanner<'_>) -> Parsed<(String, String)> {
    let name = scanner.raw_word();
    if name.is_empty() {
        return Err(scanner.error("an option has a name"));
    }
    let mut value = String::new();
    if scanner.accept("=") {
        loop {
            match scanner.peek() {
                Some('"') => {
                    let text = scanner.quoted('"')?;
                    // A definition keeps the quotes: they say of which kind the symbol is.
                    match value.contains('=') {
                        true => value.push_str(&format!("\"{text}\"")),
                        false => value.push_str(&text),
                    }
                }
                Some('`') => {
                    let text = scanner.quoted('`')?;
                    value.push_str(&format!("`{text}`"));
                }
                Some(other) if !other.is_whitespace() => {
                    value.push(other);
                    scanner.advance(other.len_utf8());
                }
                _ => break,
            }
        }
    }
    Ok((name, value))
}

fn event(scanner: &mut Scanner<'_>) -> Parsed<Event> {
    let line = scanner.line();
    let when = when(scanner)?;
    scanner.skip_space()?;
    let action = match scanner.peek() {
        Some('<' | '>') => {
            let packet = packet::packet(scanner);
            // What was looked for after the end of the line is missing in it.
            Action::Packet(packet.map_err(|error| ParseError { line, ..error })?)
        }
        Some('`') => Action::Command(scanner.quoted('`')?),
        Some('%') => Action::Code(scanner.code()?),
        _ => Action::Call(call(scanner)?),
    };
    let outbound = matches!(&action, Action::Packet(packet)
        if packet.direction == crate::script::Direction::Outbound);
    if !outbound && !matches!(when, When::Absolute(_) | When::Relative(_)) {
        return Err(ParseError {
            line,
            message: "only a packet that is sent may come at any time or in a range".to_owned(),
        });
    }
    Ok(Event { line, when, action })
}

fn when(scanner: &mut Scanner<'_>) -> Parsed<When> {
    if scanner.accept("*") {
        return Ok(When::Any);
    }
    let is_relative = scanner.accept("+");
    scanner.skip_space()?;
    let first = scanner.time_us()?;
    scanner.skip_space()?;
    if scanner.peek() == Some('~') {
        scanner.advance(1);
        scanner.skip_space()?;
        if is_relative && !scanner.accept("+") {
            return Err(scanner.error("a relative range is written +a~+b"));
        }
        let last = scanner.time_us()?;
        if last < first {
            return Err(scanner.error("the time range is backwards"));
        }
        return Ok(match is_relative {
            true => When::RelativeRange(first, last),
            false => When::AbsoluteRange(first, last),
        });
    }
    Ok(if is_relative { When::Relative(first) } else { When::Absolute(first) })
}

fn call(scanner: &mut Scanner<'_>) -> Parsed<Call> {
    let mut ends_us = None;
    if scanner.accept("...") {
        scanner.skip_space()?;
        ends_us = Some(scanner.time_us()?);
        scanner.skip_space()?;
    }
    let name = scanner.raw_word();
    if name.is_empty() {
        return Err(scanner.error("expected a packet, a system call, a command or code"));
    }
    scanner.expect("(")?;
    let arguments = expression::list(scanner, ')')?;
    scanner.expect("=")?;
    let result = expression::expression(scanner)?;
    scanner.skip_space()?;
    let mut errno = None;
    if scanner.peek().is_some_and(|c| c.is_ascii_alphabetic()) {
        errno = Some(scanner.raw_word());
        scanner.skip_space()?;
    }
    // A note in parentheses, `(Broken pipe)`, says for people what the number means.
    if scanner.peek() == Some('(') {
        scanner.skip_past(')')?;
    }
    Ok(Call { name, arguments, result, errno, ends_us })
}

#[cfg(test)]
mod tests;
