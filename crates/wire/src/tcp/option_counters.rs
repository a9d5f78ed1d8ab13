//! What is odd about the options of segments that arrive. None of it is a reason to drop a segment
//! (RFC 9293, 3.2, MUST-6 and MUST-7: options are ignored, or skipped by their length), but a path
//! or peer that sends such things should show.

counters::counters! {
    /// Odd options, by what is odd about them. A segment counts for each.
    pub struct TcpOptionCounters {
        /// Options of a kind that this stack does not know; skipped.
        tcp_options_unknown,
        /// Options of a length that their kind cannot have; skipped.
        tcp_options_bad_length,
        /// Options that came a second time in a segment; the first stands.
        tcp_options_repeated,
        /// Options whose length is less than the two bytes that say so; they end the options.
        tcp_options_no_length,
        /// Options that reach beyond the header, or of which it holds the kind only; they end the
        /// options.
        tcp_options_truncated,
    }
}
