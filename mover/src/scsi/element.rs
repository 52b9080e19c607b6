//! READ ELEMENT STATUS: what is in every slot, drive and mail slot of a library.
//!
//! Descriptors are read by their own length: libraries put volume tags and identifiers in, or leave them out, as they
//! like, and some add bytes of their own.
//!
//! # Source
//!
//! SMC-3, 6.11: header, pages and descriptors, with volume tags (6.11.5) and device identifiers (DVCID).

use super::cdb::ElementKind;
use super::fields::{Fields, Malformed, be24, clamp16, clamp32, padded, text_of};

/// Bytes of a volume tag: 32 of text, 2 reserved, 2 of sequence number.
const TAG_BYTES: usize = 36;
/// Bytes of a descriptor before its volume tag.
const FIXED_BYTES: usize = 12;
/// Identifier type 0, vendor specific: what drives give as their serial number.
const CODE_SET_ASCII: u8 = 2;

/// One element of a library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Element {
    /// Its address.
    pub address: u16,
    /// Its kind.
    pub kind: ElementKind,
    /// Whether a cartridge is in it.
    pub full: bool,
    /// Whether the robot can reach the cartridge. A drive that holds a threaded tape is not accessible.
    pub accessible: bool,
    /// ASC and ASCQ of an exception: something is wrong with this element.
    pub exception: Option<(u8, u8)>,
    /// A person, not the robot, put the cartridge into the mail slot.
    pub imported: bool,
    /// Where the cartridge came from.
    pub source: Option<u16>,
    /// The cartridge's bar code, without padding; `None` if unread or unreadable.
    pub tag: Option<String>,
    /// The serial number of the drive in this element.
    pub device: Option<String>,
}

impl Element {
    /// An empty, accessible element.
    #[must_use]
    pub const fn empty(kind: ElementKind, address: u16) -> Self {
        Self {
            address,
            kind,
            full: false,
            accessible: true,
            exception: None,
            imported: false,
            source: None,
            tag: None,
            device: None,
        }
    }
}

/// Decodes a whole report. A report cut by the allocation length, or by a target that counts wrongly, gives the
/// elements that are whole.
///
/// # Errors
///
/// [`Malformed`] if the header is cut short or a page's descriptors are too short to hold an element.
pub fn decode_elements(bytes: &[u8]) -> Result<Vec<Element>, Malformed> {
    let all = Fields::new("READ ELEMENT STATUS data", bytes);
    let length = usize::try_from(all.u24(5)?).unwrap_or(usize::MAX);
    let mut rest = all.rest(8).at_most(length);
    let mut elements = Vec::new();
    while rest.len() >= 8 {
        let code = rest.u8(0)?;
        let tags = rest.u8(1)?;
        let size = usize::from(rest.u16(2)?);
        let length = usize::try_from(rest.u24(5)?).unwrap_or(usize::MAX);
        if size < FIXED_BYTES {
            return Err(rest.malformed("its descriptors are too short"));
        }
        let page = rest.rest(8).at_most(length);
        if let Some(kind) = ElementKind::ALL.into_iter().find(|&kind| kind as u8 == code) {
            for index in 0..page.len() / size {
                elements.push(decode_one(kind, tags, page.part(index * size, size)?)?);
            }
        }
        rest = rest.rest(8 + length);
    }
    Ok(elements)
}

fn decode_one(kind: ElementKind, tags: u8, fields: Fields<'_>) -> Result<Element, Malformed> {
    let flags = fields.u8(2)?;
    let mut element = Element::empty(kind, fields.u16(0)?);
    element.full = flags & 0x01 != 0;
    element.accessible = flags & 0x08 != 0 || kind == ElementKind::Robot;
    element.imported = kind == ElementKind::Mail && flags & 0x02 != 0;
    if flags & 0x04 != 0 {
        element.exception = Some((fields.u8(4)?, fields.u8(5)?));
    }
    if fields.u8(9)? & 0x80 != 0 {
        element.source = Some(fields.u16(10)?);
    }
    let mut at = FIXED_BYTES;
    if tags & 0x80 != 0 {
        let tag = text_of(fields.bytes(at, TAG_BYTES)?.split_at(32).0);
        element.tag = (element.full && !tag.is_empty()).then_some(tag);
        at += TAG_BYTES;
    }
    if tags & 0x40 != 0 {
        at += TAG_BYTES;
    }
    // Code set, type, reserved, length, identifier; may be missing altogether.
    if kind == ElementKind::Drive
        && let Ok(header) = fields.array::<4>(at)
    {
        let identifier = fields.rest(at + 4).at_most(usize::from(header[3]));
        let text = identifier.text(0, identifier.len())?;
        // T10 identifiers put vendor and product before the serial number, which is the last word.
        element.device = text.split_whitespace().next_back().map(str::to_owned);
    }
    Ok(element)
}

