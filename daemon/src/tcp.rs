//! What the kernel knows of a TCP connection, and which congestion control it has.
//!
//! Owns nothing. Talks to the kernel. Never changes a connection, except for its pace where it is asked to.
//!
//! # Source
//!
//! Linux, `include/uapi/linux/tcp.h` (`struct tcp_info`) and `include/uapi/asm-generic/socket.h`.

use std::{
    fmt, io,
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

use serde::Serialize;

/// How much of `struct tcp_info` is read: up to and with `tcpi_sndbuf_limited`, which Linux 4.10 and later have.
const INFO_BYTES: usize = 192;

/// `include/uapi/asm-generic/socket.h`.
const SO_MAX_PACING_RATE: libc::c_int = 47;

/// What a connection was like, since it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct TcpFigures {
    /// Smoothed round-trip time, in microseconds: as its sender sees it; as its receiver guesses it, if it only received.
    pub rtt_us: u32,
    /// The smallest round-trip time, in microseconds; 0 if none was measured.
    pub min_rtt_us: u32,
    /// Segments that were sent again.
    pub retransmits: u32,
    /// Data segments that were sent.
    pub segments_sent: u32,
    /// The congestion window, in segments.
    pub window_segments: u32,
    /// Bytes that were sent and acknowledged.
    pub sent_bytes: u64,
    /// Bytes that came.
    pub received_bytes: u64,
    /// For how long there was something to send, in microseconds.
    pub busy_us: u64,
    /// For how long of it the receiver's window was the limit.
    pub receiver_limited_us: u64,
    /// For how long of it our own send buffer was the limit.
    pub buffer_limited_us: u64,
}

/// What held a sending connection back most of the time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitedBy {
    /// Too little was there to send: the disk, or the program.
    Sender,
    /// The receiver did not take more.
    Receiver,
    /// The path: its rate, its congestion, its losses.
    Network,
}

impl LimitedBy {
    /// The word for metrics and displays.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
            Self::Network => "network",
        }
    }
}

impl fmt::Display for LimitedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl TcpFigures {
    /// What held the connection back, of `elapsed` in which data was to be sent; `None` if this end sent next to nothing.
    ///
    /// The kernel counts the time with unsent or unacknowledged data ("busy"), and of it the time in which the peer's
    /// window or our send buffer was full. A full send buffer in front of a slow path is the path's doing only if the
    /// buffer could not grow: it counts as the sender's.
    #[must_use]
    pub fn limited_by(&self, elapsed: Duration) -> Option<LimitedBy> {
        if self.sent_bytes < 64 << 10 {
            return None;
        }
        let elapsed = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        let idle = elapsed.saturating_sub(self.busy_us);
        let network = self.busy_us.saturating_sub(self.receiver_limited_us + self.buffer_limited_us);
        let candidates = [
            (network, LimitedBy::Network),
            (self.receiver_limited_us, LimitedBy::Receiver),
            (self.buffer_limited_us + idle, LimitedBy::Sender),
        ];
        candidates.into_iter().max_by_key(|(time, _)| *time).map(|(_, by)| by)
    }

    fn decode(info: &[u8; INFO_BYTES]) -> Self {
        let u32_at = |at: usize| u32::from_ne_bytes(*info[at..].first_chunk().expect("inside the structure"));
        let u64_at = |at: usize| u64::from_ne_bytes(*info[at..].first_chunk().expect("inside the structure"));
        let (sender_rtt, receiver_rtt) = (u32_at(68), u32_at(92));
        let sent_bytes = u64_at(120);
        Self {
            // Who has sent nothing but acknowledgements has the round trip of the handshake, at best.
            rtt_us: if sent_bytes <= 1 && receiver_rtt > 0 { receiver_rtt } else { sender_rtt },
            min_rtt_us: match u32_at(148) {
                u32::MAX => 0,
                time => time,
            },
            retransmits: u32_at(100),
            segments_sent: u32_at(156),
            window_segments: u32_at(80),
            sent_bytes,
            received_bytes: u64_at(128),
            busy_us: u64_at(168),
            receiver_limited_us: u64_at(176),
            buffer_limited_us: u64_at(184),
        }
    }
}

