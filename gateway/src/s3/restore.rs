//! Where an object is, as S3 says it: storage classes that must be restored, and restoring.
//!
//! # Source
//!
//! Amazon S3 API Reference, "RestoreObject": 202 for the first, 409 while it runs, 200 to extend.

use std::{collections::BTreeMap, time::Duration};

use catalog::{DISK_COPY, Located, ObjectData, Way};
use s3s::{S3Request, S3Response, S3Result, dto::*, s3_error};
use wire::id::CosName;

use super::{
    Door,
    access::Call,
    acl::Permission,
    error::{Asked, coded, of_catalog, of_failure},
    notify,
    read::Found,
    shown,
};
use crate::hsm::Ask;

/// Classes whose objects must be restored before they are read from tape.
const ARCHIVES: [&str; 2] = ["GLACIER", "DEEP_ARCHIVE"];
/// The class of what was written without one.
pub(super) const STANDARD: &str = "STANDARD";
/// What is on tape in a class of service that no storage class means.
const WAITED_FOR: &str = "GLACIER_IR";
const DAY_US: i64 = 86_400_000_000;

impl Door {
    /// The storage class that is shown of an object.
    pub(super) fn shown_class(&self, data: &ObjectData) -> Option<String> {
        let residency = data.file.residency;
        let on_tape_only = !residency.on_disk && residency.tape_copies > 0;
        Some(class_of(data.storage_class.as_deref(), on_tape_only, &data.file.cos, &self.config.classes))
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
        let cause = notify::cause(&request, Way::Plain);
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
        let tickets = self.hsm.stage_because(vec![ask], Some(&cause)).await.map_err(of_failure)?;
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

/// The class that an object's writer named. Of what was written without one, or as `STANDARD`, or by another door, where
/// it is: on disk `STANDARD`; on tape only a class that means its class of service, rather one whose objects are waited
/// for than one that must be restored.
pub(super) fn class_of(
    named: Option<&str>,
    on_tape_only: bool,
    cos: &CosName,
    classes: &BTreeMap<String, CosName>,
) -> String {
    if let Some(named) = named.filter(|named| *named != STANDARD) {
        return named.to_owned();
    }
    if !on_tape_only {
        return STANDARD.to_owned();
    }
    let mapped = classes.iter().filter(|(_, mapped)| *mapped == cos).map(|(class, _)| class.as_str());
    let rank = |class: &&str| (ARCHIVES.contains(class), *class == STANDARD);
    mapped.min_by_key(rank).unwrap_or(WAITED_FOR).to_owned()
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
    fn a_class_is_what_was_named_or_where_the_bytes_are() {
        fn cos(name: &str) -> CosName {
            CosName::new(name).expect("a name")
        }
        fn classes(of: &[(&str, &str)]) -> BTreeMap<String, CosName> {
            of.iter().map(|(class, name)| ((*class).to_owned(), cos(name))).collect()
        }
        let usual = classes(&[
            ("STANDARD", "disk"),
            ("GLACIER_IR", "single"),
            ("GLACIER", "single"),
            ("DEEP_ARCHIVE", "standard"),
        ]);
        let shown = |named, tape, name| class_of(named, tape, &cos(name), &usual);
        assert_eq!(shown(Some("GLACIER"), false, "single"), "GLACIER", "restored, it is GLACIER still");
        assert_eq!(shown(None, false, "single"), "STANDARD");
        assert_eq!(shown(None, true, "single"), "GLACIER_IR", "another door's file is waited for");
        assert_eq!(shown(None, true, "standard"), "DEEP_ARCHIVE");
        assert_eq!(shown(Some("STANDARD"), true, "gone"), "GLACIER_IR");
        let tape = classes(&[("STANDARD", "single"), ("GLACIER", "single")]);
        assert_eq!(class_of(Some("STANDARD"), true, &cos("single"), &tape), "STANDARD", "the site's standard is tape");
    }

    #[test]
    fn a_restored_copy_goes_at_the_midnight_behind_its_days() {
        let noon = catalog::Timestamp(20_000 * DAY_US + DAY_US / 2);
        assert_eq!(lifetime(noon, 1), Duration::from_secs(86_400 + 43_200));
        let midnight = catalog::Timestamp(20_000 * DAY_US);
        assert_eq!(lifetime(midnight, 2), Duration::from_secs(3 * 86_400));
    }
}
