//! Stage requests: making one, looking at it, taking it back whole.

use std::{collections::HashSet, time::Duration};

use aws_lc_rs::rand;
use catalog::Timestamp;
use hyper::{
    Request, StatusCode,
    body::Incoming,
    header::{HeaderName, LOCATION},
};

use super::{
    check_lengths, duration, invalid,
    messages::{Progress, Stage, Staging},
    sameness,
};
use crate::{
    failure::{Failure, FailureKind},
    hsm::{Ask, BulkWish},
    identity::Principal,
    webdav::{
        Door,
        answer::{self, Answer, Refusal, empty, set},
    },
};

/// The parameter of a poll that wants only what has changed; its value is a [`TOKEN`] of an earlier poll.
pub(super) const SINCE: &str = "changesSince";
/// What to give as [`SINCE`] next time.
const TOKEN: HeaderName = HeaderName::from_static("tape-rest-changes");
/// A change may become visible a moment after the time it carries: such are told twice rather than never.
const OVERLAP: Duration = Duration::from_secs(30);
/// When whoever has too many requests may come again.
const BUSY: Duration = Duration::from_secs(60);

impl Door {
    pub(super) async fn stage(
        &self,
        who: &Principal,
        host: Option<&str>,
        request: Request<Incoming>,
    ) -> Result<Answer, Refusal> {
        let limits = &self.config.tape_rest;
        let Stage { files } = self.body(request).await?;
        if files.is_empty() {
            return Err(invalid("File missing from stage request"));
        }
        if files.len() > limits.max_files as usize {
            let text = format!("a stage request has at most {} files here: make several", limits.max_files);
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text));
        }
        check_lengths(files.iter().map(|file| &file.path))?;
        if self.hsm.open_bulks(&who.account, limits.max_requests.into()).await? >= limits.max_requests.into() {
            let text =
                format!("{} has {} stage requests that have not come to an end", who.account, limits.max_requests);
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, text).retry_after(BUSY));
        }
        let (mut seen, mut paths, mut lifetimes) = (HashSet::new(), Vec::new(), Vec::new());
        for file in files {
            let lifetime = file.disk_lifetime.as_deref().map(|text| {
                let read = duration::parse(text).ok_or_else(|| invalid(format!("{text:?} is no ISO 8601 duration")))?;
                Ok::<_, Refusal>(read.min(limits.max_lifetime.duration()))
            });
            let lifetime = lifetime.transpose()?;
            // The same file a second time is the same wish.
            if seen.insert(sameness(&file.path)) {
                paths.push(file.path);
                lifetimes.push(lifetime);
            }
        }
        let found = self.look(who, paths).await?;
        let wishes = found.into_iter().zip(lifetimes).map(|((path, found), lifetime)| {
            let ask = found.map_err(|failure| failure.message().to_owned()).and_then(|item| {
                let file = item.entry.file().filter(|file| file.size_bytes > 0);
                let file = file.ok_or_else(|| "the file is empty: there is nothing to stage".to_owned())?;
                let account = who.account.clone();
                Ok(Ask { bitfile: file.bitfile, account, deadline: None, lifetime, priority: 0 })
            });
            BulkWish { path, ask }
        });
        let id = new_id()?;
        self.hsm.stage_bulk(id.clone(), who.account.clone(), wishes.collect()).await?;
        let mut answer = answer::json(StatusCode::CREATED, &Staging { request_id: id.clone() });
        let server = host.map(|host| format!("https://{host}")).unwrap_or_default();
        set(&mut answer, LOCATION, format!("{server}/api/v1/stage/{id}"));
        Ok(answer)
    }

    pub(super) async fn progress(&self, who: &Principal, id: &str, query: Option<&str>) -> Result<Answer, Refusal> {
        let since = query.into_iter().flat_map(|query| query.split('&')).find_map(|pair| pair.strip_prefix(SINCE));
        let since = since.map(|value| {
            let value = value.strip_prefix('=').and_then(|value| value.parse().ok()).map(Timestamp);
            value.ok_or_else(|| Refusal::new(StatusCode::BAD_REQUEST, format!("{SINCE} takes what {TOKEN} said")))
        });
        let since = since.transpose()?;
        let token = self.catalog.now().before(OVERLAP);
        let bulk = self.own(who, id).await?;
        let mut answer = answer::json(StatusCode::OK, &Progress::of(bulk, since));
        set(&mut answer, TOKEN, token.0.to_string());
        Ok(answer)
    }

    pub(super) async fn drop_request(&self, who: &Principal, id: &str) -> Result<Answer, Refusal> {
        let bulk = self.own(who, id).await?;
        self.hsm.drop_bulk(&bulk.id).await?;
        Ok(empty(StatusCode::OK))
    }
}

/// A number that nobody can guess, as a UUID is written (RFC 9562 section 5.4).
fn new_id() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    let failed = |_| Failure::new(FailureKind::Internal, "the system has no random bytes");
    rand::fill(&mut bytes).map_err(failed)?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let text = hex::encode(bytes);
    Ok([&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-"))
}
