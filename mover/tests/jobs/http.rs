//! Bodies by HTTP: an endpoint takes one, once, and its client hears what the gateway says.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use wire::{
    id::{ChannelId, FileId, MoverId},
    mover::{
        Admission, Answer, BodySpec, BodySum, Call, ChannelSpec, Coding, FaultKind, Framing, HttpAnswer, HttpDoor,
        Open, Request, Sink, Ticket,
    },
};

use super::kit::*;

/// A mover with an HTTP door in clear, a gateway, and the door.
async fn pair(site: &Site) -> (Running, Gateway, HttpDoor) {
    let mut config = site.config();
    config.http.listen_clear = Some(([127, 0, 0, 1], 0).into());
    let running = site.start(config).await;
    let mut gateway = site.gateway(&running, "gw1", 1).await;
    let door = match gateway.call(Call::Status).await {
        Ok(Answer::Status(status)) => *status.http.expect("a door"),
        other => panic!("{other:?}"),
    };
    (running, gateway, door)
}

async fn endpoint(gateway: &mut Gateway, body: BodySpec) -> ChannelId {
    let spec = ChannelSpec { open: Open::Http { body }, ..listening(Framing::Stream) };
    let (channel, address) = gateway.open(spec).await.expect("it opens");
    assert_eq!(address, None);
    channel
}

/// What a client is sent to, if it comes in so many seconds.
fn target(door: &HttpDoor, channel: ChannelId, seconds: i64) -> String {
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap();
    let mover = MoverId::new("m1").unwrap();
    let ticket = Ticket::Write(Admission { mover, expires_us: now + seconds * 1_000_000, channel });
    format!("/b/key?penstock-grant={}", daemon::grant::seal(&door.key.0, &ticket.encode().unwrap()))
}

async fn dial(door: &HttpDoor) -> TcpStream {
    let address = door.clear.as_ref().unwrap().strip_prefix("http://").unwrap().to_owned();
    TcpStream::connect(address).await.expect("it listens")
}

/// Sends a request and reads to the end of the connection.
async fn ask(door: &HttpDoor, text: &str) -> String {
    let mut socket = dial(door).await;
    socket.write_all(text.as_bytes()).await.unwrap();
    rest(socket).await
}

async fn rest(mut socket: TcpStream) -> String {
    let mut said = Vec::new();
    let read = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut said)).await.expect("it ends");
    read.unwrap();
    String::from_utf8(said).unwrap()
}

/// Reads until the client has been told something whole.
async fn line(socket: &mut TcpStream, end: &str) -> String {
    let mut said = Vec::new();
    while !said.ends_with(end.as_bytes()) {
        let mut byte = [0];
        let read = tokio::time::timeout(PATIENCE, socket.read(&mut byte)).await.expect("it says something").unwrap();
        assert_ne!(read, 0, "{}", String::from_utf8_lossy(&said));
        said.push(byte[0]);
    }
    String::from_utf8(said).unwrap()
}

fn fine() -> HttpAnswer {
    HttpAnswer { status: 200, headers: vec![("etag".to_owned(), "\"t\"".to_owned())], body: Vec::new() }
}

