//! Code blocks: assertions over `struct tcp_info`.
//!
//! What packetdrill hands to Python is here a small language of the same look: `assert`
//! statements and assignments, one a line or separated by semicolons, over integers, the fields of
//! `tcp_info` (`tcpi_state`, `tcpi_rtt`, ...), constants, comparisons, `and`, `or`, `not`,
//! arithmetic and bit operations, `abs`, `min` and `max`. `print` is passed over. Anything else of
//! Python is refused by name.

use crate::evaluate::symbol;
use std::collections::HashMap;

/// Fields of `tcp_info`: name, offset, bytes.
const FIELDS: &[(&str, usize, usize)] = &[
    ("tcpi_state", 0, 1),
    ("tcpi_ca_state", 1, 1),
    ("tcpi_retransmits", 2, 1),
    ("tcpi_probes", 3, 1),
    ("tcpi_backoff", 4, 1),
    ("tcpi_options", 5, 1),
    ("tcpi_rto", 8, 4),
    ("tcpi_ato", 12, 4),
    ("tcpi_snd_mss", 16, 4),
    ("tcpi_rcv_mss", 20, 4),
    ("tcpi_unacked", 24, 4),
    ("tcpi_sacked", 28, 4),
    ("tcpi_lost", 32, 4),
    ("tcpi_retrans", 36, 4),
    ("tcpi_fackets", 40, 4),
    ("tcpi_last_data_sent", 44, 4),
    ("tcpi_last_ack_sent", 48, 4),
    ("tcpi_last_data_recv", 52, 4),
    ("tcpi_last_ack_recv", 56, 4),
    ("tcpi_pmtu", 60, 4),
    ("tcpi_rcv_ssthresh", 64, 4),
    ("tcpi_rtt", 68, 4),
    ("tcpi_rttvar", 72, 4),
    ("tcpi_snd_ssthresh", 76, 4),
    ("tcpi_snd_cwnd", 80, 4),
    ("tcpi_advmss", 84, 4),
    ("tcpi_reordering", 88, 4),
    ("tcpi_rcv_rtt", 92, 4),
    ("tcpi_rcv_space", 96, 4),
    ("tcpi_total_retrans", 100, 4),
    ("tcpi_pacing_rate", 104, 8),
    ("tcpi_max_pacing_rate", 112, 8),
    ("tcpi_bytes_acked", 120, 8),
    ("tcpi_bytes_received", 128, 8),
    ("tcpi_segs_out", 136, 4),
    ("tcpi_segs_in", 140, 4),
    ("tcpi_notsent_bytes", 144, 4),
    ("tcpi_min_rtt", 148, 4),
    ("tcpi_data_segs_in", 152, 4),
    ("tcpi_data_segs_out", 156, 4),
    ("tcpi_delivery_rate", 160, 8),
    ("tcpi_busy_time", 168, 8),
    ("tcpi_rwnd_limited", 176, 8),
    ("tcpi_sndbuf_limited", 184, 8),
    ("tcpi_delivered", 192, 4),
    ("tcpi_delivered_ce", 196, 4),
    ("tcpi_bytes_sent", 200, 8),
    ("tcpi_bytes_retrans", 208, 8),
    ("tcpi_dsack_dups", 216, 4),
    ("tcpi_reord_seen", 220, 4),
    ("tcpi_rcv_ooopack", 224, 4),
    ("tcpi_snd_wnd", 228, 4),
    ("tcpi_rcv_wnd", 232, 4),
    ("tcpi_rehash", 236, 4),
    ("tcpi_total_rto", 240, 2),
    ("tcpi_total_rto_recoveries", 242, 2),
    ("tcpi_total_rto_time", 244, 4),
];

/// Names assigned to, which live from one block to the next.
pub(crate) type Variables = HashMap<String, i64>;

/// Runs a block.
pub(crate) fn run(code: &str, info: &[u8], variables: &mut Variables) -> Result<(), String> {
    let code = code.replace("\\\n", " ");
    let code = code.trim_end().trim_end_matches('\\');
    for statement in code.split(['\n', ';']) {
        let statement = statement.split('#').next().unwrap_or("").trim();
        if statement.is_empty() || statement.starts_with("print") {
            continue;
        }
        if let Some(rest) = statement.strip_prefix("assert") {
            let mut parser = Parser::new(rest, info, variables)?;
            let value = parser.any()?;
            // A message may follow, behind a comma.
            if !matches!(parser.peek(), None | Some(",")) {
                return Err(format!("{statement}: what follows is not understood"));
            }
            if value == 0 {
                return Err(format!("{statement}: does not hold{}", explain(rest, info)));
            }
        } else if let Some((name, expression)) = statement.split_once('=')
            && name.trim().chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !expression.starts_with('=')
        {
            let value = Parser::new(expression, info, variables)?.any()?;
            variables.insert(name.trim().to_owned(), value);
        } else {
            return Err(format!("{statement}: only assertions and assignments are understood"));
        }
    }
    Ok(())
}

/// The values of the fields that a statement names.
fn explain(statement: &str, info: &[u8]) -> String {
    let named = FIELDS.iter().filter(|(name, ..)| {
        statement.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|w| w == *name)
    });
    named.map(|(name, ..)| format!("; {name} is {}", read(name, info).unwrap_or(0))).collect()
}

