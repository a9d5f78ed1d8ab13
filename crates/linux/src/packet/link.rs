//! The interface below a packet socket: whether it is there, and up, and how it comes back.
//!
//! The kernel tells of a change by an error of the next call: ENETDOWN when the interface went
//! down, ENXIO or ENODEV when it was deleted. An interface that comes up again delivers to the
//! socket as before; one that is made anew is another interface of the same name, and the socket
//! is bound to it. Meanwhile nothing is taken, so nothing is lost that a connection owes.

use super::calls::{self, Membership};
use super::own_address::OwnAddress;
use crate::ioctl;
use crate::system_error::{interface_down, said};
use device::{DeviceError, HardwareAddress};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

const IFF_UP: i16 = 0x1;

/// How often an interface that is lost is looked for, at most.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Link {
    socket: Arc<OwnedFd>,
    name: String,
    /// Told to the interface whenever the socket is bound.
    memberships: Vec<Membership>,
    own_address: OwnAddress,
    index: u32,
    /// Why the interface is of no use now, and when that was last looked at.
    lost: Option<(DeviceError, Instant)>,
    /// The interface that the socket is bound to was deleted.
    is_unbound: bool,
    /// It shares the interface with others (PACKET_FANOUT) and cannot be bound a second time.
    is_shared: bool,
}

impl Link {
    /// Binds `socket` to the interface `name`, which may be down, and has it take what is for `address`.
    ///
    /// # Errors
    /// Where there is no such interface, or a membership is refused.
    pub(super) fn bind(
        socket: Arc<OwnedFd>,
        name: &str,
        address: HardwareAddress,
        memberships: Vec<Membership>,
    ) -> Result<Self, Errno> {
        let mut link = Self {
            socket,
            name: name.to_owned(),
            memberships,
            own_address: OwnAddress::new(address),
            index: 0,
            lost: None,
            is_unbound: true,
            is_shared: false,
        };
        link.attach()?;
        Ok(link)
    }

    /// A link that stands on no interface, for tests of what passes the socket.
    #[cfg(test)]
    pub(super) fn of_socket(socket: Arc<OwnedFd>) -> Self {
        let (name, memberships) = ("no-such-if0".to_owned(), Vec::new());
        Self {
            socket,
            name,
            memberships,
            own_address: OwnAddress::new(HardwareAddress([2; 6])),
            index: 0,
            lost: None,
            is_unbound: false,
            is_shared: false,
        }
    }

    fn attach(&mut self) -> Result<(), Errno> {
        let index = ioctl::index(&self.socket, &self.name)?;
        calls::bind(&self.socket, index)?;
        for membership in &self.memberships {
            calls::join(&self.socket, index, *membership)?;
        }
        self.own_address.keep_anew(&self.socket, index)?;
        (self.index, self.is_unbound) = (index, false);
        Ok(())
    }

    /// The socket has joined others that share the interface.
    pub(super) fn set_shared(&mut self) {
        self.is_shared = true;
    }

    /// Why the interface can never be used again.
    pub(super) fn end(&self) -> Option<&DeviceError> {
        self.trouble().filter(|_| self.is_shared && self.is_unbound)
    }

    /// The interface's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Has the interface go on taking what is for our address, where its own is another one by now.
    pub(super) fn keep_address(&mut self) {
        // An interface that is gone is told when it is taken up again; one that refuses, at its next change.
        let _ = self.own_address.keep(&self.socket, self.index);
    }

    /// Its MTU now, where it can be asked.
    pub(super) fn mtu_bytes(&self) -> Option<usize> {
        ioctl::mtu(&self.socket, &self.called()).ok()
    }

    /// The name that the interface has now which the socket is bound to; where there is none, that of the one
    /// which is to come.
    fn called(&self) -> String {
        let bound = (!self.is_unbound).then(|| ioctl::name(&self.socket, self.index).ok());
        bound.flatten().unwrap_or_else(|| self.name.clone())
    }

    /// Why the interface is of no use now.
    pub(super) fn trouble(&self) -> Option<&DeviceError> {
        self.lost.as_ref().map(|(error, _)| error)
    }

    /// Whether the interface is lost for now, so far as is known.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Takes an error of a call. `true` where it says that the interface is lost.
    pub(super) fn on_error(&mut self, errno: Errno) -> bool {
        let is_lost = matches!(errno, Errno::NETDOWN | Errno::NXIO | Errno::NODEV);
        if is_lost {
            self.is_unbound |= errno != Errno::NETDOWN;
            self.lost = Some((self.sentence(), Instant::now()));
        }
        is_lost
    }

