//! What a session knows of the network, and what it asks of it: number of streams, buffers, who is told what when.
//!
//! Owns the rule by which the number of streams is chosen. Talks to the kernel (round-trip time, largest window). Never
//! measures by sending something of its own: what is known comes from the control connection and from earlier files.
//!
//! Buffers are left to the kernel, which grows them with what a path needs, unless somebody sets them.

use std::{io, net::IpAddr, time::Duration};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;
use wire::ftp::Command;

use crate::{Client, How, Ready, Result};

/// In [`How::streams`]: as many streams as round-trip time and rate need.
pub const AUTO: u16 = 0;

/// The most streams that are chosen without being told: from here on they take from each other.
const MOST: u16 = 16;

/// Bytes a second that a path is thought to carry until a file has told: 1 Gb/s.
const FIRST_GUESS: f64 = 125e6;

/// The window of one stream if the kernel does not say: what Linux has without tuning, 4 MiB, less its bookkeeping.
const USUAL_WINDOW_BYTES: u64 = (4 << 20) / 8 * 5;

/// A file that took less long says nothing about the rate: it was over before the windows had grown.
const SHORTEST: Duration = Duration::from_millis(500);

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// What a session knows of the network, and what was asked of it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Network {
    /// Size of both buffers of each data connection, at both ends; `None` leaves them to the kernel.
    pub(crate) buffer_bytes: Option<u32>,
    /// Passive addresses are asked for before the file is named.
    pub(crate) told_early: bool,
    /// The best rate of a file so far, in bytes a second.
    best_rate: f64,
}

/// How many streams fill a path.
///
/// One stream carries at most a window in a round trip. Twice as many as would do in theory are taken, because a stream
/// that loses a packet has half its window for a while, and the others must be able to make up for it. A path that is
/// short enough for one window gets one stream: more would only add connections.
#[must_use]
pub fn streams_for(rtt: Duration, bytes_per_second: f64, window_bytes: u64) -> u16 {
    let product = bytes_per_second.max(1.0) * rtt.as_secs_f64();
    let windows = product / window_bytes.max(1) as f64;
    if windows <= 0.5 {
        return 1;
    }
    // Saturates, and is then cut.
    ((windows * 2.0).ceil() as u16).clamp(1, MOST)
}

impl Client<Ready> {
    /// The round-trip time to the server, as the kernel sees it on the control connection: the least of all, or the
    /// smoothed one if there is no other. `None` if the kernel does not say.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        let figures = self.control.figures()?;
        let us = if figures.min_rtt_us > 0 { figures.min_rtt_us } else { figures.rtt_us };
        Some(Duration::from_micros(us.into()))
    }

    /// How many streams [`AUTO`] means now.
    #[must_use]
    pub fn automatic_streams(&self) -> u16 {
        let window = match self.state.network.buffer_bytes {
            // The kernel doubles what is asked for, and needs three eighths of that itself.
            Some(bytes) => u64::from(bytes) * 5 / 4,
            None => daemon::tcp::largest_window_bytes().unwrap_or(USUAL_WINDOW_BYTES),
        };
        let rate = FIRST_GUESS.max(self.state.network.best_rate);
        streams_for(self.round_trip().unwrap_or_default(), rate, window)
    }

    /// Sets the TCP buffers of data connections from now on, at both ends (`SBUF`); 0 leaves them to the kernel again at
    /// this end.
    ///
    /// # Errors
    ///
    /// If the server refuses.
    pub async fn set_buffers(&mut self, bytes: u32) -> Result<()> {
        if bytes > 0 {
            self.demand(&Command::Sbuf(bytes.into())).await?;
        }
        self.state.network.buffer_bytes = Some(bytes).filter(|bytes| *bytes > 0);
        Ok(())
    }

    /// Asks for passive addresses before the file is named, as clients do that know nothing better. The server has to
    /// guess which mover should listen; if it guesses wrong, data takes a second hop.
    pub fn set_told_early(&mut self, on: bool) {
        self.state.network.told_early = on;
    }

    /// As asked for, with the number of streams chosen if it is to be.
    pub(crate) fn with_streams(&self, how: &How) -> How {
        let streams = if how.streams == AUTO { self.automatic_streams() } else { how.streams };
        How { streams, ..how.clone() }
    }

    /// A file was moved.
    pub(crate) fn note_rate(&mut self, bytes: u64, streams: u16, took: Duration) {
        if took >= SHORTEST {
            let rate = bytes as f64 / took.as_secs_f64();
            tracing::debug!(bytes, streams, rate_bytes = rate as u64, rtt = ?self.round_trip(), "moved");
            self.state.network.best_rate = self.state.network.best_rate.max(rate);
        }
    }
}

/// Sets both buffers of a socket that is not connected yet: later, the window scale would not fit them.
pub(crate) fn set_buffers(socket: &Socket, bytes: Option<u32>) -> io::Result<()> {
    if let Some(bytes) = bytes.and_then(|bytes| usize::try_from(bytes).ok()) {
        socket.set_recv_buffer_size(bytes)?;
        socket.set_send_buffer_size(bytes)?;
    }
    Ok(())
}

/// Listens on a free port.
pub(crate) fn listen(local: IpAddr, buffer_bytes: Option<u32>) -> io::Result<TcpListener> {
    let address = std::net::SocketAddr::new(local, 0);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    set_buffers(&socket, buffer_bytes)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_gets_more_streams_and_a_short_one_does_with_one() {
        let at_a_gigabit =
            |milliseconds: f64| streams_for(Duration::from_secs_f64(milliseconds / 1e3), 125e6, USUAL_WINDOW_BYTES);
        assert_eq!([0.1, 1.0, 3.5, 20.0, 80.0, 600.0].map(at_a_gigabit), [1, 1, 1, 2, 8, 16]);
    }

    #[test]
    fn a_faster_path_gets_more_and_a_larger_window_fewer() {
        let rtt = Duration::from_millis(20);
        assert!(streams_for(rtt, 1.25e9, USUAL_WINDOW_BYTES) > streams_for(rtt, 125e6, USUAL_WINDOW_BYTES));
        assert_eq!(streams_for(rtt, 125e6, 64 << 20), 1);
        assert_eq!(streams_for(Duration::from_secs(3600), f64::MAX, 0), MOST, "whatever a peer makes us believe");
    }
}
