//! The order of a session's commands: which may begin, and whose replies may be spoken.
//!
//! Owns the commands under way and those that wait. Never knows what a command does, only when it may begin.
//!
//! Clients pipeline: several commands are in the socket before the first is answered (`globus-url-copy -pp`, `pftp`
//! with many small files). Replies come in the order of the commands, so only the oldest command under way may speak,
//! and what the others say is held until it is their turn. A transfer whose bytes are all in, but not yet committed,
//! does not keep the next one from moving.
//!
//! ```text
//! waiting --its turn comes--> Working --------------done--> Done --oldest--> gone
//!                        \--> Moving --received--> Committing --done--^
//! ```
//!
//! Invariant: at most [`MAX_OUTSTANDING`] commands are under way or wait, and each is answered once, in order.

use std::collections::VecDeque;

use wire::ftp::Reply;

use super::{super::path::AbsolutePath, Action, Ticket};

/// Most commands under way or waiting. More stay in the socket, and TCP makes the client wait.
pub(super) const MAX_OUTSTANDING: usize = 64;

/// Most preliminary replies and markers held for a command that may not speak yet. Further markers are dropped: the
/// next one says the same and more.
const MAX_HELD: usize = 16;

/// When a command may begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Turn {
    /// When nothing is under way at all: it may depend on what came before, or change it.
    Settled,
    /// When nothing moves on the data connections: earlier transfers may be committing still.
    Quiet,
    /// As [`Turn::Quiet`], and no transfer of the same file may be committing: the later must win.
    QuietBut(AbsolutePath),
}

/// How far a command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Working,
    Moving,
    Committing,
    Done,
}

#[derive(Debug)]
struct Slot {
    ticket: Ticket,
    verb: &'static str,
    stage: Stage,
    path: Option<AbsolutePath>,
    /// Only its client can say that it is whole: see [`super::work::Carriage::fragile`].
    fragile: bool,
    bytes: u64,
    held: Vec<Reply>,
}

/// The commands of one session. `W` is a command that waits.
#[derive(Debug)]
pub(super) struct Lane<W> {
    under_way: VecDeque<Slot>,
    waiting: VecDeque<W>,
    next: u64,
}

impl<W> Lane<W> {
    pub(super) const fn new() -> Self {
        Self { under_way: VecDeque::new(), waiting: VecDeque::new(), next: 1 }
    }

