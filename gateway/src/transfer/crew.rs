//! The movers' transfers that make up one of ours, told apart by what each does.
//!
//! Owns them until they are settled; dropped before, they are cancelled and what they made is looked into.

use futures::future::{FutureExt as _, select_all};
use wire::{
    extent::ByteRange,
    mover::{Outcome, VolumeFile, Written},
};

use crate::movers::{MoverError, Transfer, TransferEvent};

/// What a member of a crew does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Duty {
    /// Moves bytes between the client and its own volumes; the stripe's number.
    Client(u16),
    /// Moves bytes between the client and another mover.
    Relay,
    /// Moves bytes between its own volumes and the mover that has the client; the stripe's number.
    Behind(u16),
}

/// The members.
#[derive(Default)]
pub(super) struct Crew {
    members: Vec<Member>,
}

struct Member {
    duty: Duty,
    transfer: Transfer,
    durable: Vec<Written>,
    bytes: u64,
    received: bool,
    ended: bool,
}

/// What a crew says.
#[derive(Debug)]
pub(super) enum News {
    /// A member moves.
    Progress { duty: Duty, bytes: u64, ranges: Vec<ByteRange> },
    /// All that talk to the client have everything it sent.
    Received,
    /// A member is done.
    Finished { duty: Duty, outcome: Outcome },
    /// A member failed.
    Failed { error: MoverError, outcome: Outcome },
}

impl Crew {
    pub(super) fn join(&mut self, duty: Duty, transfer: Transfer) {
        let member = Member { duty, transfer, durable: Vec::new(), bytes: 0, received: false, ended: false };
        self.members.push(member);
    }

    /// The files that members make.
    pub(super) fn files(&self) -> Vec<VolumeFile> {
        self.members.iter().flat_map(|member| member.transfer.files().to_vec()).collect()
    }

    /// The next that happens; `None` when all have ended. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<News> {
        loop {
            let (index, event) = self.event().await?;
            if let Some(news) = self.take(index, event) {
                return Some(news);
            }
        }
    }

    async fn event(&mut self) -> Option<(usize, Option<TransferEvent>)> {
        let mut open: Vec<_> = self.members.iter_mut().enumerate().filter(|(_, member)| !member.ended).collect();
        match open.as_mut_slice() {
            [] => None,
            // Nearly always there is one.
            [(index, member)] => Some((*index, member.transfer.next().await)),
            several => {
                let waits = several.iter_mut().map(|(index, member)| {
                    let index = *index;
                    member.transfer.next().map(move |event| (index, event)).boxed()
                });
                Some(select_all(waits).await.0)
            }
        }
    }

    fn take(&mut self, index: usize, event: Option<TransferEvent>) -> Option<News> {
        let member = &mut self.members[index];
        let duty = member.duty;
        let whole = |member: &mut Member, outcome: Outcome| {
            member.ended = true;
            member.bytes = member.bytes.max(outcome.bytes);
            let mut written = std::mem::take(&mut member.durable);
            written.extend(outcome.written);
            Outcome { written, ..outcome }
        };
        match event {
            Some(TransferEvent::Progress { bytes, ranges }) => {
                member.bytes = bytes;
                Some(News::Progress { duty, bytes, ranges })
            }
            Some(TransferEvent::Durable(mut written)) => {
                member.durable.append(&mut written);
                None
            }
            Some(TransferEvent::Received { bytes }) => {
                member.received = true;
                member.bytes = bytes;
                self.all_received().then_some(News::Received)
            }
            Some(TransferEvent::Finished(outcome)) => {
                member.received = true;
                let outcome = whole(member, outcome);
                Some(News::Finished { duty, outcome })
            }
            Some(TransferEvent::Failed { error, outcome }) => {
                let outcome = whole(member, outcome);
                Some(News::Failed { error, outcome })
            }
            None => {
                let outcome = whole(member, Outcome::default());
                let error = MoverError::Away {
                    mover: member.transfer.mover().clone(),
                    why: "the gateway is going down".to_owned(),
                };
                Some(News::Failed { error, outcome })
            }
        }
    }

    /// Whether all that talk to the client have everything it sent.
    pub(super) fn all_received(&self) -> bool {
        self.members.iter().all(|member| member.received || matches!(member.duty, Duty::Behind(_)))
    }

    /// Bytes moved between the client and movers.
    pub(super) fn client_bytes(&self) -> u64 {
        let with_client = |member: &&Member| !matches!(member.duty, Duty::Behind(_));
        self.members.iter().filter(with_client).map(|member| member.bytes).sum()
    }

    /// Asks all to stop; their ends still come.
    pub(super) fn cancel(&self) {
        self.members.iter().filter(|member| !member.ended).for_each(|member| member.transfer.cancel());
    }

    /// What they made has been dealt with.
    pub(super) fn settle(self) {
        self.members.into_iter().for_each(|member| member.transfer.settle());
    }
}
