//! PERSISTENT RESERVE IN and OUT: the parameter data of fencing.
//!
//! # Source
//!
//! SPC-5, 6.15 and 6.16.

use super::cdb::ReserveType;
use super::fields::{Fields, Malformed, clamp32};

/// READ KEYS: the registered keys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Keys {
    /// Counts changes of registrations.
    pub generation: u32,
    /// One for each registered nexus.
    pub keys: Vec<u64>,
}

impl Keys {
    /// Decodes an answer; keys cut by the allocation length are left out.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if the header is cut short.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let all = Fields::new("READ KEYS data", bytes);
        let length = usize::try_from(all.u32(4)?).unwrap_or(usize::MAX);
        let list = all.rest(8).at_most(length);
        let keys = (0..list.len() / 8).map(|index| list.u64(index * 8)).collect::<Result<_, _>>()?;
        Ok(Self { generation: all.u32(0)?, keys })
    }

    /// Encodes an answer.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.generation.to_be_bytes().to_vec();
        bytes.extend_from_slice(&clamp32(self.keys.len() * 8).to_be_bytes());
        for key in &self.keys {
            bytes.extend_from_slice(&key.to_be_bytes());
        }
        bytes
    }
}

/// READ RESERVATION: who holds the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// Counts changes of registrations.
    pub generation: u32,
    /// The holder's key and the type's code, if it is reserved.
    pub holder: Option<(u64, u8)>,
}

impl Held {
    /// Decodes an answer.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if it is cut short.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let all = Fields::new("READ RESERVATION data", bytes);
        let holder = match all.u32(4)? {
            0 => None,
            _ => Some((all.u64(8)?, all.u8(21)? & 0x0f)),
        };
        Ok(Self { generation: all.u32(0)?, holder })
    }

    /// Encodes an answer.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.generation.to_be_bytes().to_vec();
        let Some((key, kind)) = self.holder else {
            bytes.extend_from_slice(&[0; 4]);
            return bytes;
        };
        bytes.extend_from_slice(&16u32.to_be_bytes());
        bytes.extend_from_slice(&key.to_be_bytes());
        bytes.extend_from_slice(&[0, 0, 0, 0, 0, kind & 0x0f, 0, 0]);
        bytes
    }

    /// Whether nobody else may use the medium: an exclusive access reservation.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        self.holder.is_some_and(|(_, kind)| kind == ReserveType::ExclusiveAccess as u8)
    }
}

/// The parameter list of PERSISTENT RESERVE OUT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReserveList {
    /// The key this nexus is registered with.
    pub key: u64,
    /// The key to register, or whose registrations to preempt.
    pub action_key: u64,
}

impl ReserveList {
    /// Bytes of the list.
    pub const BYTES: u32 = 24;

    /// Decodes a list.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if it is cut short, or asks for what is not supported (SPEC_I_PT, ALL_TG_PT, APTPL).
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let all = Fields::new("PERSISTENT RESERVE OUT list", bytes);
        let all = all.part(0, 24)?;
        if all.u8(20)? & 0x0d != 0 {
            return Err(all.malformed("it asks for an option that is not supported"));
        }
        Ok(Self { key: all.u64(0)?, action_key: all.u64(8)? })
    }

    /// Encodes a list.
    #[must_use]
    pub fn encode(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.key.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.action_key.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reservations_come_back_and_cut_ones_are_refused() {
        for held in [Held { generation: 3, holder: None }, Held { generation: 4, holder: Some((7, 3)) }] {
            let bytes = held.encode();
            assert_eq!(Held::decode(&bytes).unwrap(), held);
            for cut in 0..bytes.len().min(22) {
                assert!(Held::decode(&bytes[..cut]).is_err());
            }
        }
        let list = ReserveList { key: 1, action_key: u64::MAX };
        assert_eq!(ReserveList::decode(&list.encode()).unwrap(), list);
        for cut in 0..24 {
            assert!(ReserveList::decode(&list.encode()[..cut]).is_err());
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = (Keys::decode(&bytes), Held::decode(&bytes), ReserveList::decode(&bytes));
        }

        #[test]
        fn keys_come_back(keys in prop::collection::vec(any::<u64>(), 0..10)) {
            let keys = Keys { generation: 9, keys };
            prop_assert_eq!(Keys::decode(&keys.encode()).unwrap(), keys);
        }
    }
}
