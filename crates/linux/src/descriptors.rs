//! How many descriptors this process may have open (RLIMIT_NOFILE).
//!
//! A shell usually begins with 1,024, for programs that know no larger numbers (select(2)), where the system
//! grants a process many more that asks for them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many it may have at most, with [`raise`].
#[must_use]
pub fn most() -> usize {
    let most = getrlimit(Resource::Nofile).maximum;
    most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX))
}

/// Lets it have as many as it may at most. Programs that it starts begin with as many.
pub fn raise() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Everybody may; a system that refuses leaves what was there.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_raised_is_the_most() {
        let before = getrlimit(Resource::Nofile);
        let lowered = Rlimit { current: Some(256), ..before };
        setrlimit(Resource::Nofile, lowered).expect("everybody may lower it");
        raise();
        let current = getrlimit(Resource::Nofile).current;
        assert_eq!(current, before.maximum);
        assert_eq!(current.map_or(usize::MAX, |it| it as usize), most());
    }
}
