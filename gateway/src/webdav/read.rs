//! GET and HEAD.
//!
//! What is on tape only is staged first, for as long as the door waits; then the answer is 424 and the wish stays in the
//! recall queue. HEAD never waits: everything it says is in the catalogue.

use catalog::{Entry, FileInfo, TapeRead, TreePath};
use hyper::{
    Method, Request, StatusCode,
    body::Incoming,
    header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED, LOCATION},
};
use tokio::{sync::mpsc, time::timeout};
use wire::extent::ByteRange;

use super::{
    Door,
    answer::{Answer, Refusal, empty, set, stream},
    conditions::{self, Wanted},
    digest,
};
use crate::{
    failure::{Failure, FailureKind},
    files::{Item, Readable},
    hsm::Ask,
    identity::{Principal, Right},
    redirect::Reason,
    transfer::Waiting,
};

/// What a directory is said to contain, as the web servers of grid storage say it.
pub(super) const DIRECTORY_TYPE: &str = "httpd/unix-directory";
/// What every file is said to contain.
pub(super) const FILE_TYPE: &str = "application/octet-stream";

impl Door {
    pub(super) async fn read(
        &self,
        who: &Principal,
        path: &TreePath,
        request: &Request<Incoming>,
    ) -> Result<Answer, Refusal> {
        let item = self.files.stat(who, path).await?;
        let Some(file) = item.entry.file() else { return directory(request.method()) };
        if path.means_directory() {
            return Err(Refusal::new(StatusCode::NOT_FOUND, format!("{path} is a file: leave the / away")));
        }
        may_read(who, &item, path)?;
        let (headers, entry) = (request.headers(), &item.entry);
        if let Err(status) = conditions::check(request.method(), headers, Some((entry, file))) {
            return match status {
                StatusCode::NOT_MODIFIED => Ok(described(status, entry, file)),
                _ => Err(Refusal::new(status, format!("{path} is not as you wish it to be"))),
            };
        }
        let head = request.method() == Method::HEAD;
        let (status, range) = match conditions::range(headers, entry, file) {
            Wanted::Part(range) if !head => (StatusCode::PARTIAL_CONTENT, Some(range)),
            Wanted::Outside if !head => {
                let mut answer =
                    Refusal::new(StatusCode::RANGE_NOT_SATISFIABLE, format!("{path} has {} bytes", file.size_bytes))
                        .into();
                set(&mut answer, CONTENT_RANGE, format!("bytes */{}", file.size_bytes));
                return Ok(answer);
            }
            _ => (StatusCode::OK, None),
        };
        let mut answer = described(status, entry, file);
        set(&mut answer, ACCEPT_RANGES, "bytes");
        set(&mut answer, CONTENT_TYPE, FILE_TYPE);
        if let Some((name, value)) = digest::answer(headers, &file.sums) {
            answer.headers_mut().insert(name, value);
        }
        let length = range.map_or(file.size_bytes, |range| range.length());
        set(&mut answer, CONTENT_LENGTH, length.to_string());
        if let Some(range) = range {
            let text = format!("bytes {}-{}/{}", range.offset(), range.end() - 1, file.size_bytes);
            set(&mut answer, CONTENT_RANGE, text);
        }
        if head {
            return Ok(answer);
        }
        self.on_disk(who, path, file).await?;
        let range = match range {
            Some(range) => range,
            None => ByteRange::new(0, file.size_bytes).map_err(|bad| Failure::new(FailureKind::Internal, bad))?,
        };
        let reason = match self.relay.route(headers, None, file.bitfile, true).await {
            Ok(route) => match route.location(request.uri().path(), answer.headers()) {
                Some(location) => {
                    self.relay.sent_away();
                    let mut answer = empty(StatusCode::TEMPORARY_REDIRECT);
                    set(&mut answer, LOCATION, location);
                    return Ok(answer);
                }
                None => Reason::Long,
            },
            Err(reason) => reason,
        };
        let readable = Readable { path: path.to_string(), file: file.clone() };
        *answer.body_mut() = stream(self.relay.send(who, readable, range, reason).await?);
        Ok(answer)
    }

    /// Returns when a file is on disk.
    async fn on_disk(&self, who: &Principal, path: &TreePath, file: &FileInfo) -> Result<(), Refusal> {
        if file.residency.on_disk || file.size_bytes == 0 {
            return Ok(());
        }
        let not_yet = |text: String| Refusal::new(StatusCode::FAILED_DEPENDENCY, text).titled("file is on tape");
        if self.files.class(&file.cos).await?.tape_read == TapeRead::Refuse {
            return Err(not_yet(format!("{path} is on tape: ask for it by Tape REST's stage, or by SITE STAGE")));
        }
        let ask =
            Ask { bitfile: file.bitfile, account: who.account.clone(), deadline: None, lifetime: None, priority: 0 };
        let mut tickets = self.hsm.stage(vec![ask]).await?;
        let none = || Failure::new(FailureKind::Internal, "the catalogue did not answer a stage request");
        let mut ticket = tickets.pop().ok_or_else(none)?;
        let (progress, mut told) = mpsc::channel(1);
        let last = tokio::sync::Mutex::new(None::<Waiting>);
        let listen = async {
            while let Some(waiting) = told.recv().await {
                *last.lock().await = Some(waiting);
            }
            std::future::pending::<()>().await;
        };
        let wait = async {
            tokio::select! {
                ended = ticket.wait(Some(progress)) => ended,
                () = listen => Ok(()),
            }
        };
        if let Ok(ended) = timeout(self.config.tape_wait.duration(), wait).await {
            return Ok(ended?);
        }
        // The wish stays in the queue; who comes again finds it further on.
        let waiting = last.into_inner();
        let reason = waiting.as_ref().map_or("its recall is in the queue", |waiting| waiting.reason.as_str());
        let refusal = not_yet(format!("{path} is on tape and not on disk yet ({reason}): ask again later"));
        let after = waiting.and_then(|waiting| waiting.estimate).unwrap_or(self.config.tape_wait.duration());
        Err(refusal.retry_after(after))
    }
}

/// Refuses unless the asker may read a file that was found.
pub(super) fn may_read(who: &Principal, item: &Item, path: &TreePath) -> Result<(), Failure> {
    if item.rights & Right::Read as u32 != 0 {
        return Ok(());
    }
    let text =
        format!("{} may not read {path}: ask its owner, {}, for the r permission", who.account, item.entry.owner);
    Err(Failure::new(FailureKind::PermissionDenied, text))
}

fn directory(method: &Method) -> Result<Answer, Refusal> {
    if method == Method::GET {
        return Err(Refusal::method("OPTIONS, HEAD, DELETE, MOVE, PROPFIND"));
    }
    let mut answer = empty(StatusCode::OK);
    set(&mut answer, CONTENT_TYPE, DIRECTORY_TYPE);
    Ok(answer)
}

fn described(status: StatusCode, entry: &Entry, file: &FileInfo) -> Answer {
    let mut answer = empty(status);
    set(&mut answer, ETAG, conditions::tag(file));
    set(&mut answer, LAST_MODIFIED, conditions::date(entry.modified));
    answer
}
