//! `SITE STAGE [seconds] path`: bring a file from tape to disk.
//!
//! Talks to the recall queue. Answers 250 when the file is on disk, 450 with the position and the reason when it is not
//! yet: the request stays in the queue, and the same command asks again.

use std::time::Duration;

use wire::ftp::Reply;

use super::{
    super::{desk::Voice, path::AbsolutePath, session::work::Outcome},
    Commands,
    refusal::{refusal, sentence},
    transfers::standing,
};
use crate::{failure::Failure, transfer::Waiting};

/// Longest that a reply may wait: clients give up on a silent control connection sooner or later, and nothing is lost
/// by asking again.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

impl Commands {
    pub(super) async fn stage(&self, path: AbsolutePath, wait_seconds: Option<u64>, voice: Voice) -> Outcome {
        let wait = Duration::from_secs(wait_seconds.unwrap_or(0)).min(LONGEST_WAIT);
        let reply = self.try_stage(&path, wait, voice).await;
        Outcome::Replied(reply.unwrap_or_else(|failure| refusal(&failure, "stage")))
    }

    async fn try_stage(&self, path: &AbsolutePath, wait: Duration, voice: Voice) -> Result<Reply, Failure> {
        let who = self.who()?;
        let file = self.services.files.readable(&who, &self.tree(path)?).await?.file;
        if file.residency.on_disk {
            return Ok(Reply::new(250, format!("{path} is on disk.")));
        }
        // This wish stays in the queue; waiting for it below is another, which goes with this session.
        let Some(waiting) = self.services.stager.request(file.bitfile, &who).await? else {
            return Ok(Reply::new(250, format!("{path} is on disk.")));
        };
        if wait.is_zero() {
            return Ok(not_yet(path, &waiting));
        }
        let (progress, mut told) = tokio::sync::mpsc::channel(1);
        let staged = self.services.stager.stage(file.bitfile, &who, progress);
        tokio::pin!(staged);
        let deadline = tokio::time::sleep(wait);
        tokio::pin!(deadline);
        let mut last = waiting;
        loop {
            tokio::select! {
                result = &mut staged => {
                    result?;
                    return Ok(Reply::new(250, format!("{path} is on disk.")));
                }
                Some(waiting) = told.recv() => last = waiting,
                () = &mut deadline => break,
                () = voice.cancelled() => break,
            }
        }
        Ok(not_yet(path, &last))
    }
}

fn not_yet(path: &AbsolutePath, waiting: &Waiting) -> Reply {
    Reply::new(450, sentence(&format!("{path} is not on disk yet: {}", standing(waiting))))
}
