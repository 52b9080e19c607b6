//! Seals what a process hands to a client, to be shown to another process of the site.
//!
//! HMAC-SHA-256 (RFC 2104) by a key that both processes have. Owns nothing; what is sealed is the caller's.

use aws_lc_rs::{hmac, rand};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

/// Bytes of a seal.
const SEAL_BYTES: usize = 32;

/// A new key.
///
/// # Panics
///
/// If the system has no randomness.
#[must_use]
pub fn new_key() -> [u8; 32] {
    let mut key = [0; 32];
    rand::fill(&mut key).expect("the system's randomness");
    key
}

/// What it says, behind its seal, in letters that need no escape in a URL.
#[must_use]
pub fn seal(key: &[u8; 32], body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let tag = hmac::sign(&key, body);
    URL_SAFE_NO_PAD.encode([tag.as_ref(), body].concat())
}

/// What was sealed with this key; `None` if it was not, or was changed since.
#[must_use]
pub fn open(key: &[u8; 32], text: &str) -> Option<Vec<u8>> {
    let mut bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (tag, body) = bytes.split_at_checked(SEAL_BYTES)?;
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, key), body, tag).ok()?;
    Some(bytes.split_off(SEAL_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_is_read_and_nothing_else() {
        let key = new_key();
        let text = seal(&key, b"one object, one mover");
        assert_eq!(open(&key, &text).as_deref(), Some(&b"one object, one mover"[..]));
        assert_eq!(open(&new_key(), &text), None, "another key");
        for at in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] = if other[at] == b'A' { b'B' } else { b'A' };
            let other = String::from_utf8(other).expect("ASCII");
            // The last letter has bits that say nothing; a strict reader refuses those too.
            assert_eq!(open(&key, &other), None, "changed at {at}");
            assert_eq!(open(&key, &text[..at]), None, "cut at {at}");
        }
        assert_eq!(open(&key, "no seal!"), None);
    }
}
