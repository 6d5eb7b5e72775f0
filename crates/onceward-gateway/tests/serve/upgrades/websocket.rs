//! A WebSocket, as clients and servers really speak it.

use std::sync::Arc;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{
        Message,
        client::IntoClientRequest as _,
        http::Response,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};

use super::upstream;
use crate::gateway_support::{
    Call, Certificates, Gateway, Plan, TEST_TIMEOUT, eventually, pattern, route, route_for,
};

const TUNNELS: &str = "onceward_gateway_tunnels";

/// Opens a WebSocket over this connection, with the head of the answer.
async fn opened<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
) -> (WebSocketStream<S>, Response<Option<Vec<u8>>>) {
    let mut request = "ws://gateway/socket?room=7".into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "chat.v2, chat.v1".parse().unwrap());
    request.headers_mut().insert("connection", "keep-alive, Upgrade".parse().unwrap());
    let opened = timeout(TEST_TIMEOUT, client_async(request, stream)).await;
    opened.expect("it does not open").unwrap()
}

async fn heard<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut WebSocketStream<S>) -> Message {
    let message = timeout(TEST_TIMEOUT, socket.next()).await.expect("nothing comes");
    message.expect("it has ended").unwrap()
}

/// Says this and that, hears it again, and says goodbye.
async fn talk<S: AsyncRead + AsyncWrite + Unpin>(stream: S) {
    let (mut socket, head) = opened(stream).await;
    assert_eq!(head.status(), 101);
    assert_eq!(head.headers()["sec-websocket-protocol"], "chat.v2");
    for message in [
        Message::text("Grüße"),
        Message::binary(pattern(1 << 20)),
        Message::text(""),
        Message::binary(pattern(3)),
    ] {
        socket.send(message.clone()).await.unwrap();
        assert_eq!(heard(&mut socket).await, message);
    }
    socket.send(Message::Ping("are you there".into())).await.unwrap();
    assert_eq!(heard(&mut socket).await, Message::Pong("are you there".into()));
    let goodbye = CloseFrame { code: CloseCode::Normal, reason: "that was all".into() };
    socket.close(Some(goodbye.clone())).await.unwrap();
    assert_eq!(heard(&mut socket).await, Message::Close(Some(goodbye)));
    assert!(timeout(TEST_TIMEOUT, socket.next()).await.expect("it stays open").is_none());
}

async fn has_no_tunnel(gateway: &Gateway) {
    eventually("the tunnel is gone", || async { gateway.metric(TUNNELS).await == 0 }).await;
    let answers = "onceward_gateway_upstream_answers";
    eventually("its place is free", || async { gateway.metric(answers).await == 0 }).await;
}

#[tokio::test]
async fn a_websocket_goes_through() {
    let upstream = upstream::websocket().await;
    let routes = [
        "".to_owned(),
        route_for("GET /{*rest}", "key = \"off\"\nretry = \"standard\"\nhedge = true\nlimit = 2"),
    ];
    for routes in routes {
        let text = format!("admin = \"127.0.0.1:0\"\n{}{routes}", route(""));
        let gateway = Plan::new(&format!("http://{upstream}"), &text).start();
        for _ in 0..3 {
            talk(TcpStream::connect(gateway.address).await.unwrap()).await;
        }
        has_no_tunnel(&gateway).await;
        gateway.assert_well();
    }
}

#[tokio::test]
async fn a_websocket_goes_through_tls() {
    let upstream = upstream::websocket().await;
    let tls = "[tls]\ncert = \"server.pem\"\nkey = \"server.key\"\n";
    let text = format!("admin = \"127.0.0.1:0\"\n{tls}{}", route(""));
    let plan = Plan::new(&format!("http://{upstream}"), &text);
    if Certificates::make(plan.directory.path(), &[]).is_none() {
        return;
    }
    let gateway = plan.start();
    // As browsers do it: a connection of its own, without HTTP/2.
    let mut config = Certificates::client(gateway.directory.path(), None);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let name = ServerName::from(gateway.address.ip());
    talk(TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()).await;
    has_no_tunnel(&gateway).await;
}

#[tokio::test]
async fn many_websockets_are_open_at_once_and_each_has_its_own_messages() {
    const SOCKETS: usize = 100;
    let upstream = upstream::websocket().await;
    let text = format!("admin = \"127.0.0.1:0\"\n{}", route(""));
    let gateway = Plan::new(&format!("http://{upstream}"), &text).start();
    let mut sockets = Vec::new();
    for number in 0..SOCKETS {
        let stream = TcpStream::connect(gateway.address).await.unwrap();
        let mut socket = opened(stream).await.0;
        socket.send(Message::text(format!("I am {number}"))).await.unwrap();
        sockets.push(socket);
    }
    assert_eq!(gateway.metric(TUNNELS).await, SOCKETS as u64);
    for (number, socket) in sockets.iter_mut().enumerate() {
        assert_eq!(heard(socket).await, Message::text(format!("I am {number}")));
    }
    // What is no upgrade is answered beside them.
    assert!(gateway.send(&Call::new("GET", "/")).await.status >= 400);
    drop(sockets);
    has_no_tunnel(&gateway).await;
}
