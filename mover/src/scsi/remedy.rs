//! The classifier: one table from every answer of a drive or a changer to what must be done.
//!
//! Pure. Nothing else in the mover looks at sense codes to decide. The table is read from the top, the first row that
//! fits wins, and below the listed codes each sense key has a careful answer for codes nobody told us about.
//!
//! Invariant: only 8/00/05 (and its milder form 0/00/05) is [`Remedy::EndOfData`]. An unknown sense never is, because
//! a read error taken for the end of the tape is a silently short restore.
//!
//! # Sources
//!
//! SPC-5 annex F (assigned codes), SSC-5, SMC-3; LTFS's and CTA's error tables and the field reports listed in the
//! comments of the rows.

use super::{Completion, Sense, SenseKey, Status};

/// What the owner of a drive or a changer does next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Remedy {
    /// Nothing is wrong: the bits of the sense say where the command stopped.
    Proceed,
    /// Recorded data ends here. Only this says so.
    EndOfData,
    /// Send the same command again, a few times.
    Retry,
    /// Wait a little, then send the same command again, within a limit.
    Wait,
    /// The drive forgot what we told it: drop the position, set up again, check the label, and count everything since
    /// the last synchronous filemark as lost.
    Reattach,
    /// Move to the block again and repeat, a few times.
    RepositionAndRetry,
    /// This object cannot be had here: take another copy; the rest of the volume goes on.
    AbandonObject,
    /// Write nothing more on this volume; reading goes on.
    CloseVolume,
    /// Use this volume for nothing until somebody has looked at it.
    QuarantineVolume,
    /// Use this drive for nothing until somebody has looked at it.
    QuarantineDrive,
    /// Another mover owns the drive now: stop, touch nothing.
    FenceLost,
    /// Finish the object, unload, clean the drive.
    Clean,
    /// What is where is not known any more: read the inventory before the next move.
    Reinventory,
    /// Somebody must act: configuration, keys, a door, a foreign reservation.
    Operator,
}

impl Remedy {
    /// What is left to do when trying again has not helped.
    #[must_use]
    pub const fn when_retries_fail(self) -> Self {
        match self {
            Self::Retry | Self::Wait => Self::QuarantineDrive,
            Self::RepositionAndRetry => Self::AbandonObject,
            other => other,
        }
    }
}

/// Whose answer it is: some codes mean different things.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceKind {
    /// A tape drive.
    Drive,
    /// A media changer.
    Changer,
}

/// A classified answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// What to do.
    pub remedy: Remedy,
    /// What happened, in words for an operator.
    pub meaning: &'static str,
}

/// Classifies a completion; `None` if the command simply succeeded.
#[must_use]
pub fn classify(kind: DeviceKind, completion: &Completion) -> Option<Verdict> {
    let verdict = |remedy, meaning| Some(Verdict { remedy, meaning });
    match completion.status {
        Status::Good | Status::ConditionMet => None,
        Status::CheckCondition => match &completion.sense {
            Some(sense) => Some(classify_sense(kind, sense)),
            None => verdict(Remedy::Reattach, "check condition without sense"),
        },
        Status::Busy | Status::TaskSetFull => verdict(Remedy::Wait, "busy"),
        Status::ReservationConflict => verdict(Remedy::FenceLost, "reserved by another initiator"),
        Status::TaskAborted => verdict(Remedy::RepositionAndRetry, "aborted by another initiator"),
        Status::AcaActive | Status::Other(_) => verdict(Remedy::Operator, "unexpected status"),
    }
}

/// Classifies a sense.
///
/// A deferred error is about data that was already answered with GOOD, so trying the current command again cannot
/// help: where the table would retry, the answer is [`Remedy::Reattach`].
#[must_use]
pub fn classify_sense(kind: DeviceKind, sense: &Sense) -> Verdict {
    let rows = match kind {
        DeviceKind::Drive => DRIVE,
        DeviceKind::Changer => CHANGER,
    };
    let row = COMMON.iter().chain(rows).find(|row| row.fits(sense));
    let mut verdict = row.map_or_else(|| unknown(kind, sense.key), |row| row.verdict);
    if sense.deferred && matches!(verdict.remedy, Remedy::Retry | Remedy::Wait | Remedy::RepositionAndRetry) {
        verdict.remedy = Remedy::Reattach;
    }
    verdict
}

struct Row {
    key: u8,
    asc: u8,
    ascq: Option<u8>,
    verdict: Verdict,
}

impl Row {
    fn fits(&self, sense: &Sense) -> bool {
        self.key == sense.key as u8 && self.asc == sense.asc && self.ascq.is_none_or(|ascq| ascq == sense.ascq)
    }
}

macro_rules! table {
    (@ascq _) => { None };
    (@ascq $ascq:literal) => { Some($ascq) };
    ($($key:literal $asc:literal $ascq:tt => $remedy:ident $meaning:literal;)+) => {
        &[$(Row { key: $key, asc: $asc, ascq: table!(@ascq $ascq),
            verdict: Verdict { remedy: Remedy::$remedy, meaning: $meaning } }),+]
    };
}

