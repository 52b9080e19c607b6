//! What Penstock is compared with: other programs and bare sockets, each moving the same bytes on the same machine.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde::Deserialize;

use super::process::{self, Running, free_ports};
use super::sink::{Arrival, Framing, Manner, Sink, stay_on};

/// How long one measurement of another program may take.
const LIMIT: Duration = Duration::from_secs(600);
/// How long a server gets to listen.
const START_LIMIT: Duration = Duration::from_secs(20);
/// What bare sockets send at once.
const BLOCK_BYTES: usize = 256 << 10;

/// Bytes a second in 10^9.
#[must_use]
pub fn gigabytes_per_second(bytes: u64, elapsed: Duration) -> f64 {
    bytes as f64 / elapsed.as_secs_f64() / 1e9
}

/// What `iperf3` receives over loopback, in GB/s: `bytes` over `streams` connections, of one block in its memory over and
/// over, or of a file of that length.
///
/// # Errors
///
/// If it cannot be run or its report makes no sense.
pub async fn iperf3(bytes: u64, streams: u16, file: Option<&Path>, log: &Path) -> anyhow::Result<f64> {
    let port = free_ports(1)?.to_string();
    let mut server = Command::new("iperf3");
    server.args(["--server", "--bind", "127.0.0.1", "--port", &port, "--forceflush"]);
    let mut server = Running::start(&server, log)?;
    let listening = || std::fs::read_to_string(log).is_ok_and(|text| text.contains("listening")).then_some(());
    server.wait_for("an open port", START_LIMIT, listening).await?;
    let mut client = Command::new("iperf3");
    client.args(["--client", "127.0.0.1", "--port", &port, "--json", "--parallel", &streams.to_string()]);
    client.arg("--bytes").arg(bytes.to_string());
    if let Some(file) = file {
        client.arg("--file").arg(file);
    }
    let text = process::run(&client, LIMIT).await?;
    server.stop().await;
    iperf3_rate(&text)
}

/// The receiver's sum in an `iperf3 --json` report, in GB/s.
fn iperf3_rate(text: &str) -> anyhow::Result<f64> {
    #[derive(Deserialize)]
    struct Report {
        end: End,
    }
    #[derive(Deserialize)]
    struct End {
        sum_received: Sum,
    }
    #[derive(Deserialize)]
    struct Sum {
        bits_per_second: f64,
    }
    let report: Report = serde_json::from_str(text).context("read the report of iperf3")?;
    Ok(report.end.sum_received.bits_per_second / 8e9)
}

/// What `dd conv=fsync` writes, in GB/s: a cached file to a new one.
///
/// # Errors
///
/// If it cannot be run.
pub async fn dd(from: &Path, to: &Path, bytes: u64) -> anyhow::Result<f64> {
    let mut command = Command::new("dd");
    command.args(["bs=1M", "conv=fsync", "status=none"]);
    command.arg(format!("if={}", from.display())).arg(format!("of={}", to.display()));
    let began = Instant::now();
    process::run(&command, LIMIT).await?;
    let elapsed = began.elapsed();
    ensure!(std::fs::metadata(to)?.len() == bytes, "dd copied a part");
    std::fs::remove_file(to)?;
    Ok(gigabytes_per_second(bytes, elapsed))
}

/// What bare blocking sockets carry from memory, a thread for each end, in GB/s.
///
/// # Errors
///
/// If a connection breaks.
pub async fn sockets(bytes: u64, streams: u16) -> anyhow::Result<f64> {
    let (sink, address) = Sink::listen(Manner::clear(Framing::Stream), bytes)?;
    let began = Instant::now();
    let share = bytes.div_ceil(u64::from(streams));
    for stream in 0..u64::from(streams) {
        let part = share.min(bytes - (share * stream).min(bytes));
        std::thread::spawn(move || TcpStream::connect(address).and_then(|socket| send(socket, part)));
    }
    Ok(gigabytes_per_second(bytes, sink.arrival().await?.last - began))
}

/// Sends so many bytes from memory.
pub(super) fn send(mut stream: impl io::Write, mut bytes: u64) -> io::Result<()> {
    let block = vec![0x5a; BLOCK_BYTES];
    while bytes > 0 {
        let part = bytes.min(BLOCK_BYTES as u64);
        stream.write_all(&block[..usize::try_from(part).unwrap_or(BLOCK_BYTES)])?;
        bytes -= part;
    }
    stream.flush()
}

