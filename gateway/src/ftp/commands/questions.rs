//! Questions that change nothing: sizes, times, facts, sums, usage, and listings on the control connection.
//!
//! Talks to [`crate::files`] and the catalogue. Never computes a sum to answer a question: what is not kept is refused.
//!
//! # The size of a cut upload
//!
//! Where no file of a name exists but an upload to it by the same account was cut, `SIZE` tells how many bytes of it
//! are there from the beginning, so that `reput` of lftp and `-C -` of curl go on where it was cut. Everybody else, and
//! everybody once the file exists, is told of files only. `SITE PARTIAL` tells the ranges, for clients in MODE E.

use bytes::Bytes;
use catalog::{QuotaSubject, Usage};
use futures::StreamExt as _;
use wire::{
    checksum::Algorithm,
    extent::{ByteRange, Coverage},
    ftp::{FtpTime, Reply},
};

use super::{
    super::{
        desk::Voice,
        path::AbsolutePath,
        session::work::{ListForm, Outcome, Question},
    },
    Commands,
    listing::{Listing, facts},
    refusal::{Operation, refusal},
};
use crate::{
    failure::{Failure, FailureKind},
    identity::Principal,
};

impl Commands {
    pub(super) async fn ask(&self, question: Question) -> Outcome {
        let operation = operation(&question);
        let reply = self.try_ask(question).await;
        Outcome::Replied(reply.unwrap_or_else(|failure| refusal(&failure, operation)))
    }

    /// A listing in the reply itself, so that no data connection is needed: `MLSC` and `STAT path`.
    pub(super) async fn show(&self, path: AbsolutePath, form: ListForm, voice: Voice) -> Outcome {
        let shown = self.try_show(&path, form, voice).await;
        shown.unwrap_or_else(|failure| Outcome::Replied(refusal(&failure, "stat")))
    }

    async fn try_ask(&self, question: Question) -> Result<Reply, Failure> {
        let (who, files) = (self.who()?, &self.services.files);
        match question {
            Question::Size(path) => self.size(&who, &path).await,
            Question::Modified(path) => {
                let item = files.stat(&who, &self.tree(&path)?).await?;
                Ok(Reply::time(FtpTime::from_micros(item.entry.modified.0)))
            }
            Question::Facts { path, named, facts: wanted } => {
                let item = files.stat(&who, &self.tree(&path)?).await?;
                Ok(Reply::entry(&facts(&item), wanted, &named))
            }
            Question::Checksum { path, algorithm, offset_bytes, length_bytes } => {
                let part = checksum_part(offset_bytes, length_bytes)?;
                let hex = files.checksum(&who, &self.tree(&path)?, algorithm, part).await?;
                Ok(Reply::checksum(&hex))
            }
            Question::Hash { path, named, algorithm } => self.hash(&who, &path, &named, algorithm).await,
            Question::Usage(path) => self.usage(&who, &path).await,
            Question::Partial(path) => self.partial(&who, &path).await,
            Question::Classes => self.classes().await,
        }
    }

    async fn size(&self, who: &Principal, path: &AbsolutePath) -> Result<Reply, Failure> {
        let (files, tree) = (&self.services.files, self.tree(path)?);
        match files.stat(who, &tree).await {
            Ok(item) => match item.entry.file() {
                Some(file) => Ok(Reply::size(file.size_bytes)),
                None => Err(Failure::new(FailureKind::IsADirectory, format!("{path} is a directory: it has no size"))),
            },
            Err(failure) if failure.kind() == FailureKind::NotFound => {
                match files.cut_upload(who, &tree).await {
                    Ok(Some(cut)) if cut.prefix_bytes() > 0 => Ok(Reply::size(cut.prefix_bytes())),
                    // Whatever is wrong with the uploads, the file is not there.
                    _ => Err(failure),
                }
            }
            Err(failure) => Err(failure),
        }
    }

    async fn partial(&self, who: &Principal, path: &AbsolutePath) -> Result<Reply, Failure> {
        match self.services.files.cut_upload(who, &self.tree(path)?).await? {
            Some(cut) => {
                let mut received = Coverage::new();
                for range in cut.have {
                    let many =
                        |error| Failure::new(FailureKind::Internal, format!("the cut upload of {path}: {error}"));
                    received.merge(range).map_err(many)?;
                }
                Ok(Reply::partial(&received))
            }
            None => {
                let text = format!("no upload of yours to {path} was cut: store the whole file");
                Err(Failure::new(FailureKind::NotFound, text))
            }
        }
    }

