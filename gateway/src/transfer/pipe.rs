//! A door that passes bytes on itself: the client's side of a data endpoint, taken by the gateway.
//!
//! For clients that cannot be sent to a mover. Whoever uses it counts what goes through.

use std::{io, net::SocketAddr};

use daemon::{
    role::Role,
    tls::{self, Expect},
};
use tokio::{net::TcpStream, time::timeout};

use super::Inner;
use crate::failure::{Failure, FailureKind};

/// A connection to a mover's data endpoint.
pub type Pipe = tokio_rustls::client::TlsStream<TcpStream>;

pub(super) async fn connect(inner: &Inner, address: SocketAddr) -> Result<Pipe, Failure> {
    let site = &inner.site;
    let expect = Expect::Role { role: Role::Mover, name: None };
    let config = tls::client_config(Some(&site.credential), &site.trust, &expect, &[]);
    let connecting = async {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        tls::connect(&config, &address.ip().to_string(), stream).await
    };
    let late = || io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time");
    let connected = timeout(inner.limits.data_open, connecting).await.unwrap_or_else(|_| Err(late()));
    connected.map_err(|error| {
        let why = tls::why(&error);
        Failure::new(FailureKind::Unavailable, format_args!("the mover at {address} cannot be reached: {why}"))
    })
}
