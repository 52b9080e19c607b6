//! Just enough DER to write a proxy certificate, which no library here can.
//!
//! Owns the encoding of tags and lengths. Pure. Only writes; reading is `x509-parser`'s.

use time::OffsetDateTime;

pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(super) const UTF8_STRING: u8 = 0x0c;
pub(super) const PRINTABLE_STRING: u8 = 0x13;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
/// `[0] EXPLICIT`: a certificate's version.
pub(super) const CONTEXT_0: u8 = 0xa0;
/// `[3] EXPLICIT`: a certificate's extensions.
pub(super) const CONTEXT_3: u8 = 0xa3;

/// One value: tag, length, and `parts` one after the other as content.
pub(super) fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = vec![tag];
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let bytes = length.to_be_bytes();
        let digits = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
        out.push(0x80 | digits.len() as u8);
        out.extend_from_slice(digits);
    }
    for part in parts {
        out.extend_from_slice(part);
    }
    out
}

/// A non-negative INTEGER.
pub(super) fn unsigned(value: u64) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    // At least one byte, and a leading zero where the first bit would read as a sign.
    let mut start = bytes.iter().take_while(|byte| **byte == 0).count().min(bytes.len() - 1);
    let sign: &[u8] = if bytes[start] & 0x80 != 0 { &[0] } else { &[] };
    start = start.min(bytes.len() - 1);
    tlv(INTEGER, &[sign, &bytes[start..]])
}

/// UTCTime until 2049, GeneralizedTime from then (RFC 5280 §4.1.2.5).
pub(super) fn time(at: OffsetDateTime) -> Vec<u8> {
    let rest =
        format!("{:02}{:02}{:02}{:02}{:02}Z", u8::from(at.month()), at.day(), at.hour(), at.minute(), at.second());
    if (1950..2050).contains(&at.year()) {
        tlv(UTC_TIME, &[format!("{:02}{rest}", at.year() % 100).as_bytes()])
    } else {
        tlv(GENERALIZED_TIME, &[format!("{:04}{rest}", at.year()).as_bytes()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_take_as_many_bytes_as_they_need() {
        assert_eq!(tlv(OCTET_STRING, &[&[7; 127]])[..2], [4, 127]);
        assert_eq!(tlv(OCTET_STRING, &[&[7; 128]])[..3], [4, 0x81, 128]);
        assert_eq!(tlv(OCTET_STRING, &[&[7; 100], &[7; 200]])[..4], [4, 0x82, 1, 44]);
    }

    #[test]
    fn integers_are_shortest_and_never_negative() {
        for (value, wanted) in
            [(0, vec![2, 1, 0]), (127, vec![2, 1, 127]), (128, vec![2, 2, 0, 128]), (256, vec![2, 2, 1, 0])]
        {
            assert_eq!(unsigned(value), wanted);
        }
    }

    #[test]
    fn times_change_their_form_in_2050() {
        let at = |seconds| {
            String::from_utf8(time(OffsetDateTime::from_unix_timestamp(seconds).unwrap())[2..].to_vec()).unwrap()
        };
        assert_eq!(at(2_524_607_999), "491231235959Z");
        assert_eq!(at(2_524_608_000), "20500101000000Z");
    }
}