/// What rustls alone carries from memory over one connection, in GB/s, and the suite that was agreed on.
///
/// With a core, both ends stay on it.
///
/// # Errors
///
/// If the connection breaks.
pub async fn rustls_pair(
    server: Arc<ServerConfig>,
    client: Arc<rustls::ClientConfig>,
    bytes: u64,
    core: Option<usize>,
) -> anyhow::Result<(f64, String)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let sending = std::thread::spawn(move || -> io::Result<String> {
        stay_on(core)?;
        let (mut socket, _) = listener.accept()?;
        socket.set_nodelay(true)?;
        let mut connection = ServerConnection::new(server).map_err(io::Error::other)?;
        connection.set_buffer_limit(Some(BLOCK_BYTES * 2));
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        let suite = connection.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite()));
        let mut stream = StreamOwned::new(connection, socket);
        send(&mut stream, bytes)?;
        stream.conn.send_close_notify();
        stream.flush()?;
        Ok(suite.unwrap_or_default())
    });
    let manner = Manner { framing: Framing::Stream, tls: Some(client), core };
    let Arrival { first, last } = Sink::connect(manner, address, bytes)?.arrival().await?;
    let suite = sending.join().map_err(|_| anyhow::anyhow!("the sending thread panicked"))??;
    Ok((gigabytes_per_second(bytes, last - first), suite))
}

/// An nginx that serves one folder in clear, as fast as it can.
#[derive(Debug)]
pub struct Nginx {
    _server: Running,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Nginx {
    /// Serves the files of `root`; keeps its own in `folder`.
    ///
    /// # Errors
    ///
    /// If it does not start.
    pub async fn start(root: &Path, folder: &Path) -> anyhow::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_ports(1)?));
        let kept = |name: &str| folder.join(name).display().to_string();
        let text = format!(
            "daemon off;\nmaster_process off;\npid {pid};\nerror_log stderr;\nevents {{ }}\n\
             http {{\n  access_log off;\n  sendfile on;\n  sendfile_max_chunk 2m;\n  tcp_nopush on;\n\
             \x20 client_body_temp_path {temp};\n  proxy_temp_path {temp};\n  fastcgi_temp_path {temp};\n\
             \x20 uwsgi_temp_path {temp};\n  scgi_temp_path {temp};\n\
             \x20 server {{\n    listen {address};\n    root {root};\n  }}\n}}\n",
            pid = kept("nginx.pid"),
            temp = kept("nginx-temp"),
            root = root.display(),
        );
        let configuration = folder.join("nginx.conf");
        std::fs::write(&configuration, text)?;
        let mut command = Command::new("nginx");
        command.arg("-c").arg(&configuration).arg("-e").arg("stderr").arg("-p").arg(folder);
        let mut server = Running::start(&command, &folder.join("nginx.log"))?;
        server.wait_for_port(address, START_LIMIT).await?;
        Ok(Self { _server: server, address })
    }
}

/// A download by curl.
#[derive(Clone, Debug)]
pub struct Curl {
    /// What to fetch.
    pub url: String,
    /// Certificate and key, and the authority of the server's; for FTP over TLS.
    pub credential: Option<(PathBuf, PathBuf)>,
    /// What else curl is told.
    pub options: Vec<String>,
}

impl Curl {
    /// What curl receives into `/dev/null` from its first byte on, in GB/s.
    ///
    /// # Errors
    ///
    /// If it fails.
    pub async fn rate(&self, bytes: u64) -> anyhow::Result<f64> {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--fail", "--output", "/dev/null"]);
        command.args(["--write-out", "%{size_download} %{time_starttransfer} %{time_total}"]);
        if let Some((credential, authority)) = &self.credential {
            // The control connection over TLS, data in clear, we connect to the mover.
            command.args(["--ssl-reqd", "--ftp-ssl-control"]);
            command.arg("--cert").arg(credential).arg("--key").arg(credential).arg("--cacert").arg(authority);
        }
        let text = process::run(command.args(&self.options).arg(&self.url), LIMIT).await?;
        let mut numbers = text.split(' ').map(str::parse::<f64>);
        let mut next = || numbers.next().context("curl said too little")?.context("curl said no number");
        let (size, first, last): (f64, f64, f64) = (next()?, next()?, next()?);
        ensure!(size as u64 == bytes, "curl received {size} of {bytes} bytes");
        Ok(gigabytes_per_second(bytes, Duration::from_secs_f64((last - first).max(1e-6))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_iperf3_is_what_its_receiver_got() {
        let text = r#"{"end":{"sum_sent":{"bits_per_second":1e9},"sum_received":{"bits_per_second":8e9}}}"#;
        assert_eq!(iperf3_rate(text).unwrap(), 1.0);
        assert!(iperf3_rate("{}").is_err());
    }

    #[tokio::test]
    async fn bare_sockets_carry_every_byte_over_any_number_of_streams() {
        for streams in [1, 3, 4] {
            assert!(sockets(1_000_001, streams).await.unwrap() > 0.0);
        }
    }
}
