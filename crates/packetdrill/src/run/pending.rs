//! A system call that blocks while the script goes on.

use super::{Due, Runner};
use crate::script::Call;

/// The call, and when it must return.
pub(super) struct Pending {
    pub(super) call: Call,
    pub(super) ends: Due,
    pub(super) line: usize,
    /// When it began: the tolerance of its end grows with its length.
    pub(super) began_us: u64,
}

/// How long beyond its time a call that blocks is waited for.
const PATIENCE_US: u64 = 1_000_000;

impl Runner<'_> {
    /// Begins a call that blocks; one under way must end first.
    pub(super) fn begin_call(&mut self, call: &Call, due: Due, end_us: u64) -> Result<(), String> {
        self.finish_pending(None)?;
        let live = self.prepare(call)?;
        let began_us = self.backend.now_us();
        self.backend.begin(live);
        let ends = Due { first_us: end_us, last_us: end_us, ..due };
        self.pending = Some(Pending { call: call.clone(), ends, line: self.line, began_us });
        self.check_pending()
    }

    /// Looks whether the call under way has returned, and what.
    pub(super) fn check_pending(&mut self) -> Result<(), String> {
        if self.pending.is_none() {
            return Ok(());
        }
        let Some((at_us, returned)) = self.backend.finished() else { return Ok(()) };
        let Some(pending) = self.pending.take() else { return Ok(()) };
        let last = self.last.replace((pending.began_us, false));
        let timely = self.check_time("the return of the call", pending.ends, at_us);
        self.last = last;
        let result = timely.and_then(|()| self.check_return(&pending.call, returned));
        result.map_err(|why| format!("{}() of line {}: {why}", pending.call.name, pending.line))
    }

    /// Waits for the call under way, for its time and a little more.
    pub(super) fn finish_pending(&mut self, limit_us: Option<u64>) -> Result<(), String> {
        self.check_pending()?;
        let Some(pending) = &self.pending else { return Ok(()) };
        let (line, name) = (pending.line, pending.call.name.clone());
        let limit_us =
            limit_us.unwrap_or(pending.ends.last_us.max(self.backend.now_us()) + PATIENCE_US);
        // In small steps, so that the call is seen to return when it does.
        while self.pending.is_some() {
            let now_us = self.backend.now_us();
            if now_us >= limit_us {
                return Err(format!("{name}() of line {line} did not return"));
            }
            self.backend.wait_until((now_us + 1_000).min(limit_us));
            self.check_pending()?;
        }
        Ok(())
    }
}
