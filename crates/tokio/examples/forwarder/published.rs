//! Ports of this host that lead to machines.

use super::machines::Machines;
use super::{IN_FLIGHT_MAX, Inner, Outer, REST, carry, tell};
use socket2::SockRef;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// `LISTEN=TO`: who connects to the one, here, reaches the other, inside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    listen: SocketAddr,
    to: SocketAddr,
}

impl FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: not of the form 127.0.0.1:2222=10.0.2.15:22");
        let (listen, to) = text.split_once('=').ok_or_else(wrong)?;
        let at = |text: &str| text.parse().map_err(|_| wrong());
        Ok(Self { listen: at(listen)?, to: at(to)? })
    }
}

/// Listens, and gives the task that carries what comes.
pub(crate) async fn open(
    Way { listen, to }: Way,
    machines: Arc<Machines>,
) -> io::Result<impl Future<Output = ()>> {
    let wrong = |error: io::Error| io::Error::new(error.kind(), format!("{listen}: {error}"));
    let listener = TcpListener::bind(listen).await.map_err(wrong)?;
    let waiting = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
    Ok(async move {
        // Others wait in the kernel: who made a connection may be gone, and it is kept until the machine has answered.
        while let Ok(place) = Arc::clone(&waiting).acquire_owned().await {
            match listener.accept().await {
                Ok((outer, from)) => {
                    let machines = Arc::clone(&machines);
                    tokio::spawn(async move {
                        let reached = reach(to, &machines).await;
                        drop(place);
                        tell(&format!("{from} to {to}"), carry_in(outer, reached).await);
                    });
                }
                Err(error) => {
                    println!("{listen}: {error}");
                    tokio::time::sleep(REST).await;
                }
            }
        }
    })
}

async fn carry_in(outer: Outer, reached: io::Result<Inner>) -> io::Result<(u64, u64)> {
    match reached {
        Ok(inner) => carry(inner, outer).await,
        Err(error) => {
            // An end in order would say that somebody was there.
            SockRef::from(&outer).set_linger(Some(Duration::ZERO))?;
            Err(error)
        }
    }
}

/// Connects to the machine that has this address. All that may have it are asked at once, and the first answer counts: who
/// takes an address that is nobody's by DHCP may be taken for who should have it.
async fn reach(to: SocketAddr, machines: &Machines) -> io::Result<Inner> {
    let mut asked = JoinSet::new();
    for stack in machines.stacks_towards(to.ip()) {
        asked.spawn(async move { Inner::connect(&stack, to).await });
    }
    let mut why = io::Error::new(ErrorKind::HostUnreachable, "no machine is there");
    while let Some(answer) = asked.join_next().await {
        match answer? {
            Ok(inner) => return Ok(inner),
            // By who has the address.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Err(error),
            Err(error) => why = error,
        }
    }
    Err(why)
}