/// What means the same, or only makes sense, for both. Read first.
const COMMON: &[Row] = table! {
    0x0 0x00 0x05 => EndOfData "end of data";
    0x0 0x00 0x17 => Clean "cleaning requested";
    0x0 0x00 _ => Proceed "no error";
    0x0 0x82 0x82 => Clean "cleaning required";
    0x1 0x00 0x17 => Clean "cleaning requested";
    0x2 0x04 0x02 => Reattach "not loaded";
    0x2 0x04 0x03 => Operator "manual intervention required";
    0x2 0x04 0x12 => QuarantineDrive "offline";
    0x2 0x04 _ => Wait "becoming ready";
    0x2 0x3A _ => Reinventory "no medium";
    0x5 0x20 _ => Operator "command not supported";
    0x5 0x21 0x01 => Reinventory "no such element";
    0x5 0x24 _ => Operator "invalid field in command";
    0x5 0x26 _ => Operator "invalid field in parameters";
    0x5 0x3B _ => Reinventory "element full, empty or not accessible";
    0x6 0x28 0x01 => Reinventory "import/export element accessed";
    0x6 0x29 _ => Reattach "power on or reset";
    0x6 0x2A 0x03 => FenceLost "reservation preempted";
    0x6 0x2A 0x04 => FenceLost "reservation released";
    0x6 0x2A 0x05 => FenceLost "registration preempted";
    0x6 0x2F _ => Retry "commands cleared by another initiator";
    0x6 0x5A _ => Operator "operator request";
    0xB 0x4E _ => Reattach "overlapped commands";
};

const DRIVE: &[Row] = table! {
    0x2 0x30 0x03 => Clean "cleaning cartridge installed";
    0x2 0x30 0x07 => Clean "cleaning failed";
    0x2 0x30 _ => QuarantineVolume "incompatible medium";
    0x3 0x09 _ => RepositionAndRetry "track following error";
    0x3 0x0C _ => CloseVolume "write error";
    0x3 0x11 _ => RepositionAndRetry "unrecovered read error";
    0x3 0x14 _ => RepositionAndRetry "record or mark not found";
    0x3 0x15 _ => RepositionAndRetry "positioning error";
    0x3 0x30 _ => QuarantineVolume "incompatible medium";
    0x3 0x31 _ => QuarantineVolume "medium format corrupted";
    0x3 0x33 _ => QuarantineVolume "tape length error";
    0x3 0x3B _ => RepositionAndRetry "sequential positioning error";
    // LTFS #300, #387, #448: after these the drive refuses every further write on the cartridge.
    0x3 0x50 _ => CloseVolume "write append error";
    0x3 0x51 _ => CloseVolume "erase failed";
    0x3 0x52 _ => CloseVolume "cartridge fault";
    0x3 0x53 _ => QuarantineVolume "load or eject failed";
    // Logical block protection: the same record is sent again once, then path or drive are suspect.
    0x4 0x10 _ => Retry "logical block guard check failed";
    0x5 0x30 _ => QuarantineVolume "incompatible medium";
    0x5 0x53 _ => QuarantineDrive "unload failed or removal prevented";
    0x6 0x28 0x00 => Reattach "medium may have changed";
    0x6 0x2A _ => Reattach "parameters changed";
    0x7 0x27 _ => CloseVolume "write protected";
    0x7 0x30 0x0C => CloseVolume "overwrite of a WORM medium attempted";
    0x7 0x30 _ => QuarantineVolume "medium may not be written";
    0x7 0x74 _ => Operator "encryption key missing or wrong";
    0x8 0x00 0x05 => EndOfData "end of data";
    0xD 0x00 _ => CloseVolume "volume overflow";
};

const CHANGER: &[Row] = table! {
    0x2 0x3B _ => Reinventory "magazine or element not accessible";
    0x4 0x15 _ => Reinventory "robot positioning error";
    0x5 0x53 _ => Operator "removal prevented or drive not unloaded";
    0x6 0x28 _ => Reinventory "library was opened";
    0x6 0x2A _ => Retry "parameters changed";
    0x6 0x3F _ => Reinventory "library configuration changed";
};

