//! Every combination of where pieces are, how the client takes them, and who connects.

use std::collections::BTreeSet;

use catalog::Segment;
use wire::id::{FileId, VolumeLabel};

use super::{super::mover, *};

const MIB: u64 = 1 << 20;

fn range(offset: u64, length: u64) -> ByteRange {
    ByteRange::new(offset, length).expect("a small range")
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

/// A file of `movers.len()` segments of one MiB, the one after the other, on these movers.
fn striped(movers: &[&str]) -> Vec<Held> {
    let segment = |(index, name): (usize, &&str)| {
        let at = index as u64 * MIB;
        let extent = Extent {
            volume: VolumeLabel::new(format!("{name}.disk0")).expect("a good label"),
            place: Place::Disk { file: FileId(100 + index as u64), offset_bytes: at },
            length_bytes: MIB,
        };
        Held::whole(Segment { range: range(at, MIB), extent, adler32: 7, crc32c: 8 }, mover(name))
    };
    movers.iter().enumerate().map(segment).collect()
}

fn wanted<'a>(movers: &[&str], part: &'a Part) -> Wanted<'a> {
    let held = striped(movers);
    let size_bytes = held.len() as u64 * MIB;
    Wanted { bitfile: BitfileId(5), size_bytes, part, held, anybody: mover("any") }
}

fn port(framing: Framing, side: SideView) -> PortView {
    PortView { framing, streams: 4, side }
}

fn told_to(movers: &[&str]) -> SideView {
    SideView::Told(movers.iter().map(|name| mover(name)).collect())
}

/// Every byte that is wanted is sent once, at the offset it is wanted at, from the place where it is.
fn sent_once(plan: &ReadPlan, wanted: &Wanted<'_>) {
    let (ranges, base) = ranges(wanted.part, wanted.size_bytes).expect("a good part");
    let mut coverage = Coverage::new();
    let straight = plan.legs.iter().map(|leg| (&leg.mover, &leg.pieces));
    let relayed = plan.relay.iter().flat_map(|relay| relay.senders.iter().map(|(mover, pieces)| (mover, pieces)));
    for (mover, pieces) in straight.chain(relayed) {
        for piece in pieces {
            let sent = range(piece.offset_bytes + base, piece.extent.length_bytes);
            coverage.add(sent).expect("no byte is sent twice");
            let Held { segment, mover: home, .. } = wanted
                .held
                .iter()
                .find(|held| held.used.intersection(sent) == Some(sent))
                .expect("a piece lies in one segment");
            assert_eq!(home, mover);
            // In these files the byte at offset o of the file is at offset o of its disk file.
            let Place::Disk { offset_bytes, .. } = piece.extent.place else { panic!("not on disk") };
            assert_eq!(offset_bytes, sent.offset());
            assert_eq!(piece.sums.is_some(), sent == segment.range);
        }
    }
    let all: Vec<_> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
    assert!(all.iter().all(|range| coverage.covers(*range)));
    assert_eq!(coverage.bytes(), plan.bytes);
}

/// At every address the ends that are announced are the connections that are made.
fn ends_agree(plan: &ReadPlan, streams: u32) {
    let addresses: BTreeSet<_> = plan
        .legs
        .iter()
        .filter_map(|leg| match leg.end {
            ClientEnd::At(address) => Some(address),
            ClientEnd::Comes => None,
        })
        .collect();
    for address in addresses {
        let legs: Vec<_> = plan.legs.iter().filter(|leg| leg.end == ClientEnd::At(address)).collect();
        let announced: Vec<_> = legs
            .iter()
            .filter_map(|leg| match leg.eof {
                Eof::Own => Some(streams),
                Eof::Total(total) => Some(total),
                Eof::Other => None,
            })
            .collect();
        assert_eq!(announced, [streams * legs.len() as u32], "{address}: {:?}", plan.legs);
    }
}

#[test]
fn whatever_the_port_and_the_stripe_every_byte_is_sent_once() {
    let files: [&[&str]; 5] = [&["a"], &["a", "a"], &["a", "b"], &["a", "b", "a", "c"], &["a", "b", "c", "d"]];
    let parts = [
        Part::Whole,
        Part::From(MIB / 2),
        Part::Relative(range(MIB / 4, MIB / 2)),
        Part::Relative(range(10, 1 << 40)),
        Part::Except(vec![range(0, 100), range(MIB - 5, 10)]),
    ];
    let addresses = |count: u16| SideView::Active((1..=count).map(address).collect());
    let sides = [
        addresses(1),
        addresses(2),
        addresses(3),
        addresses(7),
        SideView::Untold { striped: true },
        SideView::Untold { striped: false },
        told_to(&["a"]),
        told_to(&["b", "a"]),
        told_to(&["x"]),
        told_to(&["a", "b", "c", "d"]),
    ];
    for movers in files {
        for part in &parts {
            for side in &sides {
                for framing in [Framing::Stream, Framing::ModeE] {
                    let wanted = wanted(movers, part);
                    let port = port(framing, side.clone());
                    let one_range = !matches!(part, Part::Except(_));
                    let Ok(plan) = plan(&wanted, &port) else {
                        assert!(framing == Framing::Stream && !one_range, "{port:?} {part:?}");
                        continue;
                    };
                    sent_once(&plan, &wanted);
                    if framing == Framing::ModeE {
                        ends_agree(&plan, 4);
                    } else {
                        let ends = plan.legs.iter().filter(|leg| !leg.pieces.is_empty()).count();
                        let ends = ends + usize::from(plan.relay.is_some());
                        let many_told = matches!(side, SideView::Told(told) if told.len() > 1);
                        assert!(ends == 1 || many_told, "one connection carries a stream: {plan:?}");
                    }
                    if let SideView::Told(told) = side {
                        let relay = plan.relay.iter().map(|relay| &relay.through);
                        let at: BTreeSet<_> = plan.legs.iter().map(|leg| &leg.mover).chain(relay).collect();
                        assert_eq!(at, told.iter().collect(), "the client waits for an end at each address");
                    }
                }
            }
        }
    }
}

