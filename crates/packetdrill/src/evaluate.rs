//! What expressions are worth.

use crate::errnos::ERRNOS;
use crate::script::Expression;
use crate::symbols::SYMBOLS;

/// The value of a constant.
pub(crate) fn symbol(name: &str) -> Option<i64> {
    if name == "NULL" {
        return Some(0);
    }
    let found = SYMBOLS.binary_search_by(|(known, _)| known.cmp(&name)).ok();
    found.map(|index| SYMBOLS[index].1).or_else(|| errno(name).map(i64::from))
}

/// The number of an error.
pub(crate) fn errno(name: &str) -> Option<i32> {
    let found = ERRNOS.binary_search_by(|(known, _)| known.cmp(&name)).ok();
    found.map(|index| ERRNOS[index].1)
}

/// An error as scripts name it.
pub(crate) fn errno_name(number: i32) -> String {
    let preferred = [(11, "EAGAIN"), (35, "EDEADLK"), (95, "EOPNOTSUPP")];
    let known = preferred.iter().find(|(value, _)| *value == number).map(|(_, name)| *name);
    let known = known.or_else(|| ERRNOS.iter().find(|(_, value)| *value == number).map(|e| e.0));
    known.map_or_else(|| format!("errno {number}"), str::to_owned)
}

/// The value of an expression that is a number.
pub(crate) fn integer(expression: &Expression) -> Result<i64, String> {
    match expression {
        Expression::Integer(value) => Ok(*value),
        Expression::Word(name) => symbol(name).ok_or_else(|| format!("{name} is not known")),
        Expression::Or(left, right) => Ok(integer(left)? | integer(right)?),
        Expression::Function(name, arguments) => match (name.as_str(), arguments.as_slice()) {
            ("htons", [value]) => Ok(integer(value)? & 0xffff),
            ("inet_addr", [Expression::Text(text)]) => {
                let text = String::from_utf8_lossy(text);
                let address: core::net::Ipv4Addr =
                    text.parse().map_err(|_| format!("{text:?} is no IPv4 address"))?;
                Ok(u32::from_ne_bytes(address.octets()).into())
            }
            _ => Err(format!("{name}() is not known")),
        },
        Expression::List(items) if items.len() == 1 => integer(&items[0]),
        other => Err(format!("expected a number, not {other:?}")),
    }
}

/// A number that fits 32 bits.
pub(crate) fn int32(expression: &Expression) -> Result<i32, String> {
    let value = integer(expression)?;
    i32::try_from(value)
        .or_else(|_| u32::try_from(value).map(u32::cast_signed))
        .map_err(|_| format!("{value} does not fit 32 bits"))
}

/// The value named `name` in a structure.
pub(crate) fn member<'a>(structure: &'a [Expression], name: &str) -> Option<&'a Expression> {
    structure.iter().find_map(|item| match item {
        Expression::Assign(known, value) if known == name => Some(value.as_ref()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_sorted_so_that_every_name_is_found() {
        for (name, value) in SYMBOLS {
            assert_eq!(symbol(name), Some(*value), "{name}");
        }
        for (name, value) in ERRNOS {
            assert_eq!(errno(name), Some(*value), "{name}");
        }
        assert_eq!(errno_name(11), "EAGAIN");
    }
}
