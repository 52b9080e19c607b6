//! MODE SENSE and MODE SELECT: header, block descriptor and the pages the mover sets.
//!
//! # Source
//!
//! SPC-5, 7.5 (headers, page formats); SSC-5, 8.5 (device configuration extension, control data protection);
//! SMC-3, 7.3.4 (element address assignment).

use super::fields::{Fields, Malformed, be24, clamp16};

/// Which of the two header formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModeForm {
    /// MODE SENSE(6): 4 bytes.
    Six,
    /// MODE SENSE(10): 8 bytes.
    Ten,
}

/// One page: its code and its payload without the page header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModePage {
    /// Page code, 0 to 3Eh.
    pub page: u8,
    /// Subpage code; 0 is a page in page_0 format.
    pub subpage: u8,
    /// What follows the page's header.
    pub payload: Vec<u8>,
}

/// Decoded mode parameters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ModeData {
    /// Medium type.
    pub medium_type: u8,
    /// The medium or the drive is write protected.
    pub write_protected: bool,
    /// Writes are answered from the buffer.
    pub buffered: bool,
    /// Density code, if there is a block descriptor.
    pub density: u8,
    /// Block length in bytes; 0 is variable.
    pub block_length: u32,
    /// The pages.
    pub pages: Vec<ModePage>,
}

impl ModeData {
    /// Decodes the answer to MODE SENSE, or the list of MODE SELECT.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if a length leads outside what is there.
    pub fn decode(form: ModeForm, bytes: &[u8]) -> Result<Self, Malformed> {
        let all = Fields::new("mode data", bytes);
        let (length, specific, descriptors, header) = match form {
            ModeForm::Six => (1 + usize::from(all.u8(0)?), all.u8(2)?, usize::from(all.u8(3)?), 4),
            ModeForm::Ten => (2 + usize::from(all.u16(0)?), all.u8(3)?, usize::from(all.u16(6)?), 8),
        };
        // In MODE SELECT the data length is reserved (zero): then it goes to the end.
        let all = if length <= 2 { all } else { all.at_most(length) };
        let mut data = Self {
            medium_type: all.u8(if form == ModeForm::Six { 1 } else { 2 })?,
            write_protected: specific & 0x80 != 0,
            buffered: specific & 0x70 != 0,
            ..Self::default()
        };
        if descriptors >= 8 {
            let descriptor = all.part(header, 8)?;
            data.density = descriptor.u8(0)?;
            data.block_length = descriptor.u24(5)?;
        }
        let mut rest = all.rest(header + descriptors);
        while rest.len() > 0 {
            let (page, taken) = ModePage::decode(rest)?;
            data.pages.push(page);
            rest = rest.rest(taken);
        }
        Ok(data)
    }

    /// Encodes with one block descriptor if `descriptor`. For MODE SELECT the data length is zero.
    #[must_use]
    pub fn encode(&self, form: ModeForm, descriptor: bool, select: bool) -> Vec<u8> {
        let specific = if self.write_protected && !select { 0x80 } else { 0 } | if self.buffered { 0x10 } else { 0 };
        let descriptor_bytes: u8 = if descriptor { 8 } else { 0 };
        let mut bytes = match form {
            ModeForm::Six => vec![0, self.medium_type, specific, descriptor_bytes],
            ModeForm::Ten => vec![0, 0, self.medium_type, specific, 0, 0, 0, descriptor_bytes],
        };
        if descriptor {
            bytes.extend_from_slice(&[self.density, 0, 0, 0, 0]);
            bytes.extend_from_slice(&be24(self.block_length));
        }
        for page in &self.pages {
            page.encode(&mut bytes);
        }
        if !select {
            match form {
                ModeForm::Six => bytes[0] = u8::try_from(bytes.len() - 1).unwrap_or(u8::MAX),
                ModeForm::Ten => {
                    let length = clamp16(bytes.len() - 2).to_be_bytes();
                    bytes[..2].copy_from_slice(&length);
                }
            }
        }
        bytes
    }

    /// The payload of a page, if the device sent it.
    #[must_use]
    pub fn page(&self, page: u8, subpage: u8) -> Option<&[u8]> {
        self.pages.iter().find(|found| (found.page, found.subpage) == (page, subpage)).map(|found| &found.payload[..])
    }
}

impl ModePage {
    fn decode(fields: Fields<'_>) -> Result<(Self, usize), Malformed> {
        let first = fields.u8(0)?;
        let (subpage, length, header) = if first & 0x40 == 0 {
            (0, usize::from(fields.u8(1)?), 2)
        } else {
            (fields.u8(1)?, usize::from(fields.u16(2)?), 4)
        };
        let payload = fields.bytes(header, length)?.to_vec();
        Ok((Self { page: first & 0x3f, subpage, payload }, header + length))
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        if self.subpage == 0 {
            bytes.extend_from_slice(&[self.page, u8::try_from(self.payload.len()).unwrap_or(u8::MAX)]);
        } else {
            bytes.extend_from_slice(&[self.page | 0x40, self.subpage]);
            bytes.extend_from_slice(&clamp16(self.payload.len()).to_be_bytes());
        }
        bytes.extend_from_slice(&self.payload);
    }
}

