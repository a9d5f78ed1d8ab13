//! Datagrams in the hands of tasks, between two stacks on one wire.

use crate::pair::{pair, right, run};
use multidata::{Datagram, ReceivedDatagram, ReceivedPacket};
use multidata_tokio::{RawSocket, UdpSocket};
use std::io::ErrorKind;
use std::sync::Arc;
use std::task::Poll;
use tokio::io::ReadBuf;

#[test]
fn each_datagram_reaches_one_of_the_tasks_that_wait() {
    run(async {
        let (left, right_stack) = pair();
        let server = Arc::new(UdpSocket::bind(&right_stack, right(7)).expect("a free port"));
        for task in 0..8 {
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                let mut buffer = [0; 100];
                if task % 2 == 0 {
                    loop {
                        let (len, from) = server.recv_from(&mut buffer).await.expect("open");
                        server.send_to(&buffer[..len], from).await.expect("a route");
                    }
                }
                loop {
                    let mut received = Vec::new();
                    let keep = |it: ReceivedDatagram<'_>| {
                        received.push((it.payload.to_vec(), it.source));
                    };
                    let count = server.recv_many(3, keep).await.expect("open");
                    assert!(count == received.len() && (1..=3).contains(&count));
                    for (payload, from) in received {
                        server.send_to(&payload, from).await.expect("a route");
                    }
                }
            });
        }
        let client = UdpSocket::bind(&left, ([10, 1, 0, 1], 0)).expect("a free port");
        client.connect(right(7)).expect("a route");
        assert_eq!(client.peer_addr().expect("connected"), right(7));
        // A few at a time, so that no queue overflows; all come back, each once.
        for round in 0..100_u8 {
            for index in 0..4 {
                assert_eq!(client.send(&[round, index]).await.expect("a route"), 2);
            }
            let mut seen = [false; 4];
            for _ in 0..4 {
                let mut buffer = [0; 10];
                let len = client.recv(&mut buffer).await.expect("open");
                assert_eq!((len, buffer[0]), (2, round));
                assert!(!core::mem::replace(&mut seen[usize::from(buffer[1])], true));
            }
        }
    });
}

#[test]
fn many_datagrams_of_a_task_go_together() {
    run(async {
        let (left, right_stack) = pair();
        let server = UdpSocket::bind(&right_stack, right(7)).expect("a free port");
        let client = UdpSocket::bind(&left, ([10, 1, 0, 1], 0)).expect("a free port");
        let payloads: Vec<Vec<u8>> = (0..300).map(|len| vec![len as u8; len]).collect();
        let datagram = |payload| Datagram { payload, to: Some(right(7)), ..Datagram::default() };
        let datagrams: Vec<_> = payloads.iter().map(|it| datagram(it)).collect();
        // Until the neighbour is known, one at a time.
        assert_eq!(client.send_many(&datagrams[..1]).await.expect("a route"), 1);
        assert_eq!(server.recv(&mut [0; 9]).await.expect("it was sent"), 0);
        let mut sent = 1;
        let mut received = 1;
        while received < 300 {
            if sent < 300 {
                let count = client.send_many(&datagrams[sent..]).await.expect("a route");
                sent += count;
                assert!(count > 20 || sent == 300, "{count} together, {sent} in all");
            }
            let keep = |it: ReceivedDatagram<'_>| {
                assert_eq!(it.payload, payloads[received]);
                received += 1;
            };
            server.recv_many(300, keep).await.expect("open");
        }
    });
}

#[test]
fn a_receive_that_is_given_up_takes_no_datagram() {
    run(async {
        let (left, right_stack) = pair();
        let server = UdpSocket::bind(&right_stack, right(7)).expect("a free port");
        let client = UdpSocket::bind(&left, ([10, 1, 0, 1], 0)).expect("a free port");
        let mut buffer = [0; 10];
        for round in 0..200_u8 {
            let sending = async {
                tokio::task::yield_now().await;
                client.send_to(&[round], right(7)).await.expect("a route");
            };
            let (mut is_sent, mut received) = (false, false);
            tokio::pin!(sending);
            while !received {
                tokio::select! {
                    outcome = server.recv_from(&mut buffer) => {
                        assert_eq!((outcome.expect("open").0, buffer[0]), (1, round));
                        received = true;
                    }
                    () = &mut sending, if !is_sent => is_sent = true,
                    () = tokio::task::yield_now() => {}
                }
            }
            if !is_sent {
                sending.await;
            }
        }
    });
}

#[test]
fn errors_and_polls_are_those_of_the_socket() {
    run(async {
        let (left, _right_stack) = pair();
        let client = UdpSocket::bind(&left, ([10, 1, 0, 1], 0)).expect("a free port");
        let error = client.send(b"to whom").await.expect_err("no peer");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        client.connect(right(9)).expect("a route");
        client.send(b"nobody is there").await.expect("a route");
        let error = client.recv(&mut [0; 10]).await.expect_err("the port is unreachable");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let own = client.local_addr().expect("bound");
        let peer = UdpSocket::bind(&left, ([10, 1, 0, 1], 5)).expect("a free port");
        let poll = std::future::poll_fn(|it| peer.poll_send_to(it, b"polled", own));
        assert_eq!(poll.await.expect("a route"), 6);
        client.connect(peer.local_addr().expect("bound")).expect("a route");
        assert_eq!(
            std::future::poll_fn(|it| peer.poll_send_to(it, b"again", own)).await.ok(),
            Some(5)
        );
        let mut memory = [0; 20];
        let mut buffer = ReadBuf::new(&mut memory);
        std::future::poll_fn(|it| client.poll_recv(it, &mut buffer)).await.expect("sent");
        assert_eq!(buffer.filled(), b"again");
        std::future::poll_fn(|it| {
            assert!(client.poll_recv(it, &mut buffer).is_pending());
            Poll::Ready(())
        })
        .await;
    });
}

#[test]
fn raw_packets_and_echo_requests_wait_for_each_other() {
    run(async {
        let (left, right_stack) = pair();
        let ours = RawSocket::bind(&left, 253).expect("nobody's");
        let theirs = RawSocket::bind(&right_stack, 253).expect("nobody's");
        let echo = RawSocket::bind_echo(&left, 0).expect("a free identifier");
        let to = right(0).ip();
        tokio::spawn(async move {
            loop {
                let mut asked = Vec::new();
                let keep = |packet: ReceivedPacket, payload: &[u8]| {
                    asked.push((payload.to_vec(), packet.source));
                };
                theirs.recv_many(9, keep).await.expect("open");
                for (payload, from) in asked {
                    theirs.send_to(&payload, from).await.expect("a route");
                }
            }
        });
        let mut buffer = [0; 100];
        for round in 0..100_u8 {
            ours.send_to(&[round; 5], to).await.expect("a route");
            let packet = ours.recv(&mut buffer).await.expect("open");
            assert_eq!((&buffer[..packet.len], packet.source), (&[round; 5][..], to));
            let request = multidata::echo_request(to, round.into(), b"data");
            echo.send_to(&request, to).await.expect("a route");
            let packet = echo.recv(&mut buffer).await.expect("open");
            let answer = multidata::EchoAnswer::parse(&packet, &buffer[..packet.len]);
            let (sequence, data) = (round.into(), &b"data"[..]);
            assert_eq!(answer, Some(multidata::EchoAnswer::Reply { sequence, data }));
        }
    });
}
