//! Work on names: from a settled path to one call of [`crate::files`] and one reply.
//!
//! Owns the replies' wording, in which Globus's clients are used to it. Never checks a right: files do.

use wire::{
    ftp::{Reply, Text},
    id::{AccountName, GroupName},
};

use super::{
    super::session::work::{NameWork, Outcome},
    Commands,
    refusal::{Operation, refusal},
};
use crate::{
    failure::{Failure, FailureKind},
    files::Change,
};

impl Commands {
    pub(super) async fn names(&self, work: NameWork) -> Outcome {
        let operation = operation(&work);
        self.try_names(work).await.unwrap_or_else(|failure| Outcome::Replied(refusal(&failure, operation)))
    }

    async fn try_names(&self, work: NameWork) -> Result<Outcome, Failure> {
        let (who, files) = (self.who()?, &self.services.files);
        Ok(match work {
            NameWork::Enter(path) => {
                files.enter(&who, &self.tree(&path)?).await?;
                let reply = Reply::new(250, format!("{path} is the current directory."));
                Outcome::Entered(path, reply)
            }
            NameWork::Make(path) => {
                files.make_directory(&who, &self.tree(&path)?).await?;
                Outcome::Replied(Reply::directory(path.as_str(), "created."))
            }
            NameWork::RemoveDirectory(path) => {
                files.remove_directory(&who, &self.tree(&path)?).await?;
                Outcome::Replied(Reply::new(250, format!("{path} removed.")))
            }
            NameWork::Delete(path) => {
                files.delete(&who, &self.tree(&path)?).await?;
                Outcome::Replied(Reply::new(250, format!("{path} deleted.")))
            }
            NameWork::BeginRename(path) => {
                files.stat(&who, &self.tree(&path)?).await?;
                Outcome::RenameBegun(path, Reply::new(350, "Send RNTO with the new name."))
            }
            NameWork::Rename { from, to } => {
                files.rename(&who, &self.tree(&from)?, &self.tree(&to)?).await?;
                Outcome::Replied(Reply::new(250, format!("{from} is {to} now.")))
            }
            NameWork::SetModified { path, time, verb } => {
                files.change(&who, &self.tree(&path)?, Change::Modified(time.micros())).await?;
                // draft-somers-ftp-mfxx section 3.1: MFMT says what was set.
                Outcome::Replied(if verb == "MFMT" {
                    Reply::new(213, format!("Modify={time}; {path}"))
                } else {
                    Reply::new(250, format!("{path} was changed at {time} now."))
                })
            }
            NameWork::SetMode { path, mode } => {
                files.change(&who, &self.tree(&path)?, Change::Mode(mode)).await?;
                Outcome::Replied(Reply::new(250, format!("{path} has mode {mode:04o} now.")))
            }
            NameWork::SetGroup { path, group } => {
                let group: GroupName = name(&group, GroupName::new)?;
                let text = format!("{path} belongs to group {group} now.");
                files.change(&who, &self.tree(&path)?, Change::Group(group)).await?;
                Outcome::Replied(Reply::new(250, text))
            }
            NameWork::SetOwner { path, owner } => {
                let owner: AccountName = name(&owner, AccountName::new)?;
                let text = format!("{path} belongs to {owner} now.");
                files.change(&who, &self.tree(&path)?, Change::Owner(owner)).await?;
                Outcome::Replied(Reply::new(250, text))
            }
        })
    }
}

fn name<T>(text: &Text, new: impl FnOnce(String) -> Result<T, wire::id::BadName>) -> Result<T, Failure> {
    new(text.as_str().to_owned()).map_err(|error| Failure::new(FailureKind::BadArgument, error))
}

/// The system call that Globus's server would have failed in.
const fn operation(work: &NameWork) -> Operation {
    match work {
        NameWork::Enter(_) => "chdir",
        NameWork::Make(_) => "mkdir",
        NameWork::RemoveDirectory(_) => "rmdir",
        NameWork::Delete(_) => "unlink",
        NameWork::BeginRename(_) => "stat",
        NameWork::Rename { .. } => "rename",
        NameWork::SetModified { .. } => "utime",
        NameWork::SetMode { .. } => "chmod",
        NameWork::SetGroup { .. } | NameWork::SetOwner { .. } => "chown",
    }
}