#[tokio::test]
async fn a_body_in_chunks_of_s3_is_stored_summed_and_answered_as_the_gateway_says() {
    let site = Site::new();
    let (_running, mut gateway, door) = pair(&site).await;
    let body = BodySpec {
        coding: Coding::AwsChunked,
        sum: Some(BodySum::Crc32),
        trailer: Some("x-amz-checksum-crc32".into()),
    };
    let channel = endpoint(&mut gateway, body).await;
    let file = FileId(number());
    let transfer = gateway.start(from(channel, Some(range(0, 9))), Sink::File(new_file(file))).await;
    let mut socket = dial(&door).await;
    let head = format!(
        "PUT {} HTTP/1.1\r\nHost: elsewhere\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n",
        target(&door, channel, 60)
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(line(&mut socket, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    let inner = "4\r\n1234\r\n5\r\n56789\r\n0\r\nx-amz-checksum-crc32:y/Q5Jg==\r\n\r\n";
    let outer = format!("{:x}\r\n{inner}\r\n0\r\n\r\n", inner.len());
    for piece in outer.as_bytes().chunks(3) {
        socket.write_all(piece).await.unwrap();
    }
    let outcome = gateway.end(transfer).await.expect("it is stored");
    let report = *outcome.body.expect("what the body said");
    assert_eq!((hex(&report.sum.unwrap()), report.trailer.as_deref()), ("cbf43926".to_owned(), Some("y/Q5Jg==")));
    assert_eq!((outcome.bytes, outcome.written.len()), (9, 1));
    // As the gateway does: it lets go of the endpoint before it has made the answer.
    gateway.say(&Request::CloseChannel { channel }).await;
    gateway.say(&Request::Answer { channel, answer: fine() }).await;
    let answer = line(&mut socket, "content-length: 0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("etag: \"t\"\r\n"), "{answer}");
    assert_eq!(content(&site.volume_folder(VOLUME), file), b"123456789");
    // The connection goes on.
    socket.write_all(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").await.unwrap();
    assert!(rest(socket).await.starts_with("HTTP/1.1 403 "));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_ticket_is_used_once_in_time_and_for_what_it_is() {
    let site = Site::new();
    let (_running, mut gateway, door) = pair(&site).await;
    let channel = endpoint(&mut gateway, BodySpec::default()).await;
    let put = |target: &str| format!("PUT {target} HTTP/1.1\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc");
    let late = ask(&door, &put(&target(&door, channel, -1))).await;
    assert!(late.starts_with("HTTP/1.1 403 ") && late.contains("expired"), "{late}");
    let read = ask(&door, &format!("GET {} HTTP/1.1\r\nConnection: close\r\n\r\n", target(&door, channel, 60))).await;
    assert!(read.starts_with("HTTP/1.1 403 ") && read.contains("to write"), "{read}");
    let unknown = ask(&door, &put(&target(&door, ChannelId(number()), 60))).await;
    assert!(unknown.starts_with("HTTP/1.1 403 "), "{unknown}");

    let good = target(&door, channel, 60);
    let file = FileId(number());
    let transfer = gateway.start(from(channel, Some(range(0, 3))), Sink::File(new_file(file))).await;
    let (door_of, text) = (door.clone(), put(&good));
    let first = tokio::spawn(async move { ask(&door_of, &text).await });
    assert_eq!(gateway.end(transfer).await.expect("it is stored").bytes, 3);
    let again = ask(&door, &put(&good)).await;
    assert!(again.starts_with("HTTP/1.1 403 ") && again.contains("was used"), "{again}");
    gateway.say(&Request::Answer { channel, answer: fine() }).await;
    assert!(first.await.unwrap().starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_body_that_is_cut_short_or_broken_is_no_file_and_its_client_hears_the_gateway() {
    let site = Site::new();
    let (_running, mut gateway, door) = pair(&site).await;
    // Cut in the middle.
    let channel = endpoint(&mut gateway, BodySpec::default()).await;
    let transfer = gateway.start(from(channel, Some(range(0, 10))), Sink::File(new_file(FileId(number())))).await;
    let mut socket = dial(&door).await;
    let text = format!("PUT {} HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc", target(&door, channel, 60));
    socket.write_all(text.as_bytes()).await.unwrap();
    drop(socket);
    let (fault, _) = gateway.end(transfer).await.expect_err("it is cut");
    assert_eq!(fault.kind, FaultKind::PeerLost, "{fault}");
    // Shorter or longer than the gateway was told, or no chunks.
    for (framing, body, kind) in [
        ("Content-Length: 3", "abc", FaultKind::Incomplete),
        ("Content-Length: 11", "abcdefghijk", FaultKind::TooLong),
        ("Transfer-Encoding: chunked", "z\r\n", FaultKind::PeerProtocol),
    ] {
        let channel = endpoint(&mut gateway, BodySpec::default()).await;
        let transfer = gateway.start(from(channel, Some(range(0, 10))), Sink::File(new_file(FileId(number())))).await;
        let text =
            format!("PUT {} HTTP/1.1\r\n{framing}\r\nConnection: close\r\n\r\n{body}", target(&door, channel, 60));
        let door = door.clone();
        let client = tokio::spawn(async move { ask(&door, &text).await });
        let (fault, _) = gateway.end(transfer).await.expect_err("it is refused");
        assert_eq!(fault.kind, kind, "{fault}");
        let answer = HttpAnswer { status: 400, headers: Vec::new(), body: b"<Error/>".to_vec() };
        gateway.say(&Request::Answer { channel, answer }).await;
        let said = client.await.unwrap();
        assert!(said.starts_with("HTTP/1.1 400 ") && said.ends_with("<Error/>"), "{said}");
    }
    let whole: Vec<_> = gateway.files(VOLUME).await.into_iter().filter(|(_, length, _)| *length >= 10).collect();
    assert!(whole.is_empty(), "{whole:?}");
}

#[tokio::test]
async fn a_client_whose_gateway_was_started_anew_is_told_to_ask_again() {
    let site = Site::new();
    let (running, mut gateway, door) = pair(&site).await;
    let channel = endpoint(&mut gateway, BodySpec::default()).await;
    let transfer = gateway.start(from(channel, None), Sink::File(new_file(FileId(number())))).await;
    let text =
        format!("PUT {} HTTP/1.1\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc", target(&door, channel, 60));
    let client = tokio::spawn(async move { ask(&door, &text).await });
    gateway.end(transfer).await.expect("it is stored");
    drop(gateway);
    let _again = site.gateway(&running, "gw1", 2).await;
    let said = client.await.unwrap();
    assert!(said.starts_with("HTTP/1.1 503 ") && said.contains("retry-after: 1"), "{said}");
}
