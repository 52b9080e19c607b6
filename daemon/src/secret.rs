//! A value that must not be seen in a log.
//!
//! Owns the value and overwrites it when dropped. Never prints it: `Debug` and `Display` show a
//! placeholder, and there is no `Serialize`.

use std::fmt;
use std::sync::atomic::{Ordering, compiler_fence};

use serde::{Deserialize, Deserializer};

/// What can overwrite its own bytes before its memory is given back.
pub trait Wipe {
    /// Overwrites every byte of the value with zero.
    fn wipe(&mut self);
}

impl Wipe for Vec<u8> {
    fn wipe(&mut self) {
        // The whole capacity: a vector that shrank still holds old bytes past its length.
        let capacity = self.capacity();
        self.clear();
        self.resize(capacity, 0);
        // The compiler must not see the stores as dead.
        std::hint::black_box(self.as_mut_slice());
        compiler_fence(Ordering::SeqCst);
    }
}

impl Wipe for String {
    fn wipe(&mut self) {
        let mut bytes = std::mem::take(self).into_bytes();
        bytes.wipe();
    }
}

impl<const N: usize> Wipe for [u8; N] {
    fn wipe(&mut self) {
        self.fill(0);
        std::hint::black_box(self.as_mut_slice());
        compiler_fence(Ordering::SeqCst);
    }
}

/// A password, key or capability: usable, not printable, zeroed when dropped.
///
/// ```
/// let secret = daemon::Secret::new(String::from("hunter2"));
/// assert_eq!(format!("{secret:?}"), "[secret]");
/// assert_eq!(secret.expose(), "hunter2");
/// ```
#[derive(Clone, Default)]
pub struct Secret<T: Wipe>(T);

impl<T: Wipe> Secret<T> {
    /// Takes `value` into custody.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself. The name makes each use easy to find.
    pub const fn expose(&self) -> &T {
        &self.0
    }
}

/// Takes the same time wherever the two differ.
impl<T: Wipe + AsRef<[u8]>> PartialEq for Secret<T> {
    fn eq(&self, other: &Self) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(self.0.as_ref(), other.0.as_ref()).is_ok()
    }
}

impl<T: Wipe + AsRef<[u8]>> Eq for Secret<T> {}

impl<T: Wipe> Drop for Secret<T> {
    fn drop(&mut self) {
        self.0.wipe();
    }
}

impl<T: Wipe> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl<T: Wipe> fmt::Display for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl<T: Wipe> From<T> for Secret<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<'de, T: Wipe + Deserialize<'de>> Deserialize<'de> for Secret<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_in_its_debug_or_display_text() {
        let secret = Secret::new(String::from("hunter2"));
        assert_eq!(format!("{secret} {secret:?} {:?}", Some(&secret)), "[secret] [secret] Some([secret])");
    }

    #[test]
    fn secrets_are_equal_as_their_values_are() {
        let secret = |text: &str| Secret::new(text.to_owned());
        assert!(secret("a") == secret("a") && secret("a") != secret("b") && secret("a") != secret("aa"));
    }

    #[test]
    fn wiping_overwrites_the_bytes_past_the_length_too() {
        let mut value = b"hunter2".to_vec();
        value.truncate(2);
        value.wipe();
        assert!(value.len() >= 7 && value.iter().all(|byte| *byte == 0));
    }
}