    async fn hash(
        &self,
        who: &Principal,
        path: &AbsolutePath,
        named: &str,
        algorithm: Algorithm,
    ) -> Result<Reply, Failure> {
        let (files, tree) = (&self.services.files, self.tree(path)?);
        let hex = files.checksum(who, &tree, algorithm, None).await?;
        let size = files.stat(who, &tree).await?.entry.file().map_or(0, |file| file.size_bytes);
        // draft-bryan-ftpext-hash section 3: algorithm, range, value, name.
        Ok(Reply::new(213, format!("{} 0-{size} {hex} {named}", algorithm.name())))
    }

    async fn try_show(&self, path: &AbsolutePath, form: ListForm, voice: Voice) -> Result<Outcome, Failure> {
        let who = self.who()?;
        let listing = Listing::open(&self.services.files, &who, self.tree(path)?, form, self.services.clock.now_us());
        let listing = listing.await?.indented();
        let code = match (form, listing.is_directory()) {
            (ListForm::Facts(_), true) => 250,
            (ListForm::Facts(_), false) => {
                let text = format!("{path} is a file: MLST tells its facts");
                return Err(Failure::new(FailureKind::NotADirectory, text));
            }
            (_, true) => 212,
            (_, false) => 213,
        };
        voice.piece(Bytes::from(format!("{code}-Listing {path}\r\n"))).await;
        let mut pages = listing.text();
        while let Some(page) = pages.next().await {
            match page {
                Ok(text) => voice.piece(text).await,
                // A reply that has begun with 250 cannot end with anything else, and must not look whole.
                Err(failure) => return Ok(Outcome::Broken(refusal(&failure, "readdir"))),
            }
            if voice.is_cancelled() {
                break;
            }
        }
        Ok(Outcome::Replied(Reply::new(code, "End.")))
    }

    async fn usage(&self, who: &Principal, path: &AbsolutePath) -> Result<Reply, Failure> {
        // Whoever may not see the place is not told either.
        self.services.files.stat(who, &self.tree(path)?).await?;
        let usage = self.services.catalog.usage(&QuotaSubject::Account(who.account.clone())).await?;
        Ok(Reply::new(250, usage_text(&usage)))
    }

    async fn classes(&self) -> Result<Reply, Failure> {
        let classes = self.services.files.classes().await?;
        let mut lines = vec!["Classes of service:".to_owned()];
        lines.extend(
            classes
                .iter()
                .map(|class| format!(" {} hierarchy={} tape_copies={}", class.name, class.hierarchy, class.copies)),
        );
        lines.push("End.".to_owned());
        Ok(Reply::with_lines(250, lines))
    }
}

/// As the Globus server's `SITE USAGE` writes it; gfal reads the three numbers.
fn usage_text(usage: &Usage) -> String {
    let total = usage.limit_bytes.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
    let free =
        usage.limit_bytes.map_or(-1, |limit| i64::try_from(limit.saturating_sub(usage.bytes)).unwrap_or(i64::MAX));
    format!("USAGE {} FREE {free} TOTAL {total}", usage.bytes)
}

/// `None` for the whole file.
fn checksum_part(offset_bytes: u64, length_bytes: Option<u64>) -> Result<Option<ByteRange>, Failure> {
    let bad = |error| Failure::new(FailureKind::BadArgument, error);
    match (offset_bytes, length_bytes) {
        (0, None) => Ok(None),
        (offset, Some(length)) => ByteRange::new(offset, length).map(Some).map_err(bad),
        (offset, None) => {
            let rest = i64::MAX as u64 - offset.min(i64::MAX as u64);
            ByteRange::new(offset, rest).map(Some).map_err(bad)
        }
    }
}

const fn operation(question: &Question) -> Operation {
    match question {
        Question::Checksum { .. } | Question::Hash { .. } => "open",
        Question::Usage(_) => "statvfs",
        _ => "stat",
    }
}

#[cfg(test)]
mod tests {
    use wire::id::AccountName;

    use super::*;

    #[test]
    fn usage_without_a_limit_says_so() {
        let mut usage = Usage {
            subject: QuotaSubject::Account(AccountName::new("alice").unwrap()),
            bytes: 10,
            files: 1,
            limit_bytes: None,
            limit_files: None,
        };
        assert_eq!(usage_text(&usage), "USAGE 10 FREE -1 TOTAL -1");
        usage.limit_bytes = Some(4);
        assert_eq!(usage_text(&usage), "USAGE 10 FREE 0 TOTAL 4");
    }

    #[test]
    fn the_whole_file_is_offset_0_and_no_length() {
        assert_eq!(checksum_part(0, None), Ok(None));
        assert_eq!(checksum_part(5, Some(7)), Ok(Some(ByteRange::new(5, 7).unwrap())));
        assert!(checksum_part(u64::MAX, Some(7)).is_err());
        assert!(checksum_part(7, None).is_ok());
    }
}
