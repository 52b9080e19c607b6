//! What a door that asks for a client certificate makes of what it got. Pure.

use daemon::{tls::Peer, trust::Identity};

/// Whom the certificate names that the other end of a connection showed.
///
/// # Errors
///
/// Why nobody, in words for its holder.
pub fn presented(peer: Peer) -> Result<Identity, String> {
    match peer {
        Peer::Identified(identity) => Ok(identity),
        Peer::Anonymous => Err("no client certificate was shown: send yours, or a proxy of it".to_owned()),
        Peer::Refused(error) => Err(format!("the client certificate is not trusted: {error}")),
    }
}
