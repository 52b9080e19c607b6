//! Where an object is, as S3 says it: storage classes that must be restored, and restoring.
//!
//! # Source
//!
//! Amazon S3 API Reference, "RestoreObject": 202 for the first, 409 while it runs, 200 to extend.

use std::time::Duration;

use catalog::{DISK_COPY, Located, ObjectData};
use s3s::{S3Request, S3Response, S3Result, dto::*, s3_error};

use super::{
    Door,
    access::Call,
    acl::Permission,
    error::{Asked, coded, of_catalog, of_failure},
    read::Found,
    shown,
};
use crate::hsm::Ask;

/// Classes whose objects must be restored before they are read from tape.
const ARCHIVES: [&str; 2] = ["GLACIER", "DEEP_ARCHIVE"];
const DAY_US: i64 = 86_400_000_000;

impl Door {
    /// The storage class that is shown of an object: what its writer named; else where it is.
    pub(super) fn shown_class(&self, data: &ObjectData) -> Option<String> {
        if let Some(class) = &data.storage_class {
            return Some(class.clone());
        }
        if data.file.residency.on_disk || data.file.residency.tape_copies == 0 {
            return Some("STANDARD".to_owned());
        }
        let mapped = self.config.classes.iter().filter(|(_, cos)| **cos == data.file.cos);
        let mut mapped: Vec<_> = mapped.map(|(class, _)| class.as_str()).collect();
        mapped.sort_by_key(|class| !ARCHIVES.contains(class));
        Some(mapped.first().copied().unwrap_or("GLACIER_IR").to_owned())
    }

    fn is_archive(&self, data: &ObjectData) -> bool {
        self.shown_class(data).is_some_and(|class| ARCHIVES.contains(&class.as_str()))
    }

