//! Big-endian fields in parameter data: bounded reading for whoever decodes, exact writing for whoever encodes.
//!
//! Never panics on what a device sends: a field that is not there is [`Malformed`].

/// Why parameter data cannot be what it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what} is malformed: {reason}")]
pub struct Malformed {
    /// Which data structure.
    pub what: &'static str,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// A view of a device's bytes that cannot be read past its end.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    what: &'static str,
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) const fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, bytes }
    }

    pub(crate) const fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) const fn malformed(&self, reason: &'static str) -> Malformed {
        Malformed { what: self.what, reason }
    }

    /// `length` bytes from `at`.
    pub(crate) fn bytes(&self, at: usize, length: usize) -> Result<&'a [u8], Malformed> {
        at.checked_add(length).and_then(|end| self.bytes.get(at..end)).ok_or_else(|| self.malformed("it is cut short"))
    }

    /// The fields of a part.
    pub(crate) fn part(&self, at: usize, length: usize) -> Result<Self, Malformed> {
        Ok(Self { what: self.what, bytes: self.bytes(at, length)? })
    }

    /// Everything from `at` on; nothing if `at` is behind the end.
    pub(crate) fn rest(&self, at: usize) -> Self {
        Self { what: self.what, bytes: self.bytes.get(at..).unwrap_or_default() }
    }

    /// At most the first `length` bytes: what the device says it has, or what arrived, whichever is less.
    pub(crate) fn at_most(&self, length: usize) -> Self {
        Self { what: self.what, bytes: &self.bytes[..length.min(self.bytes.len())] }
    }

    pub(crate) fn array<const N: usize>(&self, at: usize) -> Result<[u8; N], Malformed> {
        let bytes = self.bytes(at, N)?;
        Ok(bytes.try_into().expect("the slice has N bytes"))
    }

    pub(crate) fn u8(&self, at: usize) -> Result<u8, Malformed> {
        Ok(self.array::<1>(at)?[0])
    }

    pub(crate) fn u16(&self, at: usize) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array(at)?))
    }

    pub(crate) fn u24(&self, at: usize) -> Result<u32, Malformed> {
        let [a, b, c] = self.array(at)?;
        Ok(u32::from_be_bytes([0, a, b, c]))
    }

    pub(crate) fn u32(&self, at: usize) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array(at)?))
    }

    pub(crate) fn u64(&self, at: usize) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array(at)?))
    }

    /// Text padded with spaces or zeros; bytes that are not printable ASCII become `?`.
    pub(crate) fn text(&self, at: usize, length: usize) -> Result<String, Malformed> {
        Ok(text_of(self.bytes(at, length)?))
    }
}

/// Padded ASCII as text; bytes that are not printable become `?`.
pub(crate) fn text_of(bytes: &[u8]) -> String {
    let text: String = bytes
        .iter()
        .take_while(|&&b| b != 0)
        .map(|&b| if (b' '..=b'~').contains(&b) { b as char } else { '?' })
        .collect();
    text.trim().to_owned()
}

/// `text` cut or padded with spaces to `N` bytes.
pub(crate) fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = if (b' '..=b'~').contains(&from) { from } else { b'?' };
    }
    field
}

/// The low 24 bits, big-endian.
pub(crate) const fn be24(value: u32) -> [u8; 3] {
    let [_, a, b, c] = value.to_be_bytes();
    [a, b, c]
}

/// A count as a 16-bit field; what does not fit is the field's maximum.
pub(crate) fn clamp16(value: usize) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

/// A count as a 32-bit field; what does not fit is the field's maximum.
pub(crate) fn clamp32(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