/// Asks the kernel about a connection. Works until the socket is closed, also after its end.
///
/// # Errors
///
/// The kernel's own; `Unsupported` if it knows less than Linux 4.10 did.
#[allow(unsafe_code)]
pub fn figures(socket: &impl AsFd) -> io::Result<TcpFigures> {
    let mut info = [0_u8; INFO_BYTES];
    let mut length = INFO_BYTES as libc::socklen_t;
    // SAFETY: the socket is open while it is borrowed; the kernel writes at most `length` bytes into `info`, which is that
    // long, and says in `length` how many.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    if (length as usize) < INFO_BYTES {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(TcpFigures::decode(&info))
}

/// Has the kernel send at most so many bytes a second over this connection, spread evenly.
///
/// # Errors
///
/// The kernel's own.
#[allow(unsafe_code)]
pub fn pace(socket: &impl AsFd, bytes_per_second: u64) -> io::Result<()> {
    // SAFETY: the socket is open while it is borrowed; the kernel reads the eight bytes of the rate (Linux 4.20 and later
    // take 64 bits).
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MAX_PACING_RATE,
            (&raw const bytes_per_second).cast(),
            size_of::<u64>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The congestion controls that this kernel has loaded, and lets this process use.
#[must_use]
pub fn congestion_controls() -> Vec<String> {
    // Those not listed as allowed need CAP_NET_ADMIN.
    ["available", "allowed"]
        .iter()
        .filter_map(|kind| std::fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{kind}_congestion_control")).ok())
        .find(|text| !text.trim().is_empty())
        .map(|text| text.split_whitespace().map(str::to_owned).collect())
        .unwrap_or_default()
}

/// The most that the kernel lets one connection have on the way by itself, in bytes: the smaller of the largest receive
/// and send buffers, less what the kernel keeps for its own bookkeeping. `None` if it does not say.
///
/// Measured: a stream carries 0.60 to 0.66 of `tcp_rmem`'s third number in a round trip.
#[must_use]
pub fn largest_window_bytes() -> Option<u64> {
    let third = |name: &str| -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?;
        text.split_whitespace().nth(2)?.parse().ok()
    };
    third("tcp_rmem").into_iter().chain(third("tcp_wmem")).min().map(|bytes| bytes / 8 * 5)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    #[test]
    fn a_connection_over_loopback_tells_what_it_carried() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut sender = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (mut receiver, _) = listener.accept().expect("accepted");
        let data = vec![7; 200_000];
        let reading = std::thread::spawn(move || {
            let mut all = vec![0; 200_000];
            receiver.read_exact(&mut all).expect("it comes");
            figures(&receiver).expect("figures")
        });
        sender.write_all(&data).expect("sent");
        assert_eq!(reading.join().expect("read").received_bytes, 200_000);
        // The last acknowledgement may still be on its way.
        while figures(&sender).expect("figures").sent_bytes < 200_000 {
            std::thread::yield_now();
        }
        let sent = figures(&sender).expect("figures");
        assert!(sent.segments_sent > 0 && sent.rtt_us > 0 && sent.rtt_us < 1_000_000, "{sent:?}");
        pace(&sender, 1_000_000).expect("paced");
    }

    #[test]
    fn what_took_most_of_the_time_was_the_limit() {
        let second = Duration::from_secs(1);
        let sent = TcpFigures { sent_bytes: 1 << 20, busy_us: 1_000_000, ..TcpFigures::default() };
        assert_eq!(sent.limited_by(second), Some(LimitedBy::Network));
        assert_eq!(TcpFigures { busy_us: 100_000, ..sent }.limited_by(second), Some(LimitedBy::Sender));
        assert_eq!(TcpFigures { receiver_limited_us: 700_000, ..sent }.limited_by(second), Some(LimitedBy::Receiver));
        assert_eq!(TcpFigures::default().limited_by(second), None, "nothing was sent");
    }

    #[test]
    fn this_kernel_has_some_congestion_control_and_a_window() {
        assert!(!congestion_controls().is_empty());
        assert!(largest_window_bytes().expect("a limit") > 64 << 10);
    }
}
