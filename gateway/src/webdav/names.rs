//! DELETE, MKCOL and MOVE.
//!
//! # Source
//!
//! RFC 4918 sections 9.3, 9.6 and 9.9. Other than there, a directory that is not empty is not deleted with all that is in
//! it: 409, as other grid storage answers.

use catalog::TreePath;
use hyper::{Request, StatusCode, body::Body as _, body::Incoming, header::HeaderName};

use super::{
    Door,
    answer::{Answer, Refusal, empty},
    conditions, location,
};
use crate::{failure::FailureKind, identity::Principal};

const DESTINATION: HeaderName = HeaderName::from_static("destination");
const OVERWRITE: HeaderName = HeaderName::from_static("overwrite");

impl Door {
    pub(super) async fn delete(
        &self,
        who: &Principal,
        path: &TreePath,
        request: &Request<Incoming>,
    ) -> Result<Answer, Refusal> {
        let item = self.files.stat(who, path).await?;
        match item.entry.file() {
            None => self.files.remove_directory(who, path).await?,
            Some(file) => {
                conditions::check(request.method(), request.headers(), Some((&item.entry, file)))
                    .map_err(|status| Refusal::new(status, format!("{path} is not as you wish it to be")))?;
                self.files.delete(who, path).await?;
            }
        }
        Ok(empty(StatusCode::NO_CONTENT))
    }

    pub(super) async fn make_collection(
        &self,
        who: &Principal,
        path: &TreePath,
        request: Request<Incoming>,
    ) -> Result<Answer, Refusal> {
        if !request.body().is_end_stream() {
            let text = "MKCOL takes no body here (RFC 4918 section 9.3)";
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
        }
        match self.files.make_directory(who, path).await {
            Ok(_) => Ok(empty(StatusCode::CREATED)),
            Err(failure) if failure.kind() == FailureKind::Exists => {
                Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, failure.message()))
            }
            Err(failure) => Err(Refusal::changing(failure)),
        }
    }

    pub(super) async fn move_name(
        &self,
        who: &Principal,
        from: &TreePath,
        host: Option<&str>,
        request: &Request<Incoming>,
    ) -> Result<Answer, Refusal> {
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let missing = || Refusal::new(StatusCode::BAD_REQUEST, "MOVE says in Destination where to");
        let to = location::destination(header(DESTINATION).ok_or_else(missing)?, host)?;
        let Some(to) = to else {
            let text = "Destination is on another server: names move within this one";
            return Err(Refusal::new(StatusCode::BAD_GATEWAY, text));
        };
        if to.components() == from.components() {
            return Err(Refusal::new(StatusCode::FORBIDDEN, format!("{from} is there already")));
        }
        self.files.stat(who, from).await?;
        let replaces = match self.files.stat(who, &to).await {
            Ok(_) => true,
            Err(failure) if matches!(failure.kind(), FailureKind::NotFound | FailureKind::NotADirectory) => false,
            Err(failure) => return Err(failure.into()),
        };
        if replaces && header(OVERWRITE).is_some_and(|value| value.trim().eq_ignore_ascii_case("f")) {
            return Err(Refusal::new(StatusCode::PRECONDITION_FAILED, format!("{to} exists already")));
        }
        self.files.rename(who, from, &to).await.map_err(Refusal::changing)?;
        Ok(empty(if replaces { StatusCode::NO_CONTENT } else { StatusCode::CREATED }))
    }
}
