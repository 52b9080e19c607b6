//! Where a new file's bytes go, and who receives them from the client.

use std::{cmp::Reverse, collections::BTreeMap, net::SocketAddr};

use wire::{
    id::{MoverId, VolumeLabel},
    mover::Framing,
};

use super::{ClientEnd, PortView, RelayReason, SideView, bad};
use crate::failure::{Failure, FailureKind};

/// A disk volume that may take a new file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::transfer) struct Candidate {
    pub(in crate::transfer) volume: VolumeLabel,
    pub(in crate::transfer) mover: MoverId,
    /// What may be filled.
    pub(in crate::transfer) free_bytes: u64,
    /// Transfers under way on the mover.
    pub(in crate::transfer) load: usize,
}

/// What is written.
pub(in crate::transfer) struct Writing {
    /// Volumes of the right storage class that take writes.
    pub(in crate::transfer) candidates: Vec<Candidate>,
    /// Over how many movers, at most.
    pub(in crate::transfer) width: u16,
    /// Files up to this size are not striped.
    pub(in crate::transfer) block_bytes: u64,
    /// How much will come, if the client said.
    pub(in crate::transfer) bytes: Option<u64>,
    /// Breaks ties, so that equal movers take turns.
    pub(in crate::transfer) turn: usize,
}

/// One mover's part of an upload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::transfer) struct Receiver {
    pub(in crate::transfer) mover: MoverId,
    pub(in crate::transfer) volume: VolumeLabel,
    pub(in crate::transfer) reserve_bytes: u64,
    pub(in crate::transfer) end: ClientEnd,
    /// The client's connection is with this mover, which passes on what comes.
    pub(in crate::transfer) through: Option<(MoverId, RelayReason)>,
}

/// Decides who receives what.
///
/// # Errors
///
/// [`FailureKind::NoSpace`] if no volume has room; [`FailureKind::Unsupported`] for a port over which nothing can be
/// sent.
pub(in crate::transfer) fn plan(writing: &Writing, port: &PortView) -> Result<Vec<Receiver>, Failure> {
    let width = match (&port.side, port.framing) {
        (SideView::Told(movers), _) => movers.len(),
        (SideView::Untold { striped: true }, Framing::ModeE) if stripes(writing) => usize::from(writing.width.max(1)),
        _ => 1,
    };
    let ranked = ranked(writing, width)?;
    let share = |width: usize| writing.bytes.map_or(0, |bytes| bytes.div_ceil(width as u64));
    let receiver = |candidate: &Candidate, end, width| Receiver {
        mover: candidate.mover.clone(),
        volume: candidate.volume.clone(),
        reserve_bytes: share(width),
        end,
        through: None,
    };
    match &port.side {
        SideView::Active(_) if port.framing == Framing::ModeE => Err(Failure::new(
            FailureKind::Unsupported,
            "in extended block mode the sender connects: send PASV or SPAS before storing",
        )),
        SideView::Active(to) => Ok(vec![receiver(&ranked[0], ClientEnd::At(first(to)?), 1)]),
        SideView::Untold { .. } => {
            let width = width.min(ranked.len());
            Ok(ranked[..width].iter().map(|candidate| receiver(candidate, ClientEnd::Comes, width)).collect())
        }
        SideView::Told(movers) if movers.is_empty() => Err(bad("there is no data connection: send PASV or PORT first")),
        SideView::Told(movers) => Ok(movers
            .iter()
            .map(|mover| match ranked.iter().find(|candidate| candidate.mover == *mover) {
                Some(own) => receiver(own, ClientEnd::Comes, width),
                None => {
                    let through = Some((mover.clone(), RelayReason::EarlyPassive));
                    Receiver { through, ..receiver(&ranked[0], ClientEnd::Comes, width) }
                }
            })
            .collect()),
    }
}

fn first(to: &[SocketAddr]) -> Result<SocketAddr, Failure> {
    to.first().copied().ok_or_else(|| bad("there is no address to connect to: send PORT first"))
}

fn stripes(writing: &Writing) -> bool {
    writing.bytes.is_none_or(|bytes| bytes > writing.block_bytes)
}

