//! Whether what a tape holds agrees with what the catalogue says it holds.
//!
//! Pure. The commit rule of the mover makes a container whole or nothing; but its report may be lost between the
//! mover and the catalogue. Then the tape is ahead, and the container is dead space. A tape that is *behind* has lost
//! what the catalogue calls safe, or is another one: it is never written.

use catalog::TapePosition;
use wire::mover::Mounted;

/// What comes of the comparison.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// They agree.
    Agrees,
    /// The tape was labelled just now: the catalogue takes it as empty.
    Fresh {
        /// Where the first container begins.
        first_block: u64,
    },
    /// The tape is ahead: what lies between is dead space, or an index.
    Adopt {
        /// The end the catalogue takes over.
        position: TapePosition,
        /// How many containers are dead; none if only an index was added.
        dead: u32,
    },
    /// The tape is behind, or ends elsewhere: it must not be used.
    Suspect {
        /// Why.
        reason: String,
    },
}

/// Compares what a drive found with what the catalogue has.
#[must_use]
pub fn reconcile(found: &Mounted, known: TapePosition) -> Verdict {
    let known_last = known.next_container.saturating_sub(1);
    let position =
        TapePosition { next_container: found.last_container.saturating_add(1), next_block: found.next_block };
    if found.labelled {
        if known_last > 0 {
            let reason = format!("it was blank, but the catalogue has {known_last} containers on it");
            return Verdict::Suspect { reason };
        }
        return Verdict::Fresh { first_block: found.next_block };
    }
    if position == known {
        return Verdict::Agrees;
    }
    // The same last container and a later end: an index was written behind it when the tape was let go.
    if found.last_container >= known_last && found.next_block > known.next_block && found.last_container > 0 {
        return Verdict::Adopt { position, dead: found.last_container - known_last };
    }
    if found.last_container == 0 && known_last == 0 {
        // Labelled before, and the report was lost: it holds nothing yet.
        return Verdict::Fresh { first_block: found.next_block };
    }
    let reason = format!(
        "its last container is {} and its data ends at block {}; the catalogue has container {known_last} and block {}",
        found.last_container, found.next_block, known.next_block
    );
    Verdict::Suspect { reason }
}

#[cfg(test)]
mod tests {
    use wire::id::VolumeLabel;

    use super::*;

    fn found(last_container: u32, next_block: u64) -> Mounted {
        Mounted {
            volume: VolumeLabel::new("PEN001L8").expect("a label"),
            labelled: false,
            last_container,
            next_block,
            capacity_bytes: 1000,
            remaining_bytes: 500,
            read_only: None,
            worm: false,
            alerts: Vec::new(),
        }
    }

    fn known(next_container: u32, next_block: u64) -> TapePosition {
        TapePosition { next_container, next_block }
    }

    #[test]
    fn a_tape_that_ends_where_the_catalogue_says_agrees() {
        assert_eq!(reconcile(&found(3, 100), known(4, 100)), Verdict::Agrees);
    }

    #[test]
    fn a_container_whose_report_was_lost_is_adopted_as_dead_space() {
        assert_eq!(reconcile(&found(5, 150), known(4, 100)), Verdict::Adopt { position: known(6, 150), dead: 2 });
    }

    #[test]
    fn an_index_behind_the_last_container_only_moves_the_end() {
        assert_eq!(reconcile(&found(3, 102), known(4, 100)), Verdict::Adopt { position: known(4, 102), dead: 0 });
    }

    #[test]
    fn a_tape_behind_the_catalogue_is_suspect() {
        for (found, known) in [(found(2, 70), known(4, 100)), (found(3, 90), known(4, 100)), (found(0, 5), known(2, 9))]
        {
            assert!(matches!(reconcile(&found, known), Verdict::Suspect { .. }));
        }
    }

    #[test]
    fn more_containers_in_fewer_blocks_is_suspect() {
        assert!(matches!(reconcile(&found(9, 50), known(4, 100)), Verdict::Suspect { .. }));
    }

    #[test]
    fn a_tape_labelled_just_now_is_empty_and_a_used_one_that_was_blank_is_suspect() {
        let blank = Mounted { labelled: true, ..found(0, 4) };
        assert_eq!(reconcile(&blank, known(1, 0)), Verdict::Fresh { first_block: 4 });
        assert!(matches!(reconcile(&blank, known(4, 100)), Verdict::Suspect { .. }));
    }

    #[test]
    fn a_label_whose_report_was_lost_is_still_an_empty_tape() {
        assert_eq!(reconcile(&found(0, 4), known(1, 0)), Verdict::Fresh { first_block: 4 });
    }
}
