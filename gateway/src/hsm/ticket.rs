//! A request for a bitfile, in the hands of whoever asked, and how long it takes.
//!
//! Waiters in this process are woken when the request ends here; one that ends elsewhere is found by looking at its row
//! now and then.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use catalog::StageRequest;
use tokio::sync::mpsc;
use wire::id::{BitfileId, RequestId};

use super::{Ask, Hsm, end_of};
use crate::{
    failure::{Failure, FailureKind},
    identity::Principal,
    transfer::{Stager, Waiting},
};

/// How often a waiter looks at its row, for requests that end in another gateway.
const LOOK: Duration = Duration::from_secs(1);

/// A request. Dropping it does not take the request back: [`Hsm::cancel`] does.
#[derive(Clone)]
pub struct Ticket {
    hsm: Hsm,
    request: StageRequest,
}

impl Ticket {
    pub(super) const fn new(hsm: Hsm, request: StageRequest) -> Self {
        Self { hsm, request }
    }

    /// The request as it was when last looked at.
    #[must_use]
    pub const fn request(&self) -> &StageRequest {
        &self.request
    }

    /// Whether it has come to its end, and how.
    #[must_use]
    pub fn end(&self) -> Option<Result<(), Failure>> {
        end_of(&self.request.state, self.request.bitfile)
    }

    /// Looks again.
    ///
    /// # Errors
    ///
    /// Those of the catalogue; [`FailureKind::NotFound`] once the request is long forgotten.
    pub async fn look(&mut self) -> Result<(), Failure> {
        let found = self.hsm.requests(&[self.request.id]).await?;
        let gone = || Failure::new(FailureKind::NotFound, format!("stage request {} is forgotten", self.request.id));
        self.request = found.into_iter().next().ok_or_else(gone)?;
        Ok(())
    }

    /// Waits for its end. Says on `progress` how it fares, whenever that changes; a slow listener misses some.
    ///
    /// # Errors
    ///
    /// How it ended, if the bitfile is not on disk then.
    pub async fn wait(&mut self, progress: Option<mpsc::Sender<Waiting>>) -> Result<(), Failure> {
        let mut last = None;
        loop {
            if let Some(end) = self.end() {
                return end;
            }
            // Asked for before looking, so that no end is missed in between.
            let ended = self.hsm.context.wait_for(self.request.id);
            let _forget = Forget(Arc::new(self.hsm.clone()), self.request.id);
            match self.look().await {
                Ok(()) if self.end().is_some() => continue,
                // The catalogue is away for a moment: so is everything else, and the wish stays.
                Ok(()) | Err(_) => {}
            }
            if let Some(progress) = &progress {
                let described = self.hsm.describe(std::slice::from_ref(&self.request)).await;
                let waiting = described.into_iter().next().map(|described| Waiting {
                    ahead: described.position.map(|position| position.saturating_sub(1)),
                    estimate: described.estimate,
                    reason: described.reason,
                });
                if waiting != last {
                    if let Some(waiting) = &waiting {
                        let _ = progress.try_send(waiting.clone());
                    }
                    last = waiting;
                }
            }
            tokio::select! {
                _ = ended => {}
                () = tokio::time::sleep(LOOK) => {}
                () = self.hsm.shutdown.stopping() => {
                    let text = "the gateway is going down; the recall goes on: ask again in a moment";
                    return Err(Failure::new(FailureKind::ShuttingDown, text));
                }
            }
            // A lost look is made up for by the next.
            let _ = self.look().await;
        }
    }
}

/// Takes a waiter out of the table when it stops waiting.
struct Forget(Arc<Hsm>, RequestId);

impl Drop for Forget {
    fn drop(&mut self) {
        self.0.context.forget(self.1);
    }
}

/// Takes a request back when whoever read the file has gone.
struct Withdraw {
    hsm: Hsm,
    request: Option<RequestId>,
}

impl Drop for Withdraw {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else { return };
        let hsm = self.hsm.clone();
        self.hsm.shutdown.spawn(async move {
            if let Err(error) = hsm.cancel(vec![request], None).await {
                tracing::warn!(%request, %error, "recall not taken back; its deadline ends it");
            }
        });
    }
}

#[async_trait]
impl Stager for Hsm {
    async fn stage(
        &self,
        bitfile: BitfileId,
        principal: &Principal,
        progress: mpsc::Sender<Waiting>,
    ) -> Result<(), Failure> {
        let account = principal.account.clone();
        let ask = Ask { bitfile, account, deadline: None, lifetime: None, priority: 0 };
        let mut tickets = Self::stage(self, vec![ask]).await?;
        let Some(mut ticket) = tickets.pop() else {
            return Err(Failure::new(FailureKind::Internal, "the catalogue did not answer a stage request"));
        };
        let mut withdraw = Withdraw { hsm: self.clone(), request: Some(ticket.request().id) };
        let end = ticket.wait(Some(progress)).await;
        // At an end there is nothing to take back; while the gateway goes down the wish stays.
        withdraw.request = None;
        end
    }

    async fn request(&self, bitfile: BitfileId, principal: &Principal) -> Result<Option<Waiting>, Failure> {
        let account = principal.account.clone();
        let ask = Ask { bitfile, account, deadline: None, lifetime: None, priority: 0 };
        let tickets = Self::stage(self, vec![ask]).await?;
        let Some(ticket) = tickets.first() else { return Ok(None) };
        match ticket.end() {
            Some(end) => end.map(|()| None),
            None => {
                let told = self.describe(std::slice::from_ref(ticket.request())).await.into_iter().next();
                Ok(told.map(|told| Waiting {
                    ahead: told.position.map(|position| position.saturating_sub(1)),
                    estimate: told.estimate,
                    reason: told.reason,
                }))
            }
        }
    }

    fn no_room(&self, pool: &str, bytes: u64) {
        Self::no_room(self, pool, bytes);
    }

    fn published(&self) {
        Self::published(self);
    }

    fn deleted(&self) {
        Self::deleted(self);
    }
}
