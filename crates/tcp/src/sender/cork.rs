//! What TCP_CORK and MSG_MORE hold back.

/// Whether segments that are not full wait for more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cork {
    #[default]
    Out,
    /// They do.
    In,
    /// They do while something is in flight: see [`Connection::ease_cork`](crate::Connection::ease_cork).
    Eased,
}

impl Cork {
    #[inline]
    pub(crate) fn on_append(&mut self) {
        if *self == Self::Eased {
            *self = Self::In;
        }
    }

    #[inline]
    pub(crate) fn holds_back(self, in_flight: bool) -> bool {
        match self {
            Self::Out => false,
            Self::In => true,
            Self::Eased => in_flight,
        }
    }
}
