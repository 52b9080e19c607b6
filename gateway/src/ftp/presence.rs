//! Whether a client is still at the other end of its control connection: asked of the kernel, which knows at once.
//!
//! In stream mode without a size only the client can tell that all of a file has come: a client that dies ends its data
//! connection as one does that has finished. What tells them apart is the control connection, which a client that is
//! killed loses first (the kernel closes its sockets in the order in which they were opened) and one that has finished
//! keeps, since it waits for the reply. Its end would pass TLS and the session before anybody heard of it; the state of
//! the socket says it as soon as the segment is here. An end that is still on its way cannot be known by anybody, and is
//! not waited for: such a client should say the size (`ALLO`), the sum (`SCKS`), or use extended block mode.
//!
//! Owns a second descriptor of the socket. Never reads or writes.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use nix::{
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

/// A control connection's socket, to be looked at. Dropped with the connection, which it would keep open.
#[derive(Debug)]
pub(super) struct Line(OwnedFd);

impl Line {
    /// The line to the client at the other end of `socket`.
    pub(super) fn of(socket: impl AsFd) -> io::Result<Self> {
        Ok(Self(socket.as_fd().try_clone_to_owned()?))
    }

    /// Whether the client has closed its end, or the connection broke. What it sent before may still lie unread.
    pub(super) fn is_cut(&self) -> bool {
        // Linux: "stream socket peer closed connection, or shut down writing half of connection" (poll(2)).
        // Beside it only errors and the end of both directions are ever told, so that any answer is the one.
        let closed = PollFlags::from_bits_retain(libc::POLLRDHUP);
        poll(&mut [PollFd::new(self.0.as_fd(), closed)], PollTimeout::ZERO).is_ok_and(|told| told > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        net::{Shutdown, TcpListener, TcpStream},
    };

    use super::*;

    #[test]
    fn a_client_is_there_until_it_closes_whatever_it_left_unread() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        let line = Line::of(&socket).unwrap();
        client.write_all(b"STOR a\r\n").unwrap();
        assert!(!line.is_cut());
        client.shutdown(Shutdown::Write).unwrap();
        assert!(line.is_cut(), "on loopback the end is there when the call returns");
        drop(client);
        assert!(line.is_cut());
    }
}
