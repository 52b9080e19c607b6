//! Event notifications: what happens in a bucket is told to destinations that the operator has named.
//!
//! ```text
//! a request ─► set, rules ─► catalogue: rules of a bucket; events, written with what they tell of
//!                                           │
//!                    one gateway: deliver ◄─┘ ─► record ─► webhook, file
//! ```
//!
//! - `config`: the destinations. `set`: the two operations.
//! - `rules`: a configuration of S3's, and the catalogue's rules. `record`: the JSON of events. Both are pure.
//! - `deliver`: takes events from the catalogue, in order, and forgets those that a destination has. `webhook`, `file`:
//!   the ways to one.
//!
//! Which events are told is decided by the catalogue, in the transaction of the change
//! ([`catalog::EventRule::wants`]): so what FTP writes is told too, and nothing is told that did not happen.

mod config;
mod deliver;
mod file;
mod record;
mod rules;
mod set;
mod webhook;

use std::sync::Arc;

use catalog::{Cause, Way};
use s3s::S3Request;

pub use self::config::DestinationConfig;
pub(super) use self::{config::check, deliver::start};
use super::access::{Caller, Connection};

/// A request's number, as its answer and the log have it.
#[derive(Clone, Debug)]
pub(super) struct RequestNumber(pub(super) Arc<str>);

/// Who causes what a request does.
pub(super) fn cause<T>(request: &S3Request<T>, way: Way) -> Cause {
    let known = &request.extensions;
    let caller = known.get::<Arc<Caller>>().and_then(|caller| caller.principal.as_ref());
    Cause {
        way,
        account: caller.map(|principal| principal.account.clone()),
        address: known.get::<Connection>().map(|connection| connection.address.to_string()),
        request: known.get::<RequestNumber>().map(|number| number.0.to_string()),
    }
}
