//! TCP Fast Open as programs and operators set it: the options of sockets, and Linux's sysctl beside them.

use crate::Errno;
use crate::abi::{
    TCP_FASTOPEN, TCP_FASTOPEN_CONNECT, TCP_FASTOPEN_KEY, TCP_FASTOPEN_NO_COOKIE,
    TFO_CLIENT_ENABLE, TFO_CLIENT_NO_COOKIE, TFO_SERVER_COOKIE_NOT_REQD, TFO_SERVER_ENABLE,
    TFO_SERVER_WO_SOCKOPT1,
};
use crate::call::Fd;
use crate::host::Host;
use crate::options::Options;
use crate::stream::{BACKLOG_MAX, Phase};
use stack::{FastOpenKeys, FastOpenOptions};

/// What was set on a socket.
#[derive(Clone, Debug, Default)]
pub(crate) struct FastOpen {
    /// TCP_FASTOPEN: connections that may begin with data at once.
    pub(crate) pending_max: i32,
    /// TCP_FASTOPEN_CONNECT: connect(2) waits for the first write.
    pub(crate) on_connect: bool,
    /// TCP_FASTOPEN_KEY
    keys: Option<FastOpenKeys>,
    /// TCP_FASTOPEN_NO_COOKIE, of clients and of listeners.
    no_cookie: bool,
}

impl Host {
    /// Whether sockets may ask for cookies, and send data with a SYN.
    pub(crate) fn opens_fast(&self) -> bool {
        self.config.fast_open & TFO_CLIENT_ENABLE != 0
    }

    /// Whether a socket's data goes with the SYN though there is no cookie.
    pub(crate) fn opens_without_cookie(&self, options: &Options) -> bool {
        options.fast_open.no_cookie || self.config.fast_open & TFO_CLIENT_NO_COOKIE != 0
    }

    /// How many pending connections a socket has that begins to listen, where it set no number.
    pub(crate) fn fast_open_default(&self, backlog: usize) -> i32 {
        match self.config.fast_open & TFO_SERVER_WO_SOCKOPT1 {
            0 => 0,
            _ => i32::try_from(backlog).unwrap_or(i32::MAX),
        }
    }

    /// How a listener with these options serves fast open.
    pub(crate) fn served(&self, options: &Options) -> FastOpenOptions {
        let (set, defaults) = (&options.fast_open, self.config.listen.fast_open);
        let has = |bit| self.config.fast_open & bit != 0;
        FastOpenOptions {
            pending_max: match has(TFO_SERVER_ENABLE) {
                true => set.pending_max.max(0) as usize,
                false => 0,
            },
            keys: set.keys.or(defaults.keys),
            without_cookie: set.no_cookie
                || defaults.without_cookie
                || has(TFO_SERVER_COOKIE_NOT_REQD),
        }
    }

    /// The options whose names begin with `TCP_FASTOPEN`.
    pub(crate) fn set_fast_open(&mut self, fd: Fd, name: i32, bytes: &[u8]) -> Result<(), Errno> {
        let (opens_fast, is_idle) = (self.opens_fast(), self.is_idle(fd)?);
        let stream = self.files.stream(fd)?;
        let listens = matches!(stream.phase, Phase::Listening(_));
        let set = &mut stream.options.fast_open;
        if name == TCP_FASTOPEN_KEY {
            set.keys = Some(keys(bytes)?);
            return Ok(());
        }
        let value = bytes.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
        let value = value.ok_or(Errno::EINVAL)?;
        let is_flag = name != TCP_FASTOPEN;
        let may_be_set = is_idle || (listens && name != TCP_FASTOPEN_CONNECT);
        match name {
            _ if value < 0 || (is_flag && value > 1) => return Err(Errno::EINVAL),
            TCP_FASTOPEN_CONNECT if !opens_fast => return Err(Errno::EOPNOTSUPP),
            _ if !may_be_set => return Err(Errno::EINVAL),
            TCP_FASTOPEN => set.pending_max = value.min(BACKLOG_MAX as i32),
            TCP_FASTOPEN_CONNECT => set.on_connect = value != 0,
            TCP_FASTOPEN_NO_COOKIE => set.no_cookie = value != 0,
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(())
    }

    /// What was set of them.
    pub(crate) fn fast_open_option(&mut self, fd: Fd, name: i32) -> Result<Vec<u8>, Errno> {
        let defaults = self.config.listen.fast_open;
        let set = &self.files.stream(fd)?.options.fast_open;
        let value = match name {
            TCP_FASTOPEN_KEY => {
                let keys = set.keys.or(defaults.keys);
                let keys = keys.map(|keys| [Some(keys.primary), keys.backup]);
                return Ok(keys.into_iter().flatten().flatten().flatten().collect());
            }
            TCP_FASTOPEN => set.pending_max,
            TCP_FASTOPEN_CONNECT => set.on_connect.into(),
            TCP_FASTOPEN_NO_COOKIE => set.no_cookie.into(),
            _ => return Err(Errno::ENOPROTOOPT),
        };
        Ok(value.to_ne_bytes().to_vec())
    }
}

/// Whether an option is one of these.
pub(crate) fn is_of_fast_open(name: i32) -> bool {
    matches!(name, TCP_FASTOPEN | TCP_FASTOPEN_CONNECT | TCP_FASTOPEN_KEY | TCP_FASTOPEN_NO_COOKIE)
}

/// One key, or a primary and a backup.
fn keys(bytes: &[u8]) -> Result<FastOpenKeys, Errno> {
    let (primary, rest) = bytes.split_first_chunk().ok_or(Errno::EINVAL)?;
    let backup = match rest {
        [] => None,
        rest => Some(rest.try_into().map_err(|_| Errno::EINVAL)?),
    };
    Ok(FastOpenKeys { primary: *primary, backup })
}
