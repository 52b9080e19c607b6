//! Fault hooks: what tests make a drive or the robot do wrong, and when.
//!
//! Owns what was ordered and has not happened yet. Never decides by chance: a seeded test picks the moments.

use std::collections::VecDeque;

use crate::scsi::{Cdb, Sense};

/// How a command goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// It is not performed and ends with this sense.
    Sense(Sense),
    /// It is not performed and no answer comes.
    Lost,
    /// It is performed and no answer comes.
    AnswerLost,
}

/// Ordered faults of one unit.
#[derive(Default)]
pub(super) struct Faults {
    commands: VecDeque<(Option<&'static str>, Failure)>,
    reads: Vec<BlockFault>,
    writes: Vec<BlockFault>,
    flips: Vec<u64>,
    pub(super) at_sync: Option<Sense>,
}

struct BlockFault {
    block: u64,
    sense: Sense,
    times: u32,
}

impl Faults {
    /// The next command, or the next of this name (`"WRITE(6)"`), goes wrong.
    pub(super) fn order(&mut self, command: Option<&'static str>, failure: Failure) {
        self.commands.push_back((command, failure));
    }

    /// The failure ordered for this command, if any; it happens once.
    pub(super) fn take(&mut self, cdb: &Cdb) -> Option<Failure> {
        let name = cdb.name();
        let at = self.commands.iter().position(|(command, _)| command.is_none_or(|command| command == name))?;
        self.commands.remove(at).map(|(_, failure)| failure)
    }

    pub(super) fn order_read(&mut self, block: u64, sense: Sense, times: u32) {
        self.reads.push(BlockFault { block, sense, times });
    }

    pub(super) fn order_write(&mut self, block: u64, sense: Sense, times: u32) {
        self.writes.push(BlockFault { block, sense, times });
    }

    pub(super) fn order_flip(&mut self, block: u64) {
        self.flips.push(block);
    }

    pub(super) fn on_read(&mut self, block: u64) -> Option<Sense> {
        take_block(&mut self.reads, block)
    }

    pub(super) fn on_write(&mut self, block: u64) -> Option<Sense> {
        take_block(&mut self.writes, block)
    }

    /// Whether a byte of this block is to be changed on its way to the host, once.
    pub(super) fn flips(&mut self, block: u64) -> bool {
        let at = self.flips.iter().position(|&flip| flip == block);
        at.map(|at| self.flips.swap_remove(at)).is_some()
    }
}

fn take_block(faults: &mut Vec<BlockFault>, block: u64) -> Option<Sense> {
    let at = faults.iter().position(|fault| fault.block == block)?;
    let sense = faults[at].sense;
    faults[at].times = faults[at].times.saturating_sub(1);
    if faults[at].times == 0 {
        faults.swap_remove(at);
    }
    Some(sense)
}