    /// Whether nothing is under way and nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty() && self.waiting.is_empty()
    }

    /// Whether another command can be taken.
    pub(super) fn has_room(&self) -> bool {
        self.under_way.len() + self.waiting.len() < MAX_OUTSTANDING
    }

    /// Puts a command behind the others.
    pub(super) fn queue(&mut self, command: W) {
        self.waiting.push_back(command);
    }

    /// The command whose turn is next.
    pub(super) fn first_waiting(&self) -> Option<&W> {
        self.waiting.front()
    }

    /// Takes the command whose turn is next.
    pub(super) fn take_waiting(&mut self) -> Option<W> {
        self.waiting.pop_front()
    }

    /// The commands that wait, to change them.
    pub(super) fn waiting_mut(&mut self) -> impl Iterator<Item = &mut W> {
        self.waiting.iter_mut()
    }

    /// Forgets the commands that wait.
    pub(super) fn drop_waiting(&mut self) {
        self.waiting.clear();
    }

    /// Whether a command of this turn may begin now.
    pub(super) fn may_begin(&self, turn: &Turn) -> bool {
        let quiet = || self.under_way.iter().all(|slot| matches!(slot.stage, Stage::Committing | Stage::Done));
        match turn {
            Turn::Settled => self.under_way.is_empty(),
            Turn::Quiet => quiet(),
            Turn::QuietBut(path) => quiet() && self.under_way.iter().all(|slot| slot.path.as_ref() != Some(path)),
        }
    }

    /// Begins work that is no transfer.
    pub(super) fn begin_work(&mut self, verb: &'static str) -> Ticket {
        self.begin(verb, Stage::Working, None, false)
    }

    /// Begins a transfer; of `path`, if another transfer of the same file must wait for its end. One that is `fragile`
    /// is not whole before its client has heard its end.
    pub(super) fn begin_transfer(&mut self, verb: &'static str, path: Option<AbsolutePath>, fragile: bool) -> Ticket {
        self.begin(verb, Stage::Moving, path, fragile)
    }

    fn begin(&mut self, verb: &'static str, stage: Stage, path: Option<AbsolutePath>, fragile: bool) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.under_way.push_back(Slot { ticket, verb, stage, path, fragile, bytes: 0, held: Vec::new() });
        ticket
    }

    /// Answers a command that needed no work.
    pub(super) fn answer(&mut self, reply: Reply, actions: &mut Vec<Action>) {
        let ticket = self.begin("", Stage::Done, None, false);
        self.speak(ticket, reply, actions);
        self.settle(actions);
    }

    /// Says something of a command under way: at once if it is the oldest, else when it becomes so.
    pub(super) fn speak(&mut self, ticket: Ticket, reply: Reply, actions: &mut Vec<Action>) {
        match self.under_way.iter_mut().position(|slot| slot.ticket == ticket) {
            Some(0) => actions.push(Action::Send(reply)),
            Some(place) => self.under_way[place].held.push(reply),
            None => {}
        }
    }

    /// Says how far a transfer is, and shows markers if it may speak.
    pub(super) fn progress(&mut self, ticket: Ticket, bytes: u64, markers: Vec<Reply>, actions: &mut Vec<Action>) {
        let Some(place) = self.under_way.iter().position(|slot| slot.ticket == ticket) else { return };
        self.under_way[place].bytes = bytes;
        if place == 0 || self.under_way[place].held.len() + markers.len() <= MAX_HELD {
            for marker in markers {
                self.speak(ticket, marker, actions);
            }
        }
    }

    /// Whether this is the oldest command under way, which may speak at any length.
    pub(super) fn may_speak(&self, ticket: Ticket) -> bool {
        self.under_way.front().is_some_and(|slot| slot.ticket == ticket)
    }

    /// All bytes of a transfer are in: the next may move.
    pub(super) fn received(&mut self, ticket: Ticket) {
        if let Some(slot) = self.under_way.iter_mut().find(|slot| slot.ticket == ticket && slot.stage == Stage::Moving)
        {
            slot.stage = Stage::Committing;
        }
    }

    /// A command has come to its end, with this reply. Whether it was under way at all.
    pub(super) fn finish(&mut self, ticket: Ticket, reply: Reply, actions: &mut Vec<Action>) -> bool {
        let known = self.under_way.iter().any(|slot| slot.ticket == ticket && slot.stage != Stage::Done);
        if known {
            self.speak(ticket, reply, actions);
            if let Some(slot) = self.under_way.iter_mut().find(|slot| slot.ticket == ticket) {
                slot.stage = Stage::Done;
            }
            self.settle(actions);
        }
        known
    }

    /// Lets go of what is done, and lets the then oldest speak.
    fn settle(&mut self, actions: &mut Vec<Action>) {
        while self.under_way.front().is_some_and(|slot| slot.stage == Stage::Done) {
            self.under_way.pop_front();
            if let Some(oldest) = self.under_way.front_mut() {
                actions.extend(oldest.held.drain(..).map(Action::Send));
            }
        }
    }

    /// The transfer that moves now: its ticket, verb, file and bytes so far.
    pub(super) fn moving(&self) -> Option<(Ticket, &'static str, Option<&AbsolutePath>, u64)> {
        let slot = self.under_way.iter().find(|slot| slot.stage == Stage::Moving)?;
        Some((slot.ticket, slot.verb, slot.path.as_ref(), slot.bytes))
    }

    /// Everything under way that leaving the session should stop: all but what is committing and known to be whole.
    pub(super) fn cancellable(&self) -> impl Iterator<Item = Ticket> + '_ {
        let stoppable = |slot: &&Slot| match slot.stage {
            Stage::Working | Stage::Moving => true,
            Stage::Committing => slot.fragile,
            Stage::Done => false,
        };
        self.under_way.iter().filter(stoppable).map(|slot| slot.ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(actions: &[Action]) -> Vec<u16> {
        let code = |action: &Action| match action {
            Action::Send(reply) => reply.code(),
            other => panic!("only replies here, not {other:?}"),
        };
        actions.iter().map(code).collect()
    }

    fn path(text: &str) -> AbsolutePath {
        AbsolutePath::root().join_text(text).unwrap()
    }

    #[test]
    fn replies_come_in_the_order_of_the_commands() {
        let mut lane = Lane::<()>::new();
        let mut actions = Vec::new();
        let first = lane.begin_transfer("STOR", Some(path("a")), false);
        lane.speak(first, Reply::new(150, ""), &mut actions);
        lane.received(first);
        let second = lane.begin_transfer("STOR", Some(path("b")), false);
        lane.speak(second, Reply::new(125, ""), &mut actions);
        lane.answer(Reply::new(200, ""), &mut actions);
        assert!(lane.finish(second, Reply::new(250, ""), &mut actions));
        assert_eq!(text(&actions), [150]);
        assert!(lane.finish(first, Reply::new(226, ""), &mut actions));
        assert_eq!(text(&actions), [150, 226, 125, 250, 200]);
        assert!(lane.is_empty());
        assert!(!lane.finish(first, Reply::new(226, ""), &mut actions), "an end is an end");
    }

    #[test]
    fn a_second_transfer_of_a_file_waits_for_the_commit_of_the_first() {
        let mut lane = Lane::<()>::new();
        let first = lane.begin_transfer("STOR", Some(path("a")), false);
        assert!(!lane.may_begin(&Turn::Quiet));
        lane.received(first);
        assert!(lane.may_begin(&Turn::Quiet) && lane.may_begin(&Turn::QuietBut(path("b"))));
        assert!(!lane.may_begin(&Turn::QuietBut(path("a"))) && !lane.may_begin(&Turn::Settled));
    }

    #[test]
    fn markers_of_a_command_that_may_not_speak_do_not_pile_up() {
        let mut lane = Lane::<()>::new();
        let mut actions = Vec::new();
        let first = lane.begin_transfer("STOR", None, false);
        lane.received(first);
        let second = lane.begin_transfer("STOR", None, false);
        for bytes in 0..1000 {
            lane.progress(second, bytes, vec![Reply::new(112, ""), Reply::new(111, "")], &mut actions);
        }
        assert_eq!(lane.under_way[1].held.len(), MAX_HELD);
        assert!(actions.is_empty());
        assert_eq!(lane.moving(), Some((second, "STOR", None, 999)));
    }
}