    /// Refuses to read what is archived and not restored.
    pub(super) fn readable(&self, found: &Found) -> S3Result<()> {
        let data = &found.data;
        if data.file.residency.on_disk || data.file.size_bytes == 0 || !self.is_archive(data) {
            return Ok(());
        }
        let class = self.shown_class(data).unwrap_or_default();
        let mut error = s3_error!(InvalidObjectState, "{:?} is archived: restore it first", found.object.key);
        let mut headers = hyper::HeaderMap::new();
        headers.insert(hyper::header::CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/xml"));
        if let Ok(class) = hyper::header::HeaderValue::try_from(class) {
            headers.insert(super::door::STATE_CLASS, class);
        }
        error.set_headers(headers);
        Err(error)
    }

    /// The copies of an object that is to be copied: it must be on disk, or is waited for.
    pub(super) async fn on_disk(&self, call: &Call, found: &Found) -> S3Result<Located> {
        let bitfile = found.data.file.bitfile;
        let located = self.catalog.locate_one(bitfile).await.map_err(|error| of_catalog(error, Asked::Object))?;
        if located.copy(DISK_COPY).is_some() || found.data.file.size_bytes == 0 {
            return Ok(located);
        }
        let reader = self.reader(call, &found.view).await?;
        let (progress, _) = tokio::sync::mpsc::channel(1);
        self.stager.stage(bitfile, &reader, progress).await.map_err(of_failure)?;
        self.catalog.locate_one(bitfile).await.map_err(|error| of_catalog(error, Asked::Object))
    }

    /// `x-amz-restore`: absent of what was never restored.
    pub(super) async fn restore_header(&self, data: &ObjectData) -> S3Result<Option<String>> {
        Ok(self.restore_status(data).await?.map(|status| match status {
            Restored::Ongoing => "ongoing-request=\"true\"".to_owned(),
            Restored::Until(until) => {
                format!("ongoing-request=\"false\", expiry-date=\"{}\"", shown::http_date(&shown::timestamp(until)))
            }
        }))
    }

    /// How restoring an archived object fares.
    pub(super) async fn restore_status(&self, data: &ObjectData) -> S3Result<Option<Restored>> {
        if !self.is_archive(data) {
            return Ok(None);
        }
        let broken = |error| of_catalog(error, Asked::Object);
        if !data.file.residency.on_disk {
            let ongoing = self.catalog.is_wanted(data.file.bitfile).await.map_err(broken)?;
            return Ok(ongoing.then_some(Restored::Ongoing));
        }
        let located = self.catalog.locate_one(data.file.bitfile).await.map_err(broken)?;
        let expires = located.copy(DISK_COPY).and_then(|copy| copy.expires);
        Ok(expires.map(Restored::Until))
    }

    pub(super) async fn restore(
        &self,
        request: S3Request<RestoreObjectInput>,
    ) -> S3Result<S3Response<RestoreObjectOutput>> {
        let call = Call::of(&request)?;
        let input = request.input;
        let version = input.version_id.as_deref();
        let wanted = ("s3:RestoreObject", Permission::Write);
        let view = self.bucket(&input.bucket).await?;
        view.need_key(&call, "s3:RestoreObject", &input.key, None)?;
        let found = match self.found(&call, &input.bucket, &input.key, version, wanted).await {
            Err(error) if matches!(error.code(), s3s::S3ErrorCode::AccessDenied) => {
                self.found(&call, &input.bucket, &input.key, version, ("s3:GetObject", Permission::Read)).await?
            }
            other => other?,
        };
        let asked = input.restore_request.ok_or_else(|| s3_error!(MalformedXML, "a restore says for how many days"))?;
        if asked.select_parameters.is_some() || asked.output_location.is_some() {
            return Err(s3_error!(NotImplemented, "a restore of a selection is not offered"));
        }
        let days = asked.days.filter(|days| *days > 0);
        let days = days.ok_or_else(|| s3_error!(MalformedXML, "a restore says for how many days"))?;
        let tier = asked.glacier_job_parameters.as_ref().map(|parameters| parameters.tier.as_str());
        let tier = tier.or(asked.tier.as_ref().map(|tier| tier.as_str())).unwrap_or(Tier::STANDARD);
        let priority = match tier {
            Tier::EXPEDITED => 8,
            Tier::STANDARD => 4,
            Tier::BULK => 1,
            other => return Err(s3_error!(MalformedXML, "there is no tier {:?}", other)),
        };
        let data = &found.data;
        if !self.is_archive(data) {
            return Err(s3_error!(InvalidObjectState, "{:?} is not archived", found.object.key));
        }
        let status = self.restore_status(data).await?;
        if status == Some(Restored::Ongoing) {
            return Err(s3_error!(RestoreAlreadyInProgress, "{:?} is being restored", found.object.key));
        }
        let who = call.caller.known()?;
        let ask = Ask {
            bitfile: data.file.bitfile,
            account: who.account.clone(),
            priority,
            lifetime: Some(lifetime(self.catalog.now(), days)),
            deadline: None,
        };
        let tickets = self.hsm.stage(vec![ask]).await.map_err(of_failure)?;
        if tickets.is_empty() {
            return Err(coded("ServiceUnavailable", hyper::StatusCode::SERVICE_UNAVAILABLE, "no request was made"));
        }
        let mut response = S3Response::new(RestoreObjectOutput::default());
        if !data.file.residency.on_disk {
            response.headers.insert(super::door::ACCEPTED, hyper::header::HeaderValue::from_static("202"));
        }
        Ok(response)
    }
}

/// How restoring fares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Restored {
    /// It is asked for, and not there yet.
    Ongoing,
    /// The copy stays until then.
    Until(catalog::Timestamp),
}

/// Until the UTC midnight behind so many days, as Amazon counts.
fn lifetime(now: catalog::Timestamp, days: i32) -> Duration {
    let end = (now.0 + i64::from(days) * DAY_US).div_euclid(DAY_US) * DAY_US + DAY_US;
    Duration::from_micros(u64::try_from(end - now.0).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restored_copy_goes_at_the_midnight_behind_its_days() {
        let noon = catalog::Timestamp(20_000 * DAY_US + DAY_US / 2);
        assert_eq!(lifetime(noon, 1), Duration::from_secs(86_400 + 43_200));
        let midnight = catalog::Timestamp(20_000 * DAY_US);
        assert_eq!(lifetime(midnight, 2), Duration::from_secs(3 * 86_400));
    }
}