/// Encodes a report of these elements, which are sorted by kind; volume tags and identifiers as asked.
#[must_use]
pub fn encode_elements(elements: &[Element], volume_tags: bool, device_ids: bool) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    let first = elements.iter().map(|element| element.address).min().unwrap_or(0);
    bytes[..2].copy_from_slice(&first.to_be_bytes());
    bytes[2..4].copy_from_slice(&clamp16(elements.len()).to_be_bytes());
    for kind in ElementKind::ALL {
        let page: Vec<_> = elements.iter().filter(|element| element.kind == kind).collect();
        if page.is_empty() {
            continue;
        }
        let device_ids = device_ids && kind == ElementKind::Drive;
        let size = FIXED_BYTES + if volume_tags { TAG_BYTES } else { 0 } + if device_ids { 4 + 32 } else { 4 };
        bytes.extend_from_slice(&[kind as u8, if volume_tags { 0x80 } else { 0 }]);
        bytes.extend_from_slice(&clamp16(size).to_be_bytes());
        bytes.push(0);
        bytes.extend_from_slice(&be24(clamp32(size * page.len())));
        for element in page {
            encode_one(element, volume_tags, device_ids, &mut bytes);
        }
    }
    let length = be24(clamp32(bytes.len() - 8));
    bytes[5..8].copy_from_slice(&length);
    bytes
}

fn encode_one(element: &Element, volume_tags: bool, device_ids: bool, bytes: &mut Vec<u8>) {
    let mut flags = 0;
    for (set, bit) in [
        (element.full, 0x01),
        (element.imported, 0x02),
        (element.exception.is_some(), 0x04),
        (element.accessible && element.kind != ElementKind::Robot, 0x08),
        (element.kind == ElementKind::Mail, 0x30),
    ] {
        flags |= if set { bit } else { 0 };
    }
    let (asc, ascq) = element.exception.unwrap_or_default();
    let source = element.source.unwrap_or_default().to_be_bytes();
    bytes.extend_from_slice(&element.address.to_be_bytes());
    bytes.extend_from_slice(&[flags, 0, asc, ascq, 0, 0, 0, if element.source.is_some() { 0x80 } else { 0 }]);
    bytes.extend_from_slice(&source);
    if volume_tags {
        match &element.tag {
            Some(tag) if element.full => bytes.extend_from_slice(&padded::<32>(tag)),
            _ => bytes.extend_from_slice(&[0; 32]),
        }
        bytes.extend_from_slice(&[0; 4]);
    }
    match &element.device {
        Some(device) if device_ids => {
            bytes.extend_from_slice(&[CODE_SET_ASCII, 0, 0, 32]);
            bytes.extend_from_slice(&padded::<32>(device));
        }
        _ if device_ids => bytes.extend_from_slice(&[0; 36]),
        _ => bytes.extend_from_slice(&[0; 4]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn library() -> Vec<Element> {
        let mut drive = Element::empty(ElementKind::Drive, 0x100);
        drive.full = true;
        drive.accessible = false;
        drive.source = Some(0x401);
        drive.tag = Some("PEN002L8".into());
        drive.device = Some("PSK0000001".into());
        let mut slot = Element::empty(ElementKind::Slot, 0x400);
        slot.full = true;
        slot.tag = Some("PEN001L8".into());
        let mut mail = Element::empty(ElementKind::Mail, 0x10);
        mail.exception = Some((0x83, 1));
        vec![Element::empty(ElementKind::Robot, 1), slot, Element::empty(ElementKind::Slot, 0x401), mail, drive]
    }

    #[test]
    fn a_report_comes_back_with_tags_and_serial_numbers() {
        assert_eq!(decode_elements(&encode_elements(&library(), true, true)).unwrap(), library());
    }

    #[test]
    fn a_report_cut_anywhere_gives_whole_elements_only() {
        let bytes = encode_elements(&library(), true, true);
        let all = library();
        for cut in 8..bytes.len() {
            let elements = decode_elements(&bytes[..cut]).unwrap();
            assert!(elements.len() < all.len() && elements == all[..elements.len()], "cut at {cut}");
        }
        for cut in 0..8 {
            assert!(decode_elements(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn without_tags_and_identifiers_an_element_is_still_an_element() {
        let elements = decode_elements(&encode_elements(&library(), false, false)).unwrap();
        assert_eq!(elements.len(), 5);
        assert!(elements.iter().all(|element| element.tag.is_none() && element.device.is_none()));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode_elements(&bytes);
        }
    }
}
