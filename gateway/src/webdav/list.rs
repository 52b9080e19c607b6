//! PROPFIND: one resource, or a directory with what is in it.
//!
//! A directory of any length is answered in constant memory: its pages are read from the catalogue while the client reads
//! the answer.

use std::io;

use bytes::Bytes;
use catalog::{Entry, TreePath};
use futures::stream;
use http_body_util::{BodyExt as _, Limited};
use hyper::{
    Request, StatusCode,
    body::Incoming,
    header::{CONTENT_TYPE, HeaderName},
};

use super::{
    Door,
    answer::{self, Answer, Refusal, empty, set},
    location,
    properties::{self, Wanted},
};
use crate::{files::Page, identity::Principal};

const DEPTH: HeaderName = HeaderName::from_static("depth");
const XML: &str = "application/xml; charset=utf-8";
const BEGIN: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">";
const END: &str = "</D:multistatus>\n";
/// The largest body of a PROPFIND.
const MAX_BODY: usize = 64 << 10;
/// Entries that are read of a directory at a time.
const PAGE: u32 = 1000;

/// How far the answer about a directory is.
struct Listing {
    door: Door,
    who: Principal,
    path: TreePath,
    wanted: Wanted,
    state: State,
}

enum State {
    /// Everything from a page on is still to come.
    First(Box<Page>),
    /// So is what comes behind this name.
    After(String),
    /// Only the end is.
    Last,
    Over,
}

impl Door {
    pub(super) async fn properties(
        &self,
        who: &Principal,
        path: &TreePath,
        request: Request<Incoming>,
    ) -> Result<Answer, Refusal> {
        let depth = request.headers().get(DEPTH).and_then(|value| value.to_str().ok()).unwrap_or("infinity");
        let deep = match depth.trim() {
            "0" => false,
            "1" => true,
            _ => {
                // RFC 4918 section 9.1.1.
                let text = "<?xml version=\"1.0\"?>\n<D:error xmlns:D=\"DAV:\"><D:propfind-finite-depth/></D:error>\n";
                return Ok(answer::text(StatusCode::FORBIDDEN, XML, text));
            }
        };
        let body = Limited::new(request.into_body(), MAX_BODY).collect().await;
        let body =
            body.map_err(|_| Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large, or broke off"))?;
        let wanted = properties::wanted(&body.to_bytes()).map_err(|bad| Refusal::new(StatusCode::BAD_REQUEST, bad))?;
        let item = self.files.stat(who, path).await?;
        if !deep || !item.entry.is_directory() {
            let one = properties::response(&location::href(path, item.entry.is_directory()), &item.entry, &wanted);
            return Ok(answer::text(StatusCode::MULTI_STATUS, XML, format!("{BEGIN}{one}{END}")));
        }
        let first = self.files.list(who, path, None, PAGE).await?;
        let listing = Listing {
            door: self.clone(),
            who: who.clone(),
            path: path.clone(),
            wanted,
            state: State::First(Box::new(first)),
        };
        let mut answer = empty(StatusCode::MULTI_STATUS);
        set(&mut answer, CONTENT_TYPE, XML);
        *answer.body_mut() = answer::stream(stream::unfold(listing, Listing::next));
        Ok(answer)
    }
}

impl Listing {
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        let (mut text, page) = match std::mem::replace(&mut self.state, State::Over) {
            State::First(page) => {
                let directory = &page.directory.entry;
                let own = properties::response(&location::href(&self.path, true), directory, &self.wanted);
                (format!("{BEGIN}{own}"), *page)
            }
            State::After(name) => match self.door.files.list(&self.who, &self.path, Some(name), PAGE).await {
                Ok(page) => (String::new(), page),
                // The client has a status already: the connection breaks, so that it takes nothing for the whole.
                Err(failure) => return Some((Err(io::Error::other(failure.to_string())), self)),
            },
            State::Last => return Some((Ok(Bytes::from_static(END.as_bytes())), self)),
            State::Over => return None,
        };
        for item in &page.items {
            if let Some(href) = self.href(&item.entry) {
                text.push_str(&properties::response(&href, &item.entry, &self.wanted));
            }
        }
        self.state = page.next.map_or(State::Last, State::After);
        Some((Ok(Bytes::from(text)), self))
    }

    /// A name that S3 made and no path can say (empty, `..`) is left out.
    fn href(&self, entry: &Entry) -> Option<String> {
        if matches!(entry.name.as_str(), "" | "." | "..") {
            return None;
        }
        let path = TreePath::posix(&self.path, &format!("./{}", entry.name)).ok()?;
        Some(location::href(&path, entry.is_directory()))
    }
}