/// A code nobody told us about: what its key says at least.
const fn unknown(kind: DeviceKind, key: SenseKey) -> Verdict {
    use DeviceKind::{Changer, Drive};
    let (remedy, meaning) = match (key, kind) {
        (SenseKey::NoSense, _) => (Remedy::Operator, "unknown condition"),
        (SenseKey::RecoveredError, _) => (Remedy::Proceed, "recovered error"),
        (SenseKey::NotReady, _) => (Remedy::Wait, "not ready"),
        (SenseKey::MediumError, Drive) => (Remedy::QuarantineVolume, "unknown medium error"),
        (SenseKey::MediumError | SenseKey::HardwareError, Changer) => (Remedy::Operator, "robot error"),
        (SenseKey::HardwareError, Drive) => (Remedy::QuarantineDrive, "hardware error"),
        (SenseKey::IllegalRequest, _) => (Remedy::Operator, "illegal request"),
        (SenseKey::UnitAttention, Drive) => (Remedy::Reattach, "unknown unit attention"),
        (SenseKey::UnitAttention, Changer) => (Remedy::Reinventory, "unknown unit attention"),
        (SenseKey::DataProtect, _) => (Remedy::CloseVolume, "data protected"),
        (SenseKey::BlankCheck, _) => (Remedy::QuarantineVolume, "blank where data was expected"),
        (SenseKey::AbortedCommand, _) => (Remedy::Retry, "command aborted"),
        (SenseKey::VolumeOverflow, _) => (Remedy::CloseVolume, "volume overflow"),
        (SenseKey::Miscompare, _) => (Remedy::QuarantineDrive, "miscompare"),
        (SenseKey::VendorSpecific | SenseKey::CopyAborted | SenseKey::Reserved | SenseKey::Completed, _) => {
            (Remedy::Operator, "unknown condition")
        }
    };
    Verdict { remedy, meaning }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::scsi::sense::tests::any_sense;

    fn drive(key: u8, asc: u8, ascq: u8) -> Remedy {
        classify_sense(DeviceKind::Drive, &Sense::new(SenseKey::from_bits(key), asc, ascq)).remedy
    }

    fn changer(key: u8, asc: u8, ascq: u8) -> Remedy {
        classify_sense(DeviceKind::Changer, &Sense::new(SenseKey::from_bits(key), asc, ascq)).remedy
    }

    #[test]
    fn the_faults_seen_in_the_field_get_their_safe_action() {
        for (code, remedy) in [
            ((0x6, 0x28, 0x00), Remedy::Reattach),
            ((0x6, 0x29, 0x00), Remedy::Reattach),
            ((0x6, 0x2A, 0x01), Remedy::Reattach),
            ((0x6, 0x2A, 0x03), Remedy::FenceLost),
            ((0x6, 0x2A, 0x05), Remedy::FenceLost),
            ((0x0, 0x00, 0x02), Remedy::Proceed),
            ((0x0, 0x00, 0x07), Remedy::Proceed),
            ((0xD, 0x00, 0x02), Remedy::CloseVolume),
            ((0x3, 0x0C, 0x00), Remedy::CloseVolume),
            ((0x3, 0x50, 0x00), Remedy::CloseVolume),
            ((0x3, 0x52, 0x00), Remedy::CloseVolume),
            ((0x3, 0x11, 0x00), Remedy::RepositionAndRetry),
            ((0x3, 0x14, 0x01), Remedy::RepositionAndRetry),
            ((0x8, 0x00, 0x05), Remedy::EndOfData),
            ((0x4, 0x53, 0x00), Remedy::QuarantineDrive),
            ((0x5, 0x53, 0x01), Remedy::QuarantineDrive),
            ((0x2, 0x04, 0x01), Remedy::Wait),
            ((0x0, 0x82, 0x82), Remedy::Clean),
            ((0x1, 0x00, 0x17), Remedy::Clean),
            ((0x2, 0x30, 0x03), Remedy::Clean),
            ((0x7, 0x27, 0x00), Remedy::CloseVolume),
            ((0x7, 0x30, 0x0C), Remedy::CloseVolume),
            ((0x3, 0x30, 0x00), Remedy::QuarantineVolume),
            ((0x4, 0x10, 0x01), Remedy::Retry),
            ((0x7, 0x74, 0x01), Remedy::Operator),
        ] {
            assert_eq!(drive(code.0, code.1, code.2), remedy, "{code:x?}");
        }
        for (code, remedy) in [
            ((0x5, 0x3B, 0x0D), Remedy::Reinventory),
            ((0x5, 0x3B, 0x0E), Remedy::Reinventory),
            ((0x6, 0x28, 0x01), Remedy::Reinventory),
            ((0x4, 0x15, 0x01), Remedy::Reinventory),
            ((0x5, 0x53, 0x02), Remedy::Operator),
        ] {
            assert_eq!(changer(code.0, code.1, code.2), remedy, "{code:x?}");
        }
    }

    #[test]
    fn a_reservation_conflict_is_a_lost_fence() {
        let completion = Completion { status: Status::ReservationConflict, ..Completion::GOOD };
        assert_eq!(classify(DeviceKind::Drive, &completion).unwrap().remedy, Remedy::FenceLost);
    }

    #[test]
    fn only_end_of_data_is_end_of_data() {
        for kind in [DeviceKind::Drive, DeviceKind::Changer] {
            for key in 0..16 {
                for asc in 0..=255 {
                    for ascq in 0..=255 {
                        let sense = Sense::new(SenseKey::from_bits(key), asc, ascq);
                        let ends = classify_sense(kind, &sense).remedy == Remedy::EndOfData;
                        let may = (asc, ascq) == (0, 5) && (key == 0 || key == 8);
                        assert!(!ends || may, "{sense} was taken for the end of data");
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_deferred_error_is_never_answered_by_a_retry(sense in any_sense()) {
            let remedy = classify_sense(DeviceKind::Drive, &sense.deferred()).remedy;
            prop_assert!(!matches!(remedy, Remedy::Retry | Remedy::Wait | Remedy::RepositionAndRetry));
        }
    }
}
