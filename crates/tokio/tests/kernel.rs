//! Tasks and the Linux kernel's own sockets at the two ends of a TAP, in a network of the test's own.

#[path = "../../multidata/tests/kernel/mod.rs"]
mod kernel;
mod pair;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use linux::TapConfig;
use multidata::{InterfaceConfig, Stack};
use multidata_tokio::{TcpListener, TcpStream, UdpSocket};
use pair::{byte, bytes, run};
use std::convert::Infallible;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const TESTS: &[kernel::Test] = &[
    ("fifty_tasks_get_their_bytes_back_from_the_kernel", echo),
    ("datagrams_of_tasks_reach_the_kernel_and_come_back", datagrams),
    ("a_hyper_client_asks_a_server_in_the_kernel", hyper_client),
    ("a_hyper_server_answers_clients_in_the_kernel", hyper_server),
];

fn main() -> ExitCode {
    kernel::run(TESTS, kernel::enter_with_tun)
}

/// A stack at `10.network.0.2` over a TAP, with the kernel at `.1`.
fn stack(network: u8) -> Stack {
    let (mut device, _interface) = kernel::tap(&TapConfig::default(), network);
    let config = InterfaceConfig::new(kernel::cidr(false, network, 2));
    let queue = device.queue(0).expect("it has one");
    Stack::builder().interface(queue, config).build().expect("a stack")
}

fn ours(network: u8, host: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, network, 0, host], port))
}

fn echo() {
    let stack = stack(61);
    let listener = std::net::TcpListener::bind(ours(61, 1, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            std::thread::spawn(move || {
                let mut reader = stream.try_clone().expect("a handle");
                std::io::copy(&mut reader, &mut stream).expect("the task reads");
            });
        }
    });
    run(async {
        let clients = (0..50).map(|index| {
            let stack = stack.clone();
            tokio::spawn(async move {
                let stream = TcpStream::connect(&stack, address).await.expect("it listens");
                let (mut reader, mut writer) = stream.into_split();
                let len = 100_000 + index;
                let writing = tokio::spawn(async move {
                    writer.write_all(&bytes(index, len)).await.expect("the kernel reads");
                });
                let mut echo = Vec::new();
                reader.read_to_end(&mut echo).await.expect("the kernel writes");
                assert!(echo == bytes(index, len), "stream {index} came back otherwise");
                writing.await.expect("it went well");
            })
        });
        for client in clients.collect::<Vec<_>>() {
            client.await.expect("no client failed");
        }
    });
}

fn datagrams() {
    let stack = stack(62);
    let kernel = std::net::UdpSocket::bind(ours(62, 1, 0)).expect("a free port");
    let address = kernel.local_addr().expect("bound");
    std::thread::spawn(move || {
        let mut buffer = [0; 2_000];
        loop {
            let (len, from) = kernel.recv_from(&mut buffer).expect("open");
            kernel.send_to(&buffer[..len], from).expect("a route");
        }
    });
    run(async {
        let socket = UdpSocket::bind(&stack, ours(62, 2, 0)).expect("a free port");
        for round in 0..500 {
            let sent = bytes(round, 1 + round * 2);
            socket.send_to(&sent, address).await.expect("a route");
            let mut buffer = [0; 2_000];
            let (len, from) = socket.recv_from(&mut buffer).await.expect("open");
            assert!(from == address && buffer[..len] == sent);
        }
    });
}

/// A server of as little HTTP/1.1 as a client needs: it answers with as many bytes as the path says.
fn serve(stream: std::net::TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().expect("a handle"));
    let mut writer = stream;
    loop {
        let mut request = String::new();
        if reader.read_line(&mut request).expect("the client writes") == 0 {
            return;
        }
        let mut line = String::new();
        while reader.read_line(&mut line).expect("the client writes") > 2 {
            line.clear();
        }
        let path = request.split(' ').nth(1).expect("a path");
        let len: usize = path.trim_start_matches('/').parse().expect("a number");
        write!(writer, "HTTP/1.1 200 OK\r\ncontent-length: {len}\r\n\r\n").expect("it reads");
        writer.write_all(&bytes(len, len)).expect("it reads");
    }
}

fn hyper_client() {
    let stack = stack(63);
    let listener = std::net::TcpListener::bind(ours(63, 1, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            std::thread::spawn(move || serve(stream));
        }
    });
    run(async {
        let stream = TcpStream::connect(&stack, address).await.expect("it listens");
        let (mut client, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("a start");
        let driving = tokio::spawn(connection);
        // One connection for all of them, kept alive.
        for len in [0, 1, 1_000, 100_000, 3_000_000] {
            let request = Request::get(format!("/{len}")).header("host", "kernel");
            let request = request.body(Empty::<Bytes>::new()).expect("a request");
            client.ready().await.expect("the connection is kept");
            let response = client.send_request(request).await.expect("an answer");
            assert_eq!(response.status(), 200);
            let body = response.into_body().collect().await.expect("all of it").to_bytes();
            assert!(body == bytes(len, len), "{len} bytes came otherwise");
        }
        drop(client);
        driving.await.expect("it went well").expect("closed in order");
    });
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let seed: usize = request.uri().path().trim_start_matches('/').parse().unwrap_or(0);
    let body = request.into_body().collect().await.map(|body| body.to_bytes());
    // What was sent, each byte changed by one of the stream that the path names.
    let changed = body.iter().flatten().enumerate();
    let changed: Vec<u8> = changed.map(|(at, sent)| sent ^ byte(seed, at)).collect();
    Ok(Response::new(Full::new(Bytes::from(changed))))
}

fn hyper_server() {
    let stack = stack(64);
    let address = ours(64, 2, 80);
    let clients = std::thread::spawn(move || {
        let clients = (1..=10).map(|seed: usize| {
            std::thread::spawn(move || {
                let mut stream = std::net::TcpStream::connect(address).expect("it listens");
                let sent = bytes(seed + 100, 50_000 * seed);
                write!(
                    stream,
                    "POST /{seed} HTTP/1.1\r\nhost: stack\r\nconnection: close\r\n\
                     content-length: {}\r\n\r\n",
                    sent.len()
                )
                .expect("the server reads");
                stream.write_all(&sent).expect("the server reads");
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer).expect("the server answers");
                let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("headers");
                assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
                let body = &answer[end + 4..];
                let expected = sent.iter().enumerate().map(|(at, sent)| sent ^ byte(seed, at));
                assert!(expected.eq(body.iter().copied()), "answer {seed} came otherwise");
            })
        });
        clients.collect::<Vec<_>>().into_iter().for_each(|it| it.join().expect("no client failed"));
    });
    run(async move {
        let listener = TcpListener::bind(&stack, address).expect("a free port");
        let mut served = Vec::new();
        for _ in 0..10 {
            let (stream, _) = listener.accept().await.expect("it came");
            served.push(tokio::spawn(async move {
                let server = hyper::server::conn::http1::Builder::new();
                let connection = server.serve_connection(TokioIo::new(stream), service_fn(answer));
                connection.await.expect("ended in order");
            }));
        }
        for connection in served {
            connection.await.expect("it went well");
        }
        tokio::task::spawn_blocking(move || clients.join())
            .await
            .expect("a thread")
            .expect("all well");
    });
}