#[test]
fn a_client_that_can_be_reached_or_told_gets_its_bytes_without_a_relay() {
    for side in [SideView::Active(vec![address(1)]), SideView::Untold { striped: true }, told_to(&["b", "a"])] {
        let plan = plan(&wanted(&["a", "b"], &Part::Whole), &port(Framing::ModeE, side)).expect("a plan");
        assert_eq!((plan.relay, plan.legs.len()), (None, 2));
    }
    for side in [SideView::Active(vec![address(1)]), SideView::Untold { striped: false }, told_to(&["a"])] {
        let plan = plan(&wanted(&["a", "a"], &Part::Whole), &port(Framing::Stream, side)).expect("a plan");
        assert_eq!((plan.relay, plan.legs.len()), (None, 1));
    }
}

#[test]
fn several_movers_to_one_address_agree_on_the_end() {
    let side = SideView::Active(vec![address(1)]);
    let plan = plan(&wanted(&["a", "b", "c"], &Part::Whole), &port(Framing::ModeE, side)).expect("a plan");
    let ends: Vec<_> = plan.legs.iter().map(|leg| leg.eof).collect();
    assert_eq!(ends, [Eof::Total(12), Eof::Other, Eof::Other]);
}

#[test]
fn one_mover_to_several_addresses_sends_a_share_to_each() {
    let side = SideView::Active((1..=4).map(address).collect());
    let plan = plan(&wanted(&["a"], &Part::Whole), &port(Framing::ModeE, side)).expect("a plan");
    let shares: Vec<_> = plan.legs.iter().map(|leg| bytes(&leg.pieces)).collect();
    assert_eq!(shares, [MIB / 4; 4]);
}

#[test]
fn an_address_for_which_nothing_is_left_still_gets_an_end() {
    let (side, part) = (SideView::Active((1..=4).map(address).collect()), Part::Relative(range(0, 2)));
    let plan = plan(&wanted(&["a"], &part), &port(Framing::ModeE, side)).expect("a plan");
    let shares: Vec<_> = plan.legs.iter().map(|leg| bytes(&leg.pieces)).collect();
    assert_eq!(shares, [1, 1, 0, 0]);
}

#[test]
fn what_lies_elsewhere_than_the_client_was_told_is_relayed_there() {
    let plan = plan(&wanted(&["a"], &Part::Whole), &port(Framing::Stream, told_to(&["x"]))).expect("a plan");
    let relay = plan.relay.expect("a relay");
    assert_eq!((relay.through, relay.reason), (mover("x"), RelayReason::EarlyPassive));
    assert_eq!(relay.expected, Some(range(0, MIB)));
}

#[test]
fn a_striped_file_in_one_stream_goes_through_the_mover_with_most_of_it_in_order() {
    let side = SideView::Untold { striped: false };
    let plan = plan(&wanted(&["a", "b", "b"], &Part::From(5)), &port(Framing::Stream, side)).expect("a plan");
    let relay = plan.relay.expect("a relay");
    assert_eq!((relay.through, relay.reason, relay.in_turn), (mover("b"), RelayReason::OneStream, true));
    let order: Vec<_> = relay.senders.iter().map(|(mover, _)| mover.as_str()).collect();
    assert_eq!(order, ["a", "b"]);
    assert_eq!(relay.expected, Some(range(5, 3 * MIB - 5)));
}

#[test]
fn an_empty_file_has_an_end_all_the_same() {
    let wanted =
        Wanted { bitfile: BitfileId(1), size_bytes: 0, part: &Part::Whole, held: Vec::new(), anybody: mover("any") };
    for (side, legs) in [(SideView::Untold { striped: true }, 1), (told_to(&["a", "b"]), 2)] {
        let plan = plan(&wanted, &port(Framing::ModeE, side)).expect("a plan");
        assert_eq!(plan.legs.len() + usize::from(plan.relay.is_some()), legs);
        assert_eq!(plan.bytes, 0);
    }
}

#[test]
fn a_part_that_makes_no_sense_is_refused() {
    let side = || SideView::Untold { striped: true };
    let beyond = Part::From(MIB + 1);
    let failure = plan(&wanted(&["a"], &beyond), &port(Framing::Stream, side())).expect_err("behind the end");
    assert_eq!(failure.kind(), FailureKind::BadArgument);
    let holes = Part::Except(vec![range(5, 5)]);
    let failure = plan(&wanted(&["a"], &holes), &port(Framing::Stream, side())).expect_err("two ranges");
    assert_eq!(failure.kind(), FailureKind::BadArgument);
}

#[test]
fn bytes_on_no_disk_are_said_to_be_missing() {
    let part = Part::Whole;
    let mut wanted = wanted(&["a", "b", "c"], &part);
    wanted.held.remove(1);
    let failure = plan(&wanted, &port(Framing::ModeE, SideView::Untold { striped: true })).expect_err("a hole");
    assert_eq!(failure.kind(), FailureKind::Damaged);
}
