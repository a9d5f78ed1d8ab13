//! The table of open files.

use crate::Errno;
use crate::abi::{O_RDONLY, O_RDWR, O_WRONLY};
use crate::call::Fd;
use crate::datagram::Datagram;
use crate::epoll::Epoll;
use crate::pipe::Pipe;
use crate::stream::Stream;
use std::collections::{BTreeMap, BTreeSet};

/// Files open at once.
const FILES_MAX: usize = 1_024;

/// An open file.
pub(crate) enum File {
    Stream(Box<Stream>),
    Datagram(Box<Datagram>),
    Epoll(Epoll),
    PipeRead(Pipe),
    PipeWrite(Pipe),
}

impl File {
    /// O_RDONLY, O_WRONLY or O_RDWR.
    pub(crate) fn access(&self) -> i32 {
        match self {
            Self::PipeRead(_) => O_RDONLY,
            Self::PipeWrite(_) => O_WRONLY,
            Self::Stream(_) | Self::Datagram(_) | Self::Epoll(_) => O_RDWR,
        }
    }

    pub(crate) fn is_nonblocking(&self) -> bool {
        match self {
            Self::Stream(stream) => stream.nonblocking,
            Self::Datagram(datagram) => datagram.nonblocking,
            Self::PipeRead(pipe) | Self::PipeWrite(pipe) => pipe.nonblocking,
            Self::Epoll(_) => false,
        }
    }

    pub(crate) fn set_nonblocking(&mut self, on: bool) {
        match self {
            Self::Stream(stream) => stream.nonblocking = on,
            Self::Datagram(datagram) => datagram.nonblocking = on,
            Self::PipeRead(pipe) | Self::PipeWrite(pipe) => pipe.nonblocking = on,
            Self::Epoll(_) => {}
        }
    }
}

/// Descriptors and their files; the lowest free one is given out next.
pub(crate) struct Files {
    first: Fd,
    open: BTreeMap<Fd, File>,
    /// FD_CLOEXEC, of the descriptor and not of the file. Nothing here calls exec; it is kept to be told.
    close_on_exec: BTreeSet<Fd>,
}

impl Files {
    pub(crate) fn new(first: Fd) -> Self {
        Self { first, open: BTreeMap::new(), close_on_exec: BTreeSet::new() }
    }

    /// Whether so many more can be open.
    pub(crate) fn have_room_for(&self, count: usize) -> bool {
        self.open.len() + count <= FILES_MAX
    }

    pub(crate) fn insert(&mut self, file: File) -> Result<Fd, Errno> {
        if !self.have_room_for(1) {
            return Err(Errno::EMFILE);
        }
        let fd = (self.first..).find(|fd| !self.open.contains_key(fd)).ok_or(Errno::EMFILE)?;
        self.open.insert(fd, file);
        Ok(fd)
    }

    pub(crate) fn get(&mut self, fd: Fd) -> Result<&mut File, Errno> {
        self.open.get_mut(&fd).ok_or(Errno::EBADF)
    }

    pub(crate) fn contains(&self, fd: Fd) -> bool {
        self.open.contains_key(&fd)
    }

    pub(crate) fn closes_on_exec(&self, fd: Fd) -> bool {
        self.close_on_exec.contains(&fd)
    }

    pub(crate) fn set_close_on_exec(&mut self, fd: Fd, on: bool) {
        match on {
            true => self.close_on_exec.insert(fd),
            false => self.close_on_exec.remove(&fd),
        };
    }

    pub(crate) fn remove(&mut self, fd: Fd) -> Option<File> {
        self.close_on_exec.remove(&fd);
        self.open.remove(&fd)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Fd, &mut File)> {
        self.open.iter_mut().map(|(fd, file)| (*fd, file))
    }

    /// The descriptor of the first file that is so.
    pub(crate) fn find(&self, is_so: impl Fn(&File) -> bool) -> Option<Fd> {
        self.open.iter().find(|(_, file)| is_so(file)).map(|(fd, _)| *fd)
    }

    pub(crate) fn stream(&mut self, fd: Fd) -> Result<&mut Stream, Errno> {
        match self.get(fd)? {
            File::Stream(stream) => Ok(stream),
            File::Datagram(_) => Err(Errno::EOPNOTSUPP),
            _ => Err(Errno::ENOTSOCK),
        }
    }

    pub(crate) fn datagram(&mut self, fd: Fd) -> Result<&mut Datagram, Errno> {
        match self.get(fd)? {
            File::Datagram(datagram) => Ok(datagram),
            File::Stream(_) => Err(Errno::EOPNOTSUPP),
            _ => Err(Errno::ENOTSOCK),
        }
    }

    /// Whether a stream bound to a port like this stands in the way of another.
    pub(crate) fn streams(&self) -> impl Iterator<Item = (Fd, &Stream)> {
        self.open.iter().filter_map(|(fd, file)| match file {
            File::Stream(stream) => Some((*fd, stream.as_ref())),
            _ => None,
        })
    }
}