/// Control data protection, page 0Ah subpage F0h: logical block protection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockProtection {
    /// 0 none, 1 Reed-Solomon CRC, 2 CRC-32C.
    pub method: u8,
    /// Bytes of protection information behind each block.
    pub length: u8,
    /// Blocks written carry it.
    pub write: bool,
    /// Blocks read carry it.
    pub read: bool,
}

impl BlockProtection {
    /// Page code.
    pub const PAGE: u8 = 0x0a;
    /// Subpage code.
    pub const SUBPAGE: u8 = 0xf0;
    /// CRC-32C (Castagnoli), little-endian behind each block; LTO-7 and later, 3592.
    pub const CRC32C: Self = Self { method: 2, length: 4, write: true, read: true };

    /// Decodes the payload.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if it is cut short.
    pub fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let fields = Fields::new("control data protection page", payload);
        let flags = fields.u8(2)?;
        Ok(Self {
            method: fields.u8(0)?,
            length: fields.u8(1)? & 0x3f,
            write: flags & 0x80 != 0,
            read: flags & 0x40 != 0,
        })
    }

    /// Encodes the page.
    #[must_use]
    pub fn encode(&self) -> ModePage {
        let mut payload = vec![0; 0x1c];
        payload[0] = self.method;
        payload[1] = self.length & 0x3f;
        payload[2] = if self.write { 0x80 } else { 0 } | if self.read { 0x40 } else { 0 };
        ModePage { page: Self::PAGE, subpage: Self::SUBPAGE, payload }
    }
}

/// Device configuration extension, page 10h subpage 01h: programmable early warning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EarlyWarning {
    /// Megabytes before early warning at which 0/00/07 is reported once; 0 is never.
    pub size_mb: u16,
}

impl EarlyWarning {
    /// Page code.
    pub const PAGE: u8 = 0x10;
    /// Subpage code.
    pub const SUBPAGE: u8 = 0x01;

    /// Decodes the payload.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if it is cut short.
    pub fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        Ok(Self { size_mb: Fields::new("device configuration extension page", payload).u16(2)? })
    }

    /// Encodes the page.
    #[must_use]
    pub fn encode(&self) -> ModePage {
        let mut payload = vec![0; 0x1c];
        payload[2..4].copy_from_slice(&self.size_mb.to_be_bytes());
        ModePage { page: Self::PAGE, subpage: Self::SUBPAGE, payload }
    }
}

/// Element address assignment, page 1Dh: where a changer's elements are numbered. First address and count of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ElementAddresses {
    /// Robots.
    pub robot: (u16, u16),
    /// Slots.
    pub slot: (u16, u16),
    /// Import/export elements.
    pub mail: (u16, u16),
    /// Drives.
    pub drive: (u16, u16),
}

impl ElementAddresses {
    /// Page code.
    pub const PAGE: u8 = 0x1d;

    /// Decodes the payload.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if it is cut short.
    pub fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let fields = Fields::new("element address assignment page", payload);
        let pair = |at| Ok((fields.u16(at)?, fields.u16(at + 2)?));
        Ok(Self { robot: pair(0)?, slot: pair(4)?, mail: pair(8)?, drive: pair(12)? })
    }

    /// Encodes the page.
    #[must_use]
    pub fn encode(&self) -> ModePage {
        let mut payload = Vec::with_capacity(18);
        for (first, count) in [self.robot, self.slot, self.mail, self.drive] {
            payload.extend_from_slice(&first.to_be_bytes());
            payload.extend_from_slice(&count.to_be_bytes());
        }
        payload.extend_from_slice(&[0, 0]);
        ModePage { page: Self::PAGE, subpage: 0, payload }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> ModeData {
        ModeData {
            medium_type: 0x98,
            write_protected: true,
            buffered: true,
            density: 0x5e,
            block_length: 262_144,
            pages: vec![BlockProtection::CRC32C.encode(), EarlyWarning { size_mb: 512 }.encode()],
        }
    }

    #[test]
    fn mode_data_comes_back_in_both_forms() {
        for form in [ModeForm::Six, ModeForm::Ten] {
            let bytes = sample().encode(form, true, false);
            let back = ModeData::decode(form, &bytes).unwrap();
            assert_eq!(back, sample());
            let page = back.page(BlockProtection::PAGE, BlockProtection::SUBPAGE).unwrap();
            assert_eq!(BlockProtection::decode(page).unwrap(), BlockProtection::CRC32C);
            for cut in 0..bytes.len() {
                let _ = ModeData::decode(form, &bytes[..cut]);
            }
        }
    }

    #[test]
    fn a_select_list_has_no_data_length() {
        let bytes = sample().encode(ModeForm::Ten, true, true);
        assert_eq!(bytes[..2], [0, 0]);
        assert_eq!(ModeData::decode(ModeForm::Ten, &bytes).unwrap().pages, sample().pages);
    }

    #[test]
    fn element_addresses_come_back() {
        let addresses = ElementAddresses { robot: (1, 1), slot: (0x400, 10), mail: (0x10, 2), drive: (0x100, 2) };
        assert_eq!(ElementAddresses::decode(&addresses.encode().payload).unwrap(), addresses);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            for form in [ModeForm::Six, ModeForm::Ten] {
                let _ = ModeData::decode(form, &bytes);
            }
            let _ = BlockProtection::decode(&bytes);
            let _ = EarlyWarning::decode(&bytes);
            let _ = ElementAddresses::decode(&bytes);
        }
    }
}
