//! How long what was sent may wait for its acknowledgment (RFC 9293, 3.8.3; RFC 5482).
//!
//! The local value ends a connection whose data, SYN or keepalive probe has waited that long. With the
//! option, both ends tell each other their values in their SYNs, and each takes the longer one, within
//! limits: a peer can make us wait longer than we would, but not shorter and not for ever.

use crate::config::Config;
use time::Duration;
use wire::TcpUserTimeout;

/// L_LIMIT (RFC 5482, 3.1): what a peer announces below it counts as this. RFC 9293, 3.8.3: R2 is at
/// least 100 s.
const LIMIT_MIN: Duration = Duration::from_secs(100);

/// U_LIMIT.
const LIMIT_MAX: Duration = Duration::from_secs(3_600);

/// The timeout where the application set none (RFC 9293, 3.10.1).
const DEFAULT: Duration = Duration::from_secs(300);

/// The option in the SYN, where the connection is to exchange it.
pub(crate) fn announced(config: &Config) -> Option<TcpUserTimeout> {
    let seconds = || config.user_timeout.unwrap_or(DEFAULT).as_nanos().div_ceil(1_000_000_000);
    config
        .user_timeout_option
        .then(|| TcpUserTimeout::from_seconds(u64::try_from(seconds()).unwrap_or(u64::MAX)))
}

/// What the peer's option makes of our timeout: USER_TIMEOUT = min(U_LIMIT, max(ADV_UTO, REMOTE_UTO,
/// L_LIMIT)). `None` where it changes nothing: without the option on our side, with zero seconds (RFC
/// 5482, 3.1: ignored), or where the application set a value itself (CHANGEABLE is false then).
pub(crate) fn agreed(config: &Config, theirs: Option<TcpUserTimeout>) -> Option<Duration> {
    let theirs = theirs.filter(|theirs| theirs.seconds() > 0)?;
    let changeable = config.user_timeout_option && config.user_timeout.is_none();
    let remote = Duration::from_secs(theirs.seconds());
    changeable.then(|| DEFAULT.max(remote).max(LIMIT_MIN).min(LIMIT_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 5482, 3.1.
    #[test]
    fn the_longer_of_both_counts_within_limits() {
        let config = Config { user_timeout_option: true, ..Config::default() };
        let agree = |seconds| agreed(&config, Some(TcpUserTimeout::from_seconds(seconds)));
        assert_eq!(agree(0), None);
        assert_eq!(agree(10), Some(DEFAULT), "not shorter than ours");
        assert_eq!(agree(1_000), Some(Duration::from_secs(1_000)));
        assert_eq!(agree(1_000_000), Some(LIMIT_MAX), "not for ever");
        assert_eq!(announced(&config).map(TcpUserTimeout::seconds), Some(300));
        let own = Config { user_timeout: Some(Duration::from_millis(7_500)), ..config };
        assert_eq!(agreed(&own, Some(TcpUserTimeout::from_seconds(1_000))), None);
        assert_eq!(announced(&own).map(TcpUserTimeout::seconds), Some(8));
        assert_eq!(announced(&Config::default()), None);
        assert_eq!(agreed(&Config::default(), Some(TcpUserTimeout(9))), None);
    }
}
