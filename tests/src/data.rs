//! File contents from a seed.

/// `length` bytes that look random and are the same for the same seed (splitmix64).
#[must_use]
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let mut data = Vec::with_capacity(length + 8);
    while data.len() < length {
        data.extend_from_slice(&next().to_le_bytes());
    }
    data.truncate(length);
    data
}
