//! Giving back the memory of slots: places in a vector that entries keep while they live, and the list of those
//! that are free.

/// Fewer slots than this are kept, used or not.
pub(crate) const KEPT_MIN: usize = 1_024;

/// Gives the empty slots at the end back once three quarters of all are free. Says how many slots are left, where
/// there are fewer now: what lies beside them can be shrunk, too.
pub(crate) fn shrink<T>(
    slots: &mut Vec<T>,
    free: &mut Vec<u32>,
    is_used: impl Fn(&T) -> bool,
) -> Option<usize> {
    let len = slots.len() - free.len();
    // Looking for the last one used walks over the slots: at every halving is often enough.
    let few = len <= slots.len() / 4 && (len & (len + 1)) == 0;
    if slots.len() < KEPT_MIN || !few {
        return None;
    }
    let used = slots.iter().rposition(is_used).map_or(0, |at| at + 1);
    if used > slots.len() / 2 {
        // One near the end keeps the slots; they are asked about again when half as many entries are left.
        return None;
    }
    slots.truncate(used);
    slots.shrink_to(KEPT_MIN);
    free.retain(|index| (*index as usize) < used);
    free.shrink_to(KEPT_MIN);
    Some(used)
}
