//! The text, a place in it, and the small pieces that are read everywhere.

use super::{ParseError, Parsed};
use std::collections::HashMap;

/// What a symbol defined with `--define` stands for.
#[derive(Clone, Debug)]
pub(super) enum Meaning {
    Integer(i64),
    Text(String),
    Word(String),
}

pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    symbols: HashMap<String, Meaning>,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, symbols: HashMap::new() }
    }

    pub(super) fn define(&mut self, symbol: &str, meaning: &str) {
        let quoted = |mark| meaning.strip_prefix(mark).and_then(|rest| rest.strip_suffix(mark));
        let meaning = match (quoted('"').or_else(|| quoted('`')), integer_of(meaning)) {
            (Some(text), _) => Meaning::Text(text.to_owned()),
            (None, Some(value)) => Meaning::Integer(value),
            (None, None) => Meaning::Word(meaning.to_owned()),
        };
        self.symbols.insert(symbol.to_owned(), meaning);
    }

    pub(super) fn meaning(&self, symbol: &str) -> Option<&Meaning> {
        self.symbols.get(symbol)
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at >= self.text.len()
    }

    pub(super) fn advance(&mut self, bytes: usize) {
        self.at += bytes;
    }

    pub(super) fn line(&self) -> usize {
        1 + self.text[..self.at].matches('\n').count()
    }

    pub(super) fn error(&self, message: impl Into<String>) -> ParseError {
        ParseError { line: self.line(), message: message.into() }
    }

    /// Skips white space and comments.
    pub(super) fn skip_space(&mut self) -> Parsed<()> {
        loop {
            let rest = self.rest();
            if rest.starts_with("//") || (self.at == 0 && rest.starts_with("#!")) {
                self.advance(rest.find('\n').unwrap_or(rest.len()));
            } else if rest.starts_with("/*") {
                let end = rest.find("*/").ok_or_else(|| self.error("a comment has no end"))?;
                self.advance(end + 2);
            } else if let Some(space) = self.peek().filter(|c| c.is_whitespace()) {
                self.advance(space.len_utf8());
            } else {
                return Ok(());
            }
        }
    }

    /// Takes `token` where it comes next.
    pub(super) fn accept(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.advance(token.len());
        }
        found
    }

    /// Takes a whole word where it comes next.
    pub(super) fn accept_word(&mut self, word: &str) -> bool {
        let is_next = self.rest().strip_prefix(word).is_some_and(|rest| {
            !rest.chars().next().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
        });
        if is_next {
            self.advance(word.len());
        }
        is_next
    }

    /// Skips space, takes `token`, skips space.
    pub(super) fn expect(&mut self, token: &str) -> Parsed<()> {
        self.skip_space()?;
        if !self.accept(token) {
            let found: String = self.rest().chars().take(12).collect();
            return Err(self.error(format!("expected `{token}` before `{}`", found.trim_end())));
        }
        self.skip_space()
    }

    /// Letters, digits and underscores that come next; may be empty.
    pub(super) fn raw_word(&mut self) -> String {
        let rest = self.rest();
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        self.advance(len);
        rest[..len].to_owned()
    }

    /// A decimal or hexadecimal number, perhaps negative.
    pub(super) fn integer(&mut self) -> Parsed<i64> {
        self.skip_space()?;
        let rest = self.rest();
        let sign = usize::from(rest.starts_with('-'));
        let digits = &rest[sign..];
        let is_digit = |c: char| c.is_ascii_hexdigit() || c == 'x';
        let all = digits.find(|c| !is_digit(c)).unwrap_or(digits.len());
        let len = match digits.starts_with("0x") {
            true => all,
            false => digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len()),
        };
        let value = integer_of(&rest[..sign + len]);
        let value = value.ok_or_else(|| self.error("expected a number"))?;
        self.advance(sign + len);
        Ok(value)
    }

    /// A number that fits `T`.
    pub(super) fn number<T: TryFrom<i64>>(&mut self, name: &str) -> Parsed<T> {
        self.skip_space()?;
        let word: String =
            self.rest().chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let value = match self.meaning(&word) {
            Some(Meaning::Integer(value)) => {
                let value = *value;
                self.advance(word.len());
                value
            }
            _ => self.integer()?,
        };
        T::try_from(value).map_err(|_| self.error(format!("{name} is out of range: {value}")))
    }

    /// Seconds with a fraction, as microseconds.
    pub(super) fn time_us(&mut self) -> Parsed<u64> {
        let rest = self.rest();
        let whole = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let mut len = whole;
        let after = &rest[whole..];
        if let Some(fraction) = after.strip_prefix('.')
            && fraction.starts_with(|c: char| c.is_ascii_digit())
        {
            let digits = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
            len += 1 + digits;
        }
        if len == 0 {
            let found: String = rest.chars().take(12).collect();
            return Err(self.error(format!("expected a time before `{}`", found.trim_end())));
        }
        let seconds: f64 = rest[..len].parse().map_err(|_| self.error("expected a time"))?;
        self.advance(len);
        Ok((seconds * 1e6).round() as u64)
    }

    /// The text between two `mark`s, escapes left as they are.
    pub(super) fn quoted(&mut self, mark: char) -> Parsed<String> {
        let rest = self.rest();
        let mut escaped = false;
        for (index, character) in rest.char_indices().skip(1) {
            if character == mark && !escaped {
                self.advance(index + 1);
                return Ok(rest[1..index].to_owned());
            }
            escaped = character == '\\' && !escaped;
        }
        Err(self.error(format!("{mark} has no end")))
    }

    /// The text between `%{` and `}%`.
    pub(super) fn code(&mut self) -> Parsed<String> {
        let rest = self.rest();
        let body = rest.strip_prefix("%{").ok_or_else(|| self.error("expected %{"))?;
        let len = body.find("}%").ok_or_else(|| self.error("%{ has no end"))?;
        self.advance(2 + len + 2);
        Ok(body[..len].trim().to_owned())
    }

    pub(super) fn skip_past(&mut self, mark: char) -> Parsed<()> {
        let end = self.rest().find(mark).ok_or_else(|| self.error(format!("{mark} is missing")))?;
        self.advance(end + mark.len_utf8());
        Ok(())
    }
}

fn integer_of(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let value = match digits.strip_prefix("0x") {
        Some(hexadecimal) => i64::from_str_radix(hexadecimal, 16),
        None => digits.parse(),
    };
    value.ok().map(|value: i64| sign * value)
}