/// The best volume of every mover, the best mover first: least to do, then most room.
pub(in crate::transfer) fn ranked(writing: &Writing, width: usize) -> Result<Vec<Candidate>, Failure> {
    if writing.candidates.is_empty() {
        return Err(Failure::new(
            FailureKind::Unavailable,
            "no disk volume takes new files at the moment: try again later, or ask the operator",
        ));
    }
    // Striping over fewer movers than wanted is better than refusing: what fits is looked for by the narrowest stripe.
    let roomy = |width: usize| {
        let need = writing.bytes.unwrap_or(1).div_ceil(width.max(1) as u64).max(1);
        let mut best: BTreeMap<&MoverId, &Candidate> = BTreeMap::new();
        for candidate in writing.candidates.iter().filter(|candidate| candidate.free_bytes >= need) {
            let known = best.entry(&candidate.mover).or_insert(candidate);
            if known.free_bytes < candidate.free_bytes {
                *known = candidate;
            }
        }
        let mut movers: Vec<_> = best.into_values().cloned().collect();
        let count = movers.len().max(1);
        movers.rotate_left(writing.turn % count);
        // Stable, so that those with as much to do keep the order of their turns.
        movers.sort_by_key(|candidate| candidate.load);
        movers
    };
    let mut found = roomy(width);
    for narrower in (1..width).rev() {
        if found.len() > narrower {
            break;
        }
        found = roomy(narrower);
    }
    if found.is_empty() {
        let most = writing.candidates.iter().max_by_key(|candidate| (candidate.free_bytes, Reverse(&candidate.volume)));
        let most = most.map_or(0, |candidate| candidate.free_bytes);
        let wanted = writing.bytes.map_or_else(|| "another byte".to_owned(), |bytes| format!("{bytes} bytes"));
        return Err(Failure::new(
            FailureKind::NoSpace,
            format_args!("no disk volume has room for {wanted} (the most is {most}): try again when space was made"),
        ));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{super::mover, *};

    fn candidate(name: &str, volume: &str, free_bytes: u64, load: usize) -> Candidate {
        let volume = VolumeLabel::new(format!("{name}.{volume}")).expect("a good label");
        Candidate { volume, mover: mover(name), free_bytes, load }
    }

    fn writing(candidates: Vec<Candidate>, width: u16, bytes: Option<u64>) -> Writing {
        Writing { candidates, width, block_bytes: 100, bytes, turn: 0 }
    }

    fn port(framing: Framing, side: SideView) -> PortView {
        PortView { framing, streams: 1, side }
    }

    fn volumes(receivers: &[Receiver]) -> Vec<&str> {
        receivers.iter().map(|receiver| receiver.volume.as_str()).collect()
    }

    fn three() -> Vec<Candidate> {
        vec![
            candidate("a", "d0", 1000, 5),
            candidate("a", "d1", 2000, 5),
            candidate("b", "d0", 900, 1),
            candidate("c", "d0", 900, 2),
        ]
    }

    #[test]
    fn a_file_goes_to_the_least_busy_mover_and_its_emptiest_volume() {
        let untold = port(Framing::Stream, SideView::Untold { striped: false });
        let plan = super::plan(&writing(three(), 4, Some(950)), &untold).expect("room");
        assert_eq!(volumes(&plan), ["a.d1"], "b and c have no room for it");
        let plan = super::plan(&writing(three(), 4, Some(10)), &untold).expect("room");
        assert_eq!((volumes(&plan), plan[0].reserve_bytes), (vec!["b.d0"], 10));
    }

    #[test]
    fn equal_movers_take_turns() {
        let equal = || vec![candidate("a", "d", 500, 0), candidate("b", "d", 600, 0)];
        let untold = port(Framing::Stream, SideView::Untold { striped: false });
        let chosen = |turn| {
            let plan = super::plan(&Writing { turn, ..writing(equal(), 1, None) }, &untold).expect("room");
            plan[0].mover.clone()
        };
        assert_eq!([chosen(0), chosen(1), chosen(2)], [mover("a"), mover("b"), mover("a")]);
    }

    #[test]
    fn a_large_file_is_striped_where_the_client_takes_several_addresses() {
        let striped = || port(Framing::ModeE, SideView::Untold { striped: true });
        let plan = super::plan(&writing(three(), 2, Some(1200)), &striped()).expect("room");
        assert_eq!(volumes(&plan), ["b.d0", "c.d0"]);
        assert!(plan.iter().all(|receiver| receiver.reserve_bytes == 600));
        for small in [Some(100), Some(1)] {
            assert_eq!(super::plan(&writing(three(), 2, small), &striped()).expect("room").len(), 1);
        }
        let one_address = port(Framing::ModeE, SideView::Untold { striped: false });
        assert_eq!(super::plan(&writing(three(), 2, Some(900)), &one_address).expect("room").len(), 1);
    }

    #[test]
    fn a_stripe_gets_narrower_when_movers_are_few() {
        let striped = port(Framing::ModeE, SideView::Untold { striped: true });
        let plan = super::plan(&writing(vec![candidate("a", "d", 1000, 0)], 4, Some(900)), &striped).expect("room");
        assert_eq!((volumes(&plan), plan[0].reserve_bytes), (vec!["a.d"], 900));
        let none = super::plan(&writing(vec![candidate("a", "d", 1000, 0)], 4, Some(1100)), &striped);
        assert_eq!(none.expect_err("too large for one").kind(), FailureKind::NoSpace);
    }

    #[test]
    fn a_client_that_was_told_an_address_stores_there_or_through_there() {
        let told = |name| port(Framing::Stream, SideView::Told(vec![mover(name)]));
        let plan = super::plan(&writing(three(), 1, Some(10)), &told("c")).expect("room");
        assert_eq!((volumes(&plan), &plan[0].through), (vec!["c.d0"], &None));
        let plan = super::plan(&writing(three(), 1, Some(950)), &told("c")).expect("room");
        assert_eq!(volumes(&plan), ["a.d1"]);
        assert_eq!(plan[0].through, Some((mover("c"), RelayReason::EarlyPassive)));
    }

    #[test]
    fn a_mover_can_fetch_a_stream_but_not_blocks() {
        let address = SocketAddr::from(([192, 0, 2, 1], 5));
        let active = |framing| port(framing, SideView::Active(vec![address]));
        let plan = super::plan(&writing(three(), 4, None), &active(Framing::Stream)).expect("room");
        assert_eq!(plan[0].end, ClientEnd::At(address));
        let refused = super::plan(&writing(three(), 4, None), &active(Framing::ModeE)).expect_err("refused");
        assert_eq!(refused.kind(), FailureKind::Unsupported);
    }

    #[test]
    fn no_volume_and_no_room_are_told_apart() {
        let untold = port(Framing::Stream, SideView::Untold { striped: false });
        let kind =
            |candidates, bytes| super::plan(&writing(candidates, 1, bytes), &untold).expect_err("refused").kind();
        assert_eq!(kind(Vec::new(), None), FailureKind::Unavailable);
        assert_eq!(kind(three(), Some(1 << 40)), FailureKind::NoSpace);
        assert_eq!(kind(vec![candidate("a", "d", 0, 0)], None), FailureKind::NoSpace);
    }
}