fn read(name: &str, info: &[u8]) -> Option<i64> {
    match name {
        "tcpi_snd_wscale" => return info.get(6).map(|byte| i64::from(byte & 15)),
        "tcpi_rcv_wscale" => return info.get(6).map(|byte| i64::from(byte >> 4)),
        "tcpi_delivery_rate_app_limited" => return info.get(7).map(|byte| i64::from(byte & 1)),
        "tcpi_fastopen_client_fail" => return info.get(7).map(|byte| i64::from(byte >> 1 & 3)),
        _ => {}
    }
    let (_, offset, len) = FIELDS.iter().find(|(known, ..)| *known == name)?;
    let bytes = info.get(*offset..offset + len)?;
    Some(bytes.iter().rev().fold(0, |value: i64, byte| value << 8 | i64::from(*byte)))
}

struct Parser<'a> {
    tokens: Vec<String>,
    at: usize,
    info: &'a [u8],
    variables: &'a Variables,
}

impl<'a> Parser<'a> {
    fn new(text: &str, info: &'a [u8], variables: &'a Variables) -> Result<Self, String> {
        Ok(Self { tokens: tokens(text)?, at: 0, info, variables })
    }

    fn peek(&self) -> Option<&str> {
        self.tokens.get(self.at).map(String::as_str)
    }

    fn accept(&mut self, token: &str) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    fn any(&mut self) -> Result<i64, String> {
        let mut value = self.all()?;
        while self.accept("or") {
            let right = self.all()?;
            value = i64::from(value != 0 || right != 0);
        }
        Ok(value)
    }

    fn all(&mut self) -> Result<i64, String> {
        let mut value = self.not()?;
        while self.accept("and") {
            let right = self.not()?;
            value = i64::from(value != 0 && right != 0);
        }
        Ok(value)
    }

    fn not(&mut self) -> Result<i64, String> {
        if self.accept("not") {
            return Ok(i64::from(self.not()? == 0));
        }
        self.comparison()
    }

    /// Comparisons chain as in Python: `1 < a < 3`.
    fn comparison(&mut self) -> Result<i64, String> {
        let mut left = self.binary(0)?;
        let mut holds = None;
        while let Some(operator @ ("==" | "!=" | "<" | ">" | "<=" | ">=")) = self.peek() {
            let operator = operator.to_owned();
            self.at += 1;
            let right = self.binary(0)?;
            let is_true = match operator.as_str() {
                "==" => left == right,
                "!=" => left != right,
                "<" => left < right,
                ">" => left > right,
                "<=" => left <= right,
                _ => left >= right,
            };
            holds = Some(holds.unwrap_or(true) && is_true);
            left = right;
        }
        Ok(holds.map_or(left, i64::from))
    }

    /// Operators by rank: `|`, `^`, `&`, shifts, sums, products.
    fn binary(&mut self, rank: usize) -> Result<i64, String> {
        const RANKS: [&[&str]; 6] =
            [&["|"], &["^"], &["&"], &["<<", ">>"], &["+", "-"], &["*", "/", "//", "%"]];
        let Some(operators) = RANKS.get(rank) else { return self.unary() };
        let mut left = self.binary(rank + 1)?;
        while let Some(operator) = self.peek().filter(|token| operators.contains(token)) {
            let operator = operator.to_owned();
            self.at += 1;
            let right = self.binary(rank + 1)?;
            let result = match operator.as_str() {
                "|" => Some(left | right),
                "^" => Some(left ^ right),
                "&" => Some(left & right),
                "<<" => u32::try_from(right).ok().and_then(|right| left.checked_shl(right)),
                ">>" => u32::try_from(right).ok().and_then(|right| left.checked_shr(right)),
                "+" => left.checked_add(right),
                "-" => left.checked_sub(right),
                "*" => left.checked_mul(right),
                "%" => left.checked_rem(right),
                _ => left.checked_div(right),
            };
            left = result.ok_or("arithmetic overflows")?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<i64, String> {
        if self.accept("-") {
            return Ok(-self.unary()?);
        }
        if self.accept("(") {
            let value = self.any()?;
            return match self.accept(")") {
                true => Ok(value),
                false => Err(") is missing".to_owned()),
            };
        }
        let token = self.peek().ok_or("an expression ends too early")?.to_owned();
        self.at += 1;
        if let Some(digits) = token.strip_prefix("0x") {
            return i64::from_str_radix(digits, 16).map_err(|_| format!("{token} is no number"));
        }
        if token.starts_with(|c: char| c.is_ascii_digit()) {
            return token.parse().map_err(|_| format!("{token} is no number"));
        }
        if matches!(token.as_str(), "abs" | "min" | "max") && self.accept("(") {
            return self.function(&token);
        }
        let value = match token.as_str() {
            "True" => Some(1),
            "False" => Some(0),
            name => read(name, self.info).or_else(|| self.variables.get(name).copied()),
        };
        value.or_else(|| symbol(&token)).ok_or_else(|| format!("{token} is not known"))
    }

    fn function(&mut self, name: &str) -> Result<i64, String> {
        let mut value = self.any()?;
        while self.accept(",") {
            let next = self.any()?;
            value = if name == "min" { value.min(next) } else { value.max(next) };
        }
        match (self.accept(")"), name) {
            (false, _) => Err(") is missing".to_owned()),
            (true, "abs") => Ok(value.abs()),
            (true, _) => Ok(value),
        }
    }
}

fn tokens(text: &str) -> Result<Vec<String>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let two = rest.get(..2).unwrap_or("");
        let len = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if first == '"' || first == '\'' {
            rest[1..].find(first).map_or(rest.len(), |at| at + 2)
        } else if matches!(two, "==" | "!=" | "<=" | ">=" | "<<" | ">>" | "//") {
            2
        } else if "<>+-*/%|&^(),".contains(first) {
            1
        } else {
            return Err(format!("{first:?} is not understood"));
        };
        tokens.push(rest[..len].to_owned());
        rest = rest[len..].trim_start();
    }
    Ok(tokens)
}