    /// Looks for a lost interface, unless that was just done, and takes it up again. `true` where
    /// it is back.
    pub(super) fn is_restored(&mut self) -> bool {
        let Some((_, looked)) = &self.lost else { return false };
        if looked.elapsed() < LOOK_INTERVAL {
            return false;
        }
        if self.take_up().is_ok() {
            self.lost = None;
            return true;
        }
        self.lost = Some((self.sentence(), Instant::now()));
        false
    }

    fn take_up(&mut self) -> Result<(), Errno> {
        // The kernel knows: one of the same name and number may be another one, and one of another name the same.
        self.is_unbound |= !calls::is_bound(&self.socket, self.index);
        if ioctl::flags(&self.socket, &self.called())? & IFF_UP == 0 {
            return Err(Errno::NETDOWN);
        }
        match (self.is_unbound, self.is_shared) {
            (true, true) => Err(Errno::NODEV),
            (true, false) => self.attach(),
            (false, _) => Ok(()),
        }
    }

    /// What is wrong, and what to do.
    fn sentence(&self) -> DeviceError {
        let name = &self.called();
        let message = match ioctl::flags(&self.socket, name) {
            Ok(flags) if flags & IFF_UP == 0 => return interface_down(name),
            _ if self.is_shared && self.is_unbound => format!(
                "the interface {name} is gone: it was deleted, and several sockets cannot be moved to \
                 another: open it again"
            ),
            Ok(_) => format!("the interface {name} was away and is taken up again"),
            Err(errno) => format!(
                "the interface {name} is gone ({}): it was deleted; it is used again when one of \
                 this name is made",
                said(errno)
            ),
        };
        DeviceError::new(ErrorKind::NetworkDown, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{VethPair, namespace, netlink, withheld};

    /// A cable in a network of the calling thread's own, and a link on its near end.
    fn link() -> Result<(VethPair, Link), String> {
        namespace::enter_by_thread().map_err(|error| error.message)?;
        let pair = VethPair::new("old0", "far0").map_err(|error| error.message)?;
        pair.set_up().map_err(|error| error.message)?;
        let socket = Arc::new(calls::open().map_err(|errno| errno.to_string())?);
        let address = HardwareAddress([2; 6]);
        let link = Link::bind(socket, "old0", address, Vec::new());
        let link = link.map_err(|errno| errno.to_string())?;
        Ok((pair, link))
    }

    /// Whether it is restored, when it may be looked for again.
    fn is_restored(link: &mut Link) -> bool {
        std::thread::sleep(LOOK_INTERVAL);
        link.is_restored()
    }

    #[test]
    fn an_interface_of_another_name_is_the_one_that_was_bound() {
        let (pair, mut link) = match link() {
            Ok(made) => made,
            Err(why) => {
                let name = "an_interface_of_another_name_is_the_one_that_was_bound";
                return withheld::cannot_run(name, &why);
            }
        };
        pair.near().set_down().expect("root of the namespace");
        assert!(link.on_error(Errno::NETDOWN));
        netlink::set_name(pair.near().index(), "new0").expect("root of the namespace");
        assert!(!is_restored(&mut link));
        let said = link.trouble().expect("it is down").message.clone();
        assert!(said.contains("ip link set new0 up"), "{said}");
        pair.near().set_up().expect("root of the namespace");
        assert!(is_restored(&mut link));
        assert_eq!(link.mtu_bytes(), Some(1_500));
    }

    /// As where it was moved to another namespace and back, or made anew with its number.
    #[test]
    fn an_interface_that_the_socket_was_taken_from_is_bound_again() {
        let (pair, mut link) = match link() {
            Ok(made) => made,
            Err(why) => {
                let name = "an_interface_that_the_socket_was_taken_from_is_bound_again";
                return withheld::cannot_run(name, &why);
            }
        };
        let index = pair.near().index();
        calls::bind(&link.socket, pair.far().index()).expect("it is up");
        assert!(link.on_error(Errno::NETDOWN));
        assert!(!calls::is_bound(&link.socket, index));
        assert!(is_restored(&mut link));
        assert!(calls::is_bound(&link.socket, index));
    }
}
