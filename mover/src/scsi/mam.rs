//! READ and WRITE ATTRIBUTE: the memory chip of a cartridge.
//!
//! # Source
//!
//! SPC-5, 7.4: attribute format and identifiers.

use super::fields::{Fields, Malformed, clamp16, clamp32, text_of};

/// Remaining capacity of the partition in MiB; read only.
pub const REMAINING_CAPACITY: u16 = 0x0000;
/// Medium serial number; read only.
pub const MEDIUM_SERIAL: u16 = 0x0401;
/// Medium type: 00h data, 01h cleaning, 80h WORM; read only.
pub const MEDIUM_TYPE: u16 = 0x0408;
/// Application vendor.
pub const APPLICATION_VENDOR: u16 = 0x0800;
/// Application name.
pub const APPLICATION_NAME: u16 = 0x0801;
/// User medium text label.
pub const USER_LABEL: u16 = 0x0803;
/// Date and time last written.
pub const LAST_WRITTEN: u16 = 0x0804;
/// Barcode.
pub const BARCODE: u16 = 0x0806;

/// The value of [`MEDIUM_TYPE`] on a WORM cartridge.
pub const WORM_MEDIUM: u8 = 0x80;
/// The value of [`MEDIUM_TYPE`] on a cleaning cartridge.
pub const CLEANING_MEDIUM: u8 = 0x01;

/// How an attribute's value is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum AttributeFormat {
    /// A number or structure.
    Binary = 0,
    /// Padded ASCII.
    Ascii = 1,
    /// Text in the localisation of attribute 0805h.
    Text = 2,
}

/// One attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attribute {
    /// Which.
    pub id: u16,
    /// Only the drive writes it.
    pub read_only: bool,
    /// How the value is meant.
    pub format: AttributeFormat,
    /// The value.
    pub value: Vec<u8>,
}

impl Attribute {
    /// Text, padded with spaces to `length` bytes.
    #[must_use]
    pub fn ascii(id: u16, text: &str, length: usize) -> Self {
        let mut value: Vec<u8> = text.bytes().take(length).collect();
        value.resize(length, b' ');
        Self { id, read_only: false, format: AttributeFormat::Ascii, value }
    }

    /// Bytes only the drive writes.
    #[must_use]
    pub fn device(id: u16, value: &[u8]) -> Self {
        Self { id, read_only: true, format: AttributeFormat::Binary, value: value.to_vec() }
    }

    /// The value as text.
    #[must_use]
    pub fn text(&self) -> String {
        text_of(&self.value)
    }
}

/// Decodes the list of READ ATTRIBUTE (service action 00h) or of WRITE ATTRIBUTE. An answer cut by the allocation
/// length gives the attributes that are whole.
///
/// # Errors
///
/// [`Malformed`] if the list's own length is missing or an attribute has an unknown format.
pub fn decode_attributes(bytes: &[u8]) -> Result<Vec<Attribute>, Malformed> {
    let all = Fields::new("attribute list", bytes);
    let length = usize::try_from(all.u32(0)?).unwrap_or(usize::MAX);
    let mut rest = all.rest(4).at_most(length);
    let mut attributes = Vec::new();
    while rest.len() >= 5 {
        let flags = rest.u8(2)?;
        let format = match flags & 0x03 {
            0 => AttributeFormat::Binary,
            1 => AttributeFormat::Ascii,
            2 => AttributeFormat::Text,
            _ => return Err(rest.malformed("an attribute has a reserved format")),
        };
        let length = usize::from(rest.u16(3)?);
        let Ok(value) = rest.bytes(5, length) else { break };
        attributes.push(Attribute { id: rest.u16(0)?, read_only: flags & 0x80 != 0, format, value: value.to_vec() });
        rest = rest.rest(5 + length);
    }
    Ok(attributes)
}

/// Encodes the list.
#[must_use]
pub fn encode_attributes<'a>(attributes: impl IntoIterator<Item = &'a Attribute>) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    for attribute in attributes {
        bytes.extend_from_slice(&attribute.id.to_be_bytes());
        bytes.push(if attribute.read_only { 0x80 } else { 0 } | attribute.format as u8);
        bytes.extend_from_slice(&clamp16(attribute.value.len()).to_be_bytes());
        bytes.extend_from_slice(&attribute.value);
    }
    let length = clamp32(bytes.len() - 4).to_be_bytes();
    bytes[..4].copy_from_slice(&length);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn attributes_come_back_and_a_cut_list_gives_the_whole_ones() {
        let list = [Attribute::device(MEDIUM_TYPE, &[WORM_MEDIUM]), Attribute::ascii(BARCODE, "PEN001L8", 32)];
        let bytes = encode_attributes(&list);
        assert_eq!(decode_attributes(&bytes).unwrap(), list);
        assert_eq!(list[1].text(), "PEN001L8");
        for cut in 4..bytes.len() {
            assert!(decode_attributes(&bytes[..cut]).unwrap().len() < 2);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_attributes(&bytes);
        }
    }
}
