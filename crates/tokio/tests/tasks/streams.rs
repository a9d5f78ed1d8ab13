//! Connections in the hands of tasks, between two stacks on one wire.

use crate::pair::{self, bytes, connected, pair, right, run};
use bytes::Bytes;
use multidata_tokio::{TcpListener, TcpStream};
use std::io::{ErrorKind, IoSlice};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

#[test]
fn a_hundred_tasks_get_their_own_bytes_back() {
    run(async {
        let (left, right_stack) = pair();
        let listener = TcpListener::bind(&right_stack, right(7)).expect("a free port");
        let server = tokio::spawn(async move {
            for _ in 0..100 {
                let (mut stream, _) = listener.accept().await.expect("it came");
                tokio::spawn(async move {
                    let (mut reader, mut writer) = stream.split();
                    tokio::io::copy(&mut reader, &mut writer).await.expect("the client reads");
                    writer.shutdown().await.expect("the client waits for the end");
                });
            }
        });
        let clients = (0..100).map(|index| {
            let left = left.clone();
            tokio::spawn(async move {
                let stream = TcpStream::connect(&left, right(7)).await.expect("it listens");
                let (mut reader, mut writer) = stream.into_split();
                let sent = bytes(index, 200_000 + index);
                let expected = sent.clone();
                tokio::spawn(async move {
                    writer.write_all(&sent).await.expect("the server reads");
                    // Dropping the half ends the stream.
                });
                let mut echo = Vec::new();
                reader.read_to_end(&mut echo).await.expect("the server writes");
                assert!(echo == expected, "stream {index} came back otherwise");
            })
        });
        for client in clients.collect::<Vec<_>>() {
            client.await.expect("no client failed");
        }
        server.await.expect("no connection failed");
    });
}

#[test]
fn a_mapped_address_is_the_ipv4_one() {
    run(async {
        let (left, right_stack) = pair();
        let mapped: std::net::SocketAddr = "[::ffff:10.1.0.2]:7".parse().expect("an address");
        let listener = TcpListener::bind(&right_stack, mapped).expect("a free port");
        assert_eq!(listener.local_addr().expect("bound"), right(7));
        let client = TcpStream::connect(&left, mapped).await.expect("it listens");
        assert_eq!(client.peer_addr().expect("connected"), right(7));
        let (_, peer) = listener.accept().await.expect("it came");
        assert!(peer.is_ipv4());
    });
}

#[test]
fn no_event_is_missed_however_two_tasks_race() {
    run(async {
        let (left, right_stack) = pair();
        let (mut client, mut server) = connected(&left, &right_stack).await;
        // A byte goes back and forth; a missed event stops both for good.
        let rounds = 5_000_u32;
        let answering = tokio::spawn(async move {
            for _ in 0..rounds {
                let byte = server.read_u8().await.expect("the client writes");
                server.write_u8(byte.wrapping_add(1)).await.expect("the client reads");
            }
        });
        for round in 0..rounds {
            client.write_u8(round as u8).await.expect("the server reads");
            let answer = client.read_u8().await.expect("the server writes");
            assert_eq!(answer, (round as u8).wrapping_add(1));
        }
        answering.await.expect("it went well");
    });
}

