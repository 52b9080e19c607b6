//! What a virtual library is made of when it is created.

use wire::id::VolumeLabel;

use super::medium::CartridgeKind;
use super::timing::Generation;

/// A library: drives, slots and the cartridges to begin with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VtlSpec {
    /// Of drives and cartridges.
    pub generation: Generation,
    /// How many drives; at least 1, at most [`VtlSpec::MAX_DRIVES`].
    pub drives: u16,
    /// How many slots; raised to hold every cartridge.
    pub slots: u16,
    /// How many import/export elements.
    pub mail_slots: u16,
    /// The cartridges, each in a slot.
    pub cartridges: Vec<CartridgeSpec>,
}

impl VtlSpec {
    /// Element addresses leave room for that many.
    pub const MAX_DRIVES: u16 = 256;
    /// Element addresses leave room for that many.
    pub const MAX_SLOTS: u16 = 0x8000;
    /// Element addresses leave room for that many.
    pub const MAX_MAIL_SLOTS: u16 = 0xf0;

    /// A library of LTO-8 drives and of data cartridges `PEN001L8`, `PEN002L8` and so on, with twice as many slots
    /// and two mail slots.
    #[must_use]
    pub fn new(drives: u16, cartridges: u16, capacity_bytes: u64) -> Self {
        let generation = Generation::Lto8;
        let specs = (1..=cartridges).map(|number| {
            let label = format!("PEN{number:03}{}", generation.suffix());
            let barcode = VolumeLabel::new(label).expect("letters and digits");
            CartridgeSpec { barcode, kind: CartridgeKind::Data, capacity_bytes }
        });
        Self {
            generation,
            drives,
            slots: cartridges.saturating_mul(2).max(1),
            mail_slots: 2,
            cartridges: specs.collect(),
        }
    }

    /// The same with one more cartridge.
    #[must_use]
    pub fn with(mut self, barcode: VolumeLabel, kind: CartridgeKind, capacity_bytes: u64) -> Self {
        self.cartridges.push(CartridgeSpec { barcode, kind, capacity_bytes });
        self
    }

    /// Says what is wrong with it, if anything is.
    pub(super) fn problem(&self) -> Option<&'static str> {
        let mut names: Vec<_> = self.cartridges.iter().map(|cartridge| &cartridge.barcode).collect();
        names.sort();
        if self.drives == 0 || self.drives > Self::MAX_DRIVES {
            Some("a library has 1 to 256 drives")
        } else if self.slots > Self::MAX_SLOTS || self.cartridges.len() > usize::from(Self::MAX_SLOTS) {
            Some("a library has at most 32768 slots")
        } else if self.mail_slots > Self::MAX_MAIL_SLOTS {
            Some("a library has at most 240 mail slots")
        } else if names.windows(2).any(|pair| pair[0] == pair[1]) {
            Some("two cartridges have the same bar code")
        } else {
            None
        }
    }
}

/// A cartridge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CartridgeSpec {
    /// Its bar code.
    pub barcode: VolumeLabel,
    /// What it is for.
    pub kind: CartridgeKind,
    /// How many bytes of blocks it takes.
    pub capacity_bytes: u64,
}
