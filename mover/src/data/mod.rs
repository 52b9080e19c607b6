//! Data endpoints and their connections.
//!
//! - [`channel`]: one endpoint: where it listens or connects, and which connections it has.
//! - [`ports`], [`secure`]: sockets as the configuration says, and TLS as the gateway says.
//! - [`link`]: one connection: bytes in and out without waiting.
//! - [`turn`]: how a bounded number of threads serves any number of connections.
//! - [`mod@receive`], [`mod@send`]: a transfer's bytes from and to a channel, in stream mode and extended block mode.
//! - [`body`]: an HTTP request's body, received as a channel's one connection. [`coding`]: its chunks (pure).
//! - [`figures`]: what the kernel says of a connection that ends.
//! - [`flow`], [`limit`]: how much moved, whether it stands still, how fast it may go.
//!
//! An HTTP connection ([`crate::http`]) is a [`Link`] that a thread of [`turn`] sends on, as any other; a body that comes over
//! it is offered to the channel that a gateway has opened for it.
//!
//! Knows no volume and no drive: bytes go to an [`Intake`] and come from a [`Supply`].

mod body;
mod channel;
mod coding;
mod figures;
mod flow;
mod limit;
mod link;
mod ports;
mod receive;
mod secure;
mod send;
mod turn;

pub(crate) use self::{
    body::{Offered, Returned},
    channel::{Attachment, ChannelHandle, Opener},
    coding::Length,
    flow::{Flow, Totals},
    link::Link,
    ports::Ports,
    receive::{Intake, Lane, receive},
    send::{Body, Memory, Next, Parcel, Supply, Unsent, answer, send, send_bytes, send_end},
    turn::Turns,
};
