//! INQUIRY: what a device is, its serial number, and whether it holds a WORM medium.
//!
//! # Source
//!
//! SPC-5, 6.7 (standard data) and 7.7 (vital product data); SSC-5, 8.5.2 for page B0h.

use super::fields::{Fields, Malformed, clamp16, padded};

/// Peripheral device type (SPC-5, table 148).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceType {
    /// 01h: tape.
    Tape,
    /// 08h: media changer.
    Changer,
    /// Anything else.
    Other(u8),
}

/// Vital product data page of the unit serial number.
pub const SERIAL_PAGE: u8 = 0x80;
/// Vital product data page of the sequential-access device capabilities.
pub const TAPE_CAPABILITIES_PAGE: u8 = 0xb0;

/// Standard INQUIRY data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inquiry {
    /// Which kind of device.
    pub device: DeviceType,
    /// Who made it.
    pub vendor: String,
    /// Its product name.
    pub product: String,
    /// Its firmware.
    pub revision: String,
}

impl Inquiry {
    /// Bytes a standard answer has here.
    pub const BYTES: u16 = 36;

    /// Decodes standard data.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if it is shorter than the 36 bytes every device has sent since SCSI-2.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let fields = Fields::new("INQUIRY data", bytes);
        let device = match fields.u8(0)? & 0x1f {
            0x01 => DeviceType::Tape,
            0x08 => DeviceType::Changer,
            other => DeviceType::Other(other),
        };
        Ok(Self { device, vendor: fields.text(8, 8)?, product: fields.text(16, 16)?, revision: fields.text(32, 4)? })
    }

    /// Encodes standard data of a removable-medium SPC-4 device.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let device = match self.device {
            DeviceType::Tape => 0x01,
            DeviceType::Changer => 0x08,
            DeviceType::Other(other) => other & 0x1f,
        };
        let mut bytes = vec![device, 0x80, 0x06, 0x02, 31, 0, 0, 0x02];
        bytes.extend_from_slice(&padded::<8>(&self.vendor));
        bytes.extend_from_slice(&padded::<16>(&self.product));
        bytes.extend_from_slice(&padded::<4>(&self.revision));
        bytes
    }
}

/// The text of VPD page 80h.
///
/// # Errors
///
/// [`Malformed`] if it is another page or cut short.
pub fn decode_serial(bytes: &[u8]) -> Result<String, Malformed> {
    let page = vital("unit serial number page", SERIAL_PAGE, bytes)?;
    page.text(0, page.len())
}

/// Whether VPD page B0h says that the mounted medium is WORM.
///
/// # Errors
///
/// [`Malformed`] if it is another page or cut short.
pub fn decode_worm(bytes: &[u8]) -> Result<bool, Malformed> {
    Ok(vital("sequential-access device capabilities page", TAPE_CAPABILITIES_PAGE, bytes)?.u8(0)? & 1 == 1)
}

fn vital<'a>(what: &'static str, page: u8, bytes: &'a [u8]) -> Result<Fields<'a>, Malformed> {
    let fields = Fields::new(what, bytes);
    if fields.u8(1)? != page {
        return Err(fields.malformed("it is another page"));
    }
    fields.part(4, usize::from(fields.u16(2)?))
}

/// A VPD page: header and payload.
#[must_use]
pub fn encode_vital(device: u8, page: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![device, page];
    bytes.extend_from_slice(&clamp16(payload.len()).to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_data_comes_back_and_a_cut_one_is_refused() {
        let inquiry = Inquiry {
            device: DeviceType::Tape,
            vendor: "PENSTOCK".into(),
            product: "ULT3580-TD8".into(),
            revision: "0001".into(),
        };
        let bytes = inquiry.encode();
        assert_eq!(Inquiry::decode(&bytes).unwrap(), inquiry);
        for cut in 0..bytes.len() {
            assert!(Inquiry::decode(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn a_serial_number_is_read_by_its_length() {
        let bytes = encode_vital(1, SERIAL_PAGE, b"  10WT0001 ");
        assert_eq!(decode_serial(&bytes).unwrap(), "10WT0001");
        for cut in 0..bytes.len() {
            assert!(decode_serial(&bytes[..cut]).is_err());
        }
        assert!(decode_serial(&encode_vital(1, 0x83, b"")).is_err());
    }
}
