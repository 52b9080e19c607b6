//! How much room a disk volume has: what is used, what is promised, what is left. Pure.
//!
//! Invariant: `used + reserved` never grows beyond the capacity by a reservation; every reservation is written or
//! given back.

use wire::mover::VolumeStatus;

/// The account of one volume. All numbers are bytes.
#[derive(Debug)]
pub(super) struct Space {
    capacity_bytes: u64,
    used_bytes: u64,
    reserved_bytes: u64,
}

/// There is not enough room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Full {
    /// What there is.
    pub(super) free_bytes: u64,
}

impl Space {
    /// A volume that may hold `capacity_bytes`, of which files take `used_bytes`.
    pub(super) const fn new(capacity_bytes: u64, used_bytes: u64) -> Self {
        Self { capacity_bytes, used_bytes, reserved_bytes: 0 }
    }

    /// Promises `wanted_bytes`. `device_free_bytes` is what the file system says it has left: others may use it too,
    /// so the promise must fit in there as well, beside what was promised before.
    pub(super) fn reserve(&mut self, wanted_bytes: u64, device_free_bytes: u64) -> Result<(), Full> {
        let own = self.capacity_bytes.saturating_sub(self.used_bytes).saturating_sub(self.reserved_bytes);
        let device = device_free_bytes.saturating_sub(self.reserved_bytes);
        let free_bytes = own.min(device);
        if wanted_bytes > free_bytes {
            return Err(Full { free_bytes });
        }
        self.reserved_bytes += wanted_bytes;
        Ok(())
    }

    /// Gives back a promise that was not used.
    pub(super) const fn release(&mut self, bytes: u64) {
        self.reserved_bytes = self.reserved_bytes.saturating_sub(bytes);
    }

    /// A promise was kept: these bytes are written.
    pub(super) const fn wrote(&mut self, bytes: u64) {
        self.release(bytes);
        self.used_bytes = self.used_bytes.saturating_add(bytes);
    }

    /// A file that was counted with `before_bytes` takes `after_bytes`.
    pub(super) const fn recount(&mut self, before_bytes: u64, after_bytes: u64) {
        self.used_bytes = self.used_bytes.saturating_sub(before_bytes).saturating_add(after_bytes);
    }

    /// Fills in the numbers of a status.
    pub(super) const fn fill(&self, status: &mut VolumeStatus) {
        status.capacity_bytes = self.capacity_bytes;
        status.used_bytes = self.used_bytes;
        status.reserved_bytes = self.reserved_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_counts_until_it_is_written_or_given_back() {
        let mut space = Space::new(100, 20);
        space.reserve(50, u64::MAX).expect("80 are free");
        assert_eq!(space.reserve(31, u64::MAX), Err(Full { free_bytes: 30 }));
        space.wrote(10);
        assert_eq!(space.reserve(31, u64::MAX), Err(Full { free_bytes: 30 }));
        space.release(40);
        space.reserve(70, u64::MAX).expect("only 30 are used now");
    }

    #[test]
    fn the_file_system_can_be_fuller_than_the_volume_thinks() {
        let mut space = Space::new(1000, 0);
        space.reserve(10, 15).expect("15 are there");
        assert_eq!(space.reserve(10, 15), Err(Full { free_bytes: 5 }));
    }
}
