//! What the SACK blocks of one ACK say (RFC 2018), and what they say twice (RFC 2883).

use wire::SeqNumber;

/// The most blocks of one ACK that are looked at; more do not fit an option (RFC 2018, 3).
const BLOCKS_MAX: usize = 4;

/// A range: start, and one past the end.
pub(crate) type Block = (SeqNumber, SeqNumber);

/// The blocks of one ACK, sorted out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    blocks: [Option<Block>; BLOCKS_MAX],
    /// The range the receiver got twice.
    pub(crate) duplicate: Option<Block>,
    /// Blocks that are empty, reversed or outside what is outstanding.
    pub(crate) invalid_count: u32,
}

impl Report {
    /// Takes the blocks in the order they stand in the ACK. `una` is SND.UNA behind it, `seg_ack` its
    /// own number, which is older where it was overtaken; `nxt` ends what was ever sent.
    pub(crate) fn new(
        blocks: &[Block],
        seg_ack: SeqNumber,
        una: SeqNumber,
        nxt: SeqNumber,
    ) -> Self {
        let mut report = Self::default();
        let outstanding = nxt.offset_from(una);
        for (index, &(start, end)) in blocks.iter().take(BLOCKS_MAX).enumerate() {
            if !start.is_before(end) {
                report.invalid_count += 1;
            } else if index == 0 && is_duplicate((start, end), blocks.get(1).copied(), seg_ack) {
                report.duplicate = Some((start, end));
            } else if end.is_at_or_before(una) {
                // Told by an ACK that was overtaken.
            } else if !start.is_after(una) || end.offset_from(una) > outstanding {
                report.invalid_count += 1;
            } else {
                report.blocks[index] = Some((start, end));
            }
        }
        // In ascending order: what one ACK reports at once did not arrive in the order of the blocks.
        report.blocks.sort_unstable_by_key(|block| {
            block.map_or(u32::MAX, |(start, _)| start.offset_from(una))
        });
        report
    }

    /// The blocks that report something outstanding, in ascending order.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Block> + '_ {
        self.blocks.iter().copied().flatten()
    }
}

/// RFC 2883, 4: the first block reports a duplicate if it lies below the cumulative ACK or within
/// the second block.
fn is_duplicate((start, end): Block, second: Option<Block>, seg_ack: SeqNumber) -> bool {
    let within = |(outer_start, outer_end): Block| {
        outer_start.is_at_or_before(start) && end.is_at_or_before(outer_end)
    };
    end.is_at_or_before(seg_ack) || second.is_some_and(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(start: u32, end: u32) -> Block {
        (SeqNumber(start), SeqNumber(end))
    }

    fn report(blocks: &[Block], ack: u32) -> Report {
        Report::new(blocks, SeqNumber(ack), SeqNumber(1_000), SeqNumber(9_000))
    }

    // RFC 2883, 4: "the first block ... (1) below the cumulative ACK, (2) a subset of the second".
    #[test]
    fn duplicates_are_told_from_news() {
        let below = report(&[block(500, 900), block(3_000, 4_000)], 1_000);
        assert_eq!(below.duplicate, Some(block(500, 900)));
        assert_eq!(below.blocks().collect::<Vec<_>>(), [block(3_000, 4_000)]);
        let within = report(&[block(3_000, 3_500), block(3_000, 4_000)], 1_000);
        assert_eq!(within.duplicate, Some(block(3_000, 3_500)));
        let news = report(&[block(3_000, 4_000), block(2_000, 2_500)], 1_000);
        assert_eq!(news.duplicate, None);
        let ascending: Vec<_> = news.blocks().collect();
        assert_eq!(ascending, [block(2_000, 2_500), block(3_000, 4_000)]);
    }

    #[test]
    fn what_was_never_sent_or_is_reversed_is_refused() {
        let hostile =
            [block(8_000, 9_001), block(4_000, 3_000), block(5_000, 5_000), block(1_000, 2_000)];
        let report = report(&hostile, 1_000);
        assert_eq!((report.invalid_count, report.blocks().count()), (4, 0));
    }

    #[test]
    fn an_overtaken_ack_does_no_harm() {
        let report = report(&[block(800, 950), block(3_000, 4_000)], 700);
        assert_eq!((report.invalid_count, report.duplicate), (0, None));
        assert_eq!(report.blocks().count(), 1);
    }
}
