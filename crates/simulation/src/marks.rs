//! Urgent marks in a stream (RFC 9293, 3.8.5; RFC 6093), as both of its ends know them.
//!
//! A mark is named by its end, the position behind the last urgent byte. The writer notes what it
//! marked; the reader notes where its stack said that a mark is, and where it stood before a last
//! urgent byte. Only one mark exists at a time, so an earlier one may never be seen. The last one must
//! be: no byte of it was sent before it was marked, and every segment before its end says where it is.

use crate::random::scatter;

/// A pointer that cannot reach its mark points towards it (RFC 9293, MUST-31).
const POINTER_MAX: u64 = 65_535;

/// What one end of a connection knows of marks, of its own stream and of the peer's.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// Ends of what this end sent as urgent, in order.
    sent: Vec<u64>,
    /// Where marks were said to end, in order.
    seen: Vec<u64>,
    /// The end of the mark before whose last byte a read began.
    stood_at: Option<u64>,
    /// The stack said that something urgent was announced, and it was not looked at yet.
    told: bool,
}

impl Marks {
    /// Whether the write at `offset` of the stream `name` is urgent, where `share` of them are.
    #[must_use]
    pub fn wants(share: f64, name: u64, offset: u64) -> bool {
        let unit = (scatter(name ^ scatter(offset)) >> 11) as f64 / (1_u64 << 53) as f64;
        unit < share
    }

    /// The stream was marked up to `end`.
    pub fn on_sent(&mut self, end: u64) {
        self.sent.push(end);
    }

    /// The stack announced a mark, or may have done so before anybody could hear of it.
    pub fn on_told(&mut self) {
        self.told = true;
    }

    /// The stack says that `before` bytes can be read from `position` on before the last urgent one.
    ///
    /// # Errors
    /// What is wrong with that.
    pub fn on_seen(&mut self, position: u64, before: u64) -> Result<(), &'static str> {
        let end = position + before + 1;
        if before == 0 {
            self.stood_at = Some(end);
        }
        match self.seen.last() {
            Some(last) if *last == end => return Ok(()),
            Some(last) if *last > end => return Err("an urgent mark went back"),
            _ => self.seen.push(end),
        }
        // RFC 9293, MUST-32: the application is informed when the mark advances.
        match core::mem::take(&mut self.told) {
            true => Ok(()),
            false => Err("an urgent mark moved and nobody was told"),
        }
    }

    /// How many marks this end read up to, one after the other.
    #[must_use]
    pub fn seen_count(&self) -> usize {
        self.seen.len()
    }

    /// Whether the marks that were seen are those of the writer; with `is_whole`, also whether the
    /// last of a stream that was read to its end was seen at its place.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn check(&self, writer: &Self, is_whole: bool) -> Result<(), String> {
        let last = writer.sent.last().copied();
        let is_on_the_way = |end: u64| end >= POINTER_MAX && last.is_some_and(|last| end < last);
        for end in &self.seen {
            if writer.sent.binary_search(end).is_err() && !is_on_the_way(*end) {
                return Err(format!("a mark at {end}; the peer set {:?}", writer.sent));
            }
        }
        match is_whole && last.is_some() && self.stood_at != last {
            true => Err(format!("the last mark is at {last:?}, seen was {:?}", self.stood_at)),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(ends: &[u64]) -> Marks {
        Marks { sent: ends.to_vec(), ..Marks::default() }
    }

    fn reader(seen: &[(u64, u64)]) -> Result<Marks, &'static str> {
        let mut reader = Marks::default();
        for (position, before) in seen {
            reader.on_told();
            reader.on_seen(*position, *before)?;
        }
        Ok(reader)
    }

    #[test]
    fn marks_are_the_writers_and_the_last_is_stood_at() {
        let seen = reader(&[(0, 99), (0, 499), (499, 0)]).expect("forward");
        assert_eq!(seen.check(&writer(&[100, 300, 500]), true), Ok(()));
        assert!(seen.check(&writer(&[100, 300, 501]), false).is_err(), "not where it was set");
        assert!(seen.check(&writer(&[100, 500, 700]), true).is_err(), "the last was not seen");
        assert_eq!(seen.check(&writer(&[100, 500, 700]), false), Ok(()));
        let far = reader(&[(0, 65_534), (0, 99_999), (99_999, 0)]).expect("forward");
        assert_eq!(far.check(&writer(&[100_000]), true), Ok(()));
        let passed = reader(&[(0, 499)]).expect("forward");
        assert!(passed.check(&writer(&[500]), true).is_err(), "read across");
    }

    #[test]
    fn marks_that_go_back_or_come_unannounced_show() {
        assert!(reader(&[(0, 99), (0, 49)]).is_err());
        let mut unannounced = Marks::default();
        assert!(unannounced.on_seen(0, 5).is_err());
        assert!(!Marks::wants(0.0, 1, 2) && Marks::wants(1.0, 1, 2));
    }
}