#[test]
fn a_read_that_is_given_up_takes_nothing() {
    run(async {
        let (left, right_stack) = pair();
        let (mut client, mut server) = connected(&left, &right_stack).await;
        let total = 20_000;
        let writing = tokio::spawn(async move {
            for (index, byte) in bytes(1, total).into_iter().enumerate() {
                client.write_all(&[byte]).await.expect("the server reads");
                if index % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
        let (mut received, mut given_up) = (Vec::new(), 0);
        let mut buffer = [0; 64];
        while received.len() < total {
            // The branch that is taken is picked at random; the other future is dropped.
            tokio::select! {
                count = server.read(&mut buffer) => {
                    let count = count.expect("the client writes");
                    received.extend_from_slice(&buffer[..count]);
                }
                () = tokio::task::yield_now() => given_up += 1,
            }
        }
        assert!(received == bytes(1, total) && given_up > 10, "{given_up} reads were given up");
        writing.await.expect("it went well");
    });
}

#[test]
fn an_accept_or_a_connect_that_is_given_up_loses_nobody() {
    run(async {
        let (left, right_stack) = pair();
        let listener = TcpListener::bind(&right_stack, right(7)).expect("a free port");
        let clients = tokio::spawn(async move {
            let mut clients = Vec::new();
            for _ in 0..200 {
                clients.push(TcpStream::connect(&left, right(7)).await.expect("it listens"));
            }
            // Nobody answers there: dropping the future gives the attempt up, and its port is free.
            for _ in 0..3 {
                let from = ([10, 1, 0, 1], 4_000);
                let silent = TcpStream::connect_from(&left, from, ([10, 1, 0, 99], 7));
                let outcome = tokio::time::timeout(Duration::from_millis(5), silent).await;
                assert!(outcome.is_err(), "{outcome:?}");
            }
            let refused = TcpStream::connect(&left, right(8)).await.expect_err("nobody listens");
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            clients
        });
        let mut accepted = Vec::new();
        while accepted.len() < 200 {
            tokio::select! {
                stream = listener.accept() => accepted.push(stream.expect("a connection").0),
                () = tokio::task::yield_now() => {}
            }
        }
        let mut clients = clients.await.expect("it went well");
        for (client, server) in clients.iter_mut().zip(&mut accepted) {
            client.write_all(b"here").await.expect("accepted");
            let mut bytes = [0; 4];
            server.read_exact(&mut bytes).await.expect("sent");
        }
    });
}

#[test]
fn several_tasks_accept_from_several_squeues_and_none_is_forgotten() {
    run(async {
        let (left, right_stack) = pair::pair_with_squeues(2);
        let listener = TcpListener::bind(&right_stack, right(7)).expect("a free port");
        let listener = std::sync::Arc::new(listener);
        // All four wait from the first moment; each must get its share, one connection at a time.
        let acceptors = (0..4).map(|_| {
            let listener = std::sync::Arc::clone(&listener);
            tokio::spawn(async move {
                let mut stream = listener.accept().await.expect("it came").0;
                stream.write_all(b"welcome").await.expect("open");
            })
        });
        let acceptors: Vec<_> = acceptors.collect();
        tokio::time::sleep(Duration::from_millis(20)).await;
        for _ in 0..4 {
            let mut stream = TcpStream::connect(&left, right(7)).await.expect("it listens");
            let mut text = String::new();
            stream.read_to_string(&mut text).await.expect("accepted by somebody");
            assert_eq!(text, "welcome");
        }
        for acceptor in acceptors {
            acceptor.await.expect("it went well");
        }
    });
}

#[test]
fn what_is_there_can_be_peeked_at_and_tried() {
    run(async {
        let (left, right_stack) = pair();
        let (client, mut server) = connected(&left, &right_stack).await;
        let mut buffer = [0; 8];
        let nothing = server.try_read(&mut buffer).expect_err("nothing came");
        assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
        client.writable().await.expect("open");
        assert_eq!(client.try_write(b"twice").expect("there is room"), 5);
        for _ in 0..2 {
            assert_eq!(server.peek(&mut buffer).await.expect("sent"), 5);
        }
        server.readable().await.expect("open");
        assert_eq!(server.try_read(&mut buffer).expect("it was seen"), 5);
        assert_eq!(&buffer[..5], b"twice");
        // Two tasks wait for one direction: one peeks, one reads.
        let (peeked, read) = (&mut [0; 4], &mut [0; 4]);
        let (mut reader, _writer) = server.split();
        let stream: &TcpStream = reader.as_ref();
        let (count, ()) = tokio::join!(stream.peek(peeked), async {
            client.writable().await.expect("open");
            client.try_write(b"both").expect("there is room");
        });
        assert_eq!(count.expect("sent"), 4);
        reader.read_exact(read).await.expect("still there");
        assert_eq!((&*peeked, &*read), (b"both", b"both"));
    });
}

/// A macro, for the borrowed halves and the owned ones are types of their own.
macro_rules! drive_halves {
    ($reader:expr, $writer:expr, $server:expr, $ends:expr) => {{
        let (mut reader, writer) = ($reader, $writer);
        for ends in [
            (reader.local_addr().expect("open"), reader.peer_addr().expect("open")),
            (writer.local_addr().expect("open"), writer.peer_addr().expect("open")),
        ] {
            assert_eq!(ends, $ends);
        }
        let nothing = reader.try_read(&mut [0; 4]).expect_err("nothing came");
        assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
        writer.writable().await.expect("open");
        assert_eq!(writer.try_write(b"ping").expect("there is room"), 4);
        $server.read_exact(&mut [0; 4]).await.expect("sent");
        $server.write_all(b"pong").await.expect("open");
        reader.readable().await.expect("open");
        let mut out = [0; 9];
        assert_eq!(reader.peek(&mut out).await.expect("it came"), 4);
        assert_eq!(reader.try_read(&mut out).expect("it is there"), 4);
        assert_eq!(&out[..4], b"pong");
    }};
}

#[test]
fn halves_do_by_readiness_and_attempts_what_the_whole_does() {
    run(async {
        let (left, right_stack) = pair();
        let (mut client, mut server) = connected(&left, &right_stack).await;
        let ends = (client.local_addr().expect("open"), client.peer_addr().expect("open"));
        let (reader, writer) = client.split();
        drive_halves!(reader, writer, server, ends);
        let (reader, writer) = client.into_split();
        drive_halves!(reader, writer, server, ends);
    });
}

#[test]
fn halves_come_together_again_and_end_the_stream() {
    run(async {
        let (left, right_stack) = pair();
        let (client, mut server) = connected(&left, &right_stack).await;
        let (other, _other_end) = connected(&left, &right_stack).await;
        let (reader, writer) = client.into_split();
        let (other_reader, other_writer) = other.into_split();
        let error = reader.reunite(other_writer).expect_err("of two streams");
        let client = error.0.reunite(writer).expect("of one stream");
        drop((other_reader, error.1));
        assert!(client.is_write_vectored());
        let (mut reader, mut writer) = client.into_split();
        let pieces = [IoSlice::new(b"head "), IoSlice::new(b"and body")];
        assert_eq!(writer.write_vectored(&pieces).await.expect("there is room"), 13);
        writer.shutdown().await.expect("open");
        let mut text = String::new();
        server.read_to_string(&mut text).await.expect("sent");
        assert_eq!(text, "head and body");
        let broken = writer.write(b"more").await.expect_err("ended");
        assert_eq!(broken.kind(), ErrorKind::BrokenPipe);
        server.write_all(b"the other way is open").await.expect("open");
        drop(server);
        text.clear();
        reader.read_to_string(&mut text).await.expect("sent");
        assert_eq!(text, "the other way is open");
    });
}

// As with `tokio::net`.
#[test]
fn a_stream_that_the_peer_has_reset_ends_without_an_error() {
    run(async {
        let (left, right_stack) = pair();
        for form in 0..3 {
            let (mut client, server) = connected(&left, &right_stack).await;
            server.set_zero_linger().expect("open");
            drop(server);
            let error = client.read(&mut [0; 8]).await.expect_err("a reset");
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            let ended = match form {
                0 => client.shutdown().await,
                1 => client.split().1.shutdown().await,
                _ => client.into_split().1.shutdown().await,
            };
            ended.unwrap_or_else(|error| panic!("form {form}: {error}"));
        }
    });
}

#[test]
fn a_busy_connection_does_not_starve_a_task_beside_it() {
    // One thread for all tasks: who always has something to do must give way by itself.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(async {
        let (left, right_stack) = pair();
        let (mut client, mut server) = connected(&left, &right_stack).await;
        client.write_all(&[1; 100_000]).await.expect("there is room");
        let busy = tokio::spawn(async move {
            let mut byte = [0];
            let mut count = 0;
            // All of it is there: no read has to wait.
            while count < 90_000 {
                count += server.read(&mut byte).await.expect("it is there");
            }
            server
        });
        let mut turns = 0;
        while !busy.is_finished() {
            tokio::task::yield_now().await;
            turns += 1;
        }
        busy.await.expect("it went well");
        assert!(turns > 100, "the other task had {turns} turns");
    });
}

#[test]
fn what_was_written_arrives_after_the_runtime_is_gone() {
    let (left, right_stack) = pair();
    let total = 3_000_000;
    let server = std::thread::spawn(move || {
        let listener = multidata::TcpListener::bind(&right_stack, right(7)).expect("a free port");
        let (mut stream, _) = listener.accept().expect("it came");
        let mut received = Vec::new();
        std::io::Read::read_to_end(&mut stream, &mut received).expect("ended in order");
        received
    });
    let stack = left.clone();
    run(async move {
        let mut stream = loop {
            // The other thread may not have bound its socket yet.
            match TcpStream::connect(&stack, right(7)).await {
                Ok(stream) => break stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        stream.write_all(&bytes(5, total)).await.expect("there is room, in time");
    });
    left.shutdown(Duration::from_secs(20)).expect("all of it was delivered");
    assert!(server.join().expect("it went well") == bytes(5, total));
}

#[test]
fn a_removed_interface_wakes_who_waits_with_an_error() {
    run(async {
        let (left, right_stack) = pair();
        let (mut client, _server) = connected(&left, &right_stack).await;
        let waiting = tokio::spawn(async move { client.read_u8().await });
        let listener = TcpListener::bind(&left, ([10, 1, 0, 1], 7)).expect("a free port");
        let accepting = tokio::spawn(async move { listener.accept().await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        left.remove_interface(0).expect("it is there");
        let error = waiting.await.expect("no panic").expect_err("the address is gone");
        assert!(
            matches!(error.kind(), ErrorKind::AddrNotAvailable | ErrorKind::NetworkDown),
            "{error:?}"
        );
        let error = accepting.await.expect("no panic").expect_err("no device is left");
        assert_eq!(error.kind(), ErrorKind::NetworkDown, "{error:?}");
    });
}

#[test]
fn a_stream_goes_from_threads_to_tasks_and_back() {
    let (left, right_stack) = pair();
    let listener = multidata::TcpListener::bind(&right_stack, right(7)).expect("a free port");
    let client = multidata::TcpStream::connect(&left, right(7)).expect("it listens");
    let (server, _) = listener.accept().expect("it came");
    let mut server = std::thread::scope(|scope| {
        let tasks = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime.expect("a runtime").block_on(async {
                let mut server = TcpStream::try_from(server).expect("a setting");
                assert_eq!(server.read_u8().await.expect("sent"), 1);
                server.into_blocking().expect("a setting")
            })
        });
        std::io::Write::write_all(&mut &client, &[1, 2]).expect("open");
        tasks.join().expect("it went well")
    });
    let mut rest = [0];
    std::io::Read::read_exact(&mut server, &mut rest).expect("it waits again");
    assert_eq!(rest, [2]);
}

/// What generic code asks for.
fn is_a_stream<T: AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static>() {}

#[test]
fn streams_can_be_given_to_generic_code() {
    is_a_stream::<TcpStream>();
}

#[test]
fn a_stream_has_the_settings_of_its_path() {
    run(async {
        let (left, right_stack) = pair();
        let (client, _server) = connected(&left, &right_stack).await;
        assert_eq!(client.ttl().expect("open"), 64);
        client.set_ttl(9).expect("in range");
        assert_eq!(client.ttl().expect("open"), 9);
        assert_eq!(client.set_ttl(0).expect_err("out of range").kind(), ErrorKind::InvalidInput);
        client.set_single_packets(true).expect("open");
        client.set_dont_route(true).expect("open");
    });
}

#[test]
fn bytes_are_lent_and_handed_out_without_a_copy() {
    run(async {
        let (left, right_stack) = pair();
        let (client, server) = connected(&left, &right_stack).await;
        let (sent, mut writer) = (Bytes::from(bytes(5, 3_000_000)), client.into_split().1);
        let mut lent = sent.clone();
        tokio::spawn(async move {
            // Nobody else has the last part.
            let mut last = Bytes::from(lent.split_off(2_900_000).to_vec());
            writer.write_bytes(&mut lent).await.expect("the other end reads");
            writer.write_bytes(&mut last).await.expect("the other end reads");
            assert!(lent.is_empty() && last.is_empty());
        });
        let mut reader = server.into_split().0;
        let (mut pieces, mut received) = (Vec::new(), Vec::new());
        loop {
            let count = reader.read_bytes_vectored(100_000, &mut pieces).await.expect("it is sent");
            assert!(count <= 100_000);
            assert_eq!(count, pieces.iter().map(Bytes::len).sum::<usize>());
            if count == 0 {
                break;
            }
            pieces.drain(..).for_each(|piece| received.extend_from_slice(&piece));
        }
        assert!(received == sent, "the stream came otherwise");
        assert_eq!(reader.read_bytes_vectored(0, &mut pieces).await.expect("always"), 0);
        let counted = [&left, &right_stack].map(|stack| stack.counters().runtime);
        assert_eq!(counted.map(|runtime| runtime.bytes_copied_in), [0, 0]);
        assert_eq!(counted.map(|runtime| runtime.bytes_copied_out), [0, 0]);
        assert_eq!(counted[0].bytes_lent, 3_000_000);
    });
}

#[test]
fn a_write_of_lent_bytes_that_is_given_up_leaves_the_rest() {
    run(async {
        let (left, right_stack) = pair();
        let (client, mut server) = connected(&left, &right_stack).await;
        client.socket().set_send_buffer_size(100_000).expect("a size");
        let sent = Bytes::from(bytes(6, 20_000_000));
        let mut left_bytes = sent.clone();
        // Nobody reads.
        let soon = Duration::from_millis(50);
        for _ in 0..3 {
            let given_up = tokio::time::timeout(soon, client.write_bytes(&mut left_bytes)).await;
            given_up.expect_err("it does not fit");
        }
        assert!(left_bytes.len() < sent.len());
        let reading = tokio::spawn(async move {
            let mut received = vec![0; 20_000_000];
            server.read_exact(&mut received).await.expect("it is sent");
            received
        });
        client.write_bytes(&mut left_bytes).await.expect("the other end reads");
        assert!(reading.await.expect("it read") == sent, "the stream came otherwise");
    });
}

#[test]
fn lent_bytes_for_a_connection_that_is_gone_are_an_error() {
    run(async {
        let (left, right_stack) = pair();
        let (client, server) = connected(&left, &right_stack).await;
        server.socket().abort();
        client.readable().await.expect("no device failed");
        let mut lent = Bytes::from_static(b"late");
        let error = client.write_bytes(&mut lent).await.expect_err("it was reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert_eq!(lent, "late");
    });
}
