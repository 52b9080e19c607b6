//! Penstock end to end: interoperability, faults, documentation and layering.
//!
//! A test asks for a site, a user, and a session, and then does what a person would do:
//!
//! ```no_run
//! # async fn example() {
//! use tests::Site;
//! let site = Site::start().await;
//! let mut alice = site.user("alice").await.login().await;
//! alice.put("/home/alice/a", b"hello").await.expect("stored");
//! assert_eq!(alice.get("/home/alice/a").await.expect("fetched"), b"hello");
//! # }
//! ```
//!
//! - [`Site`]: a gateway and movers in this process, over a catalogue in a temporary folder, with a CA of their own.
//!   Parts can be killed and started again.
//! - [`User`], [`Session`]: somebody with a certificate, logged in through the FTP door.
//! - [`Raw`]: a control connection that sends what no client library would. [`Gate`]: a catalogue that can be away.
//! - [`bytes`]: file contents that differ everywhere, from a seed.
//! - [`mod@bench`]: what `make bench` measures, and how.

pub mod bench;
mod data;
mod gate;
mod raw;
mod site;
mod user;

pub use self::{
    data::bytes,
    gate::Gate,
    raw::Raw,
    site::{Database, Site, SiteBuilder, soon},
    user::{Session, User},
};
