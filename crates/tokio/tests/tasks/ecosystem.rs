//! What is built on tokio's traits runs over the sockets: TLS by rustls, HTTP by hyper, both at once.

use crate::pair::{bytes, connected, pair, run};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use multidata_tokio::TcpStream;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// A certificate that the server made for itself, and a client that trusts this one only.
fn acquaintances() -> (TlsConnector, TlsAcceptor) {
    let made = rcgen::generate_simple_self_signed(["stack".to_owned()]).expect("a certificate");
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).expect("a certificate");
    let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let server = ServerConfig::builder().with_no_client_auth();
    let server = server.with_single_cert(vec![certificate], key).expect("they belong together");
    (Arc::new(client).into(), Arc::new(server).into())
}

async fn secured(
    client: TcpStream,
    server: TcpStream,
) -> (client::TlsStream<TcpStream>, server::TlsStream<TcpStream>) {
    let (connector, acceptor) = acquaintances();
    let name = ServerName::try_from("stack").expect("a name");
    let (client, server) = tokio::join!(connector.connect(name, client), acceptor.accept(server));
    (client.expect("a known certificate"), server.expect("a handshake"))
}

#[test]
fn tls_carries_bytes_both_ways() {
    run(async {
        let (left, right_stack) = pair();
        let (client, server) = connected(&left, &right_stack).await;
        let (client, mut server) = secured(client, server).await;
        let total = 2_000_000;
        let echoing = tokio::spawn(async move {
            let (mut reader, mut writer) = tokio::io::split(&mut server);
            tokio::io::copy(&mut reader, &mut writer).await.expect("the client reads");
            writer.shutdown().await.expect("the client waits for the end");
        });
        let (mut reader, mut writer) = tokio::io::split(client);
        let writing = tokio::spawn(async move {
            writer.write_all(&bytes(3, total)).await.expect("the server reads");
            writer.shutdown().await.expect("the server waits for the end");
        });
        let mut echo = Vec::new();
        // Without the alert at its end a TLS stream was cut short, and the read would say so.
        reader.read_to_end(&mut echo).await.expect("ended in order");
        assert!(echo == bytes(3, total));
        writing.await.expect("it went well");
        echoing.await.expect("it went well");
    });
}

#[test]
fn a_certificate_of_somebody_else_is_refused() {
    run(async {
        let (left, right_stack) = pair();
        let (client, server) = connected(&left, &right_stack).await;
        let ((connector, _), (_, acceptor)) = (acquaintances(), acquaintances());
        let name = ServerName::try_from("stack").expect("a name");
        let (client, server) =
            tokio::join!(connector.connect(name, client), acceptor.accept(server));
        assert!(client.is_err() && server.is_err());
    });
}

async fn length(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.expect("all of it").to_bytes();
    Ok(Response::new(Full::new(body)))
}

#[test]
fn hyper_speaks_http_over_tls() {
    run(async {
        let (left, right_stack) = pair();
        let (client, server) = connected(&left, &right_stack).await;
        let (client, server) = secured(client, server).await;
        let serving = tokio::spawn(async move {
            let server_side = hyper::server::conn::http1::Builder::new();
            server_side.serve_connection(TokioIo::new(server), service_fn(length)).await
        });
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(client)).await.expect("a start");
        let driving = tokio::spawn(connection);
        for len in [1, 10_000, 1_000_000] {
            let body = Full::new(Bytes::from(bytes(len, len)));
            let request = Request::post("/").header("host", "stack").body(body);
            sender.ready().await.expect("the connection is kept");
            let response = sender.send_request(request.expect("a request")).await;
            let body = response.expect("an answer").into_body().collect().await;
            assert!(body.expect("all of it").to_bytes() == bytes(len, len));
        }
        drop(sender);
        driving.await.expect("it went well").expect("closed in order");
        serving.await.expect("it went well").expect("closed in order");
    });
}
