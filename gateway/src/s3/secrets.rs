//! Access keys: made, sealed for the catalogue, opened to check a signature.
//!
//! Owns the site's sealing key, which lies in a file beside the gateway's data and never in the catalogue: whoever has
//! a copy of the catalogue has no secrets. Gateways over one catalogue share the file.

use std::{fs, io, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::Path};

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey},
    rand,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use daemon::Secret;

use super::temporary;

/// Letters of an access key's public half, as AWS's are: upper case and digits.
const ID_LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
/// How many letters it has.
const ID_LENGTH: usize = 20;
/// Bytes of a secret: 40 letters in base 64.
pub(super) const SECRET_BYTES: usize = 30;

/// Seals and opens secrets.
#[derive(Debug)]
pub struct Sealer {
    secrets: RandomizedNonceKey,
    pub(super) temporary: temporary::Keys,
}

impl Sealer {
    /// Reads the sealing key from a file, or makes one that only its owner can read.
    ///
    /// # Errors
    ///
    /// If it can be neither read nor made, or is no key.
    pub fn open(path: &Path) -> io::Result<Self> {
        let bytes = match fs::read_to_string(path) {
            Ok(text) => hex::decode(text.trim()).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => make_key(path)?,
            Err(error) => return Err(error),
        };
        let key = RandomizedNonceKey::new(&AES_256_GCM, &bytes);
        let secrets = key.map_err(|_| io::Error::other("it holds no key of 32 bytes in hexadecimal"))?;
        Ok(Self { secrets, temporary: temporary::Keys::of(&bytes) })
    }

    /// Encrypts a secret. It can be opened only for the same access key.
    ///
    /// # Panics
    ///
    /// Never: AES-GCM takes messages of any length a secret has.
    #[must_use]
    pub fn seal(&self, id: &str, secret: &str) -> String {
        let mut text = secret.as_bytes().to_vec();
        let nonce = self.secrets.seal_in_place_append_tag(Aad::from(id.as_bytes()), &mut text);
        let nonce = nonce.expect("a short message is sealed");
        let mut sealed = nonce.as_ref().to_vec();
        sealed.extend(text);
        STANDARD.encode(sealed)
    }

    /// Decrypts a secret; `None` if it was not sealed with this key for this access key.
    #[must_use]
    pub fn unseal(&self, id: &str, sealed: &str) -> Option<Secret<String>> {
        let sealed = STANDARD.decode(sealed).ok()?;
        let (nonce, text) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = text.to_vec();
        let opened = self.secrets.open_in_place(nonce, Aad::from(id.as_bytes()), &mut text).ok()?;
        String::from_utf8(opened.to_vec()).ok().map(Secret::new)
    }
}

fn make_key(path: &Path) -> io::Result<Vec<u8>> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let bytes = random::<32>()?.to_vec();
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{}", hex::encode(&bytes))?;
    file.sync_all()?;
    Ok(bytes)
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).map_err(|_| io::Error::other("the system has no random bytes"))?;
    Ok(bytes)
}

/// A new access key: its public and its secret half.
///
/// # Errors
///
/// If the system has no random bytes.
pub fn new_key() -> io::Result<(String, Secret<String>)> {
    let secret = STANDARD.encode(random::<SECRET_BYTES>()?);
    Ok((letters::<ID_LENGTH>()?, Secret::new(secret)))
}

/// Random letters of the public half of an access key.
pub(super) fn letters<const N: usize>() -> io::Result<String> {
    Ok(random::<N>()?.iter().map(|byte| char::from(ID_LETTERS[usize::from(byte % 32)])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_opened_with_the_same_file_for_the_same_key_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("data/s3.key");
        let sealer = Sealer::open(&path).expect("a new key");
        let (id, secret) = new_key().expect("random bytes");
        assert_eq!((id.len(), secret.expose().len()), (20, 40));
        let sealed = sealer.seal(&id, secret.expose());
        assert!(!sealed.contains(secret.expose()));
        let again = Sealer::open(&path).expect("the same key");
        assert_eq!(again.unseal(&id, &sealed).expect("opens").expose(), secret.expose());
        assert!(again.unseal("ANOTHER", &sealed).is_none());
        let other = Sealer::open(&folder.path().join("other")).expect("another key");
        assert!(other.unseal(&id, &sealed).is_none());
        assert!(again.unseal(&id, "AAAA").is_none());
    }
}
