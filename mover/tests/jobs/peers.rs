//! Peers of data connections: they speak extended block mode as well, or as badly, as a test wants.

use std::{collections::BTreeMap, net::SocketAddr};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use wire::mode_e::{HEADER_BYTES, Header};

use super::kit::{PATIENCE, range};

/// A port of the test, to be connected to.
pub(crate) async fn port() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("it has one");
    (listener, address)
}

pub(crate) async fn accept(listener: &TcpListener) -> TcpStream {
    tokio::time::timeout(PATIENCE, listener.accept()).await.expect("it connects").expect("it connects").0
}

pub(crate) async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.expect("it listens")
}

/// Sends one block.
pub(crate) async fn send_block(
    stream: &mut (impl AsyncWrite + Unpin),
    offset: u64,
    data: &[u8],
) -> std::io::Result<()> {
    stream.write_all(&Header::data(range(offset, data.len() as u64)).encode()).await?;
    stream.write_all(data).await
}

/// Ends one connection; the first one also says how many there were.
pub(crate) async fn send_end(stream: &mut (impl AsyncWrite + Unpin), of: Option<u64>) {
    let header = of.map_or(Header::end_of_data(false), |of| Header::end_of_file(of, false));
    stream.write_all(&header.encode()).await.expect("it reads");
    stream.flush().await.expect("it reads");
}

/// What one connection got.
#[derive(Default, Debug)]
pub(crate) struct Got {
    pub(crate) blocks: BTreeMap<u64, Vec<u8>>,
    pub(crate) announced: Option<u64>,
}

/// Receives blocks to the end of one connection's data.
pub(crate) async fn receive_blocks(stream: &mut (impl AsyncRead + Unpin)) -> Got {
    let mut got = Got::default();
    loop {
        let mut header = [0; HEADER_BYTES];
        stream.read_exact(&mut header).await.expect("a header");
        match Header::decode(&header).expect("a good header") {
            Header::EndOfFile { channels, end_of_data, .. } => {
                got.announced = Some(channels);
                if end_of_data {
                    return got;
                }
            }
            Header::Block { range, end_of_data, .. } => {
                let mut data = vec![0; usize::try_from(range.length()).expect("small")];
                stream.read_exact(&mut data).await.expect("the block's data");
                if !data.is_empty() {
                    got.blocks.insert(range.offset(), data);
                }
                if end_of_data {
                    return got;
                }
            }
        }
    }
}

/// Puts together what several connections got; panics if anything is missing or there twice.
pub(crate) fn assemble(parts: Vec<Got>) -> Vec<u8> {
    let mut whole = Vec::new();
    let connections = parts.len() as u64;
    let announced: Vec<_> = parts.iter().filter_map(|got| got.announced).collect();
    assert_eq!(announced, [connections], "one connection says how many there are");
    let blocks: Vec<_> = parts.into_iter().flat_map(|got| got.blocks).collect();
    let sorted: BTreeMap<_, _> = blocks.iter().map(|(offset, data)| (*offset, data)).collect();
    assert_eq!(sorted.len(), blocks.len(), "a block came twice");
    for (offset, data) in sorted {
        assert_eq!(offset, whole.len() as u64, "a block is missing");
        whole.extend_from_slice(data);
    }
    whole
}
