//! What Tape REST's clients send and are sent.
//!
//! Pure. Members that are not known are passed over, as the specification asks; a member that has nothing to say is left
//! out: clients take an `error` of null for an error.
//!
//! # Source
//!
//! WLCG Tape REST API v1, sections "STAGE", "RELEASE", "ARCHIVEINFO", "Discovery".

use catalog::{Bulk, BulkFile, RequestState, Timestamp};
use serde::{Deserialize, Serialize};

/// The body of a stage request. `targetedMetadata` is for sites that know what to do with it; this one does not.
#[derive(Debug, Deserialize)]
pub(super) struct Stage {
    pub(super) files: Vec<StageFile>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StageFile {
    pub(super) path: String,
    pub(super) disk_lifetime: Option<String>,
}

/// The body of cancel, release and archiveinfo.
#[derive(Debug, Deserialize)]
pub(super) struct Paths {
    pub(super) paths: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Staging {
    pub(super) request_id: String,
}

/// The answer to a poll. Times are seconds since the epoch.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Progress {
    id: String,
    created_at: i64,
    started_at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<i64>,
    files: Vec<FileProgress>,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct FileProgress {
    path: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct ArchiveInfo {
    pub(super) path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) locality: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

const fn seconds(time: Timestamp) -> i64 {
    time.0.div_euclid(1_000_000)
}

impl Progress {
    /// What is told of a request: all of its files, or those that have changed since a moment. Whoever is being worked on
    /// counts as changed.
    pub(super) fn of(bulk: Bulk, since: Option<Timestamp>) -> Self {
        let (created_at, completed_at) = (seconds(bulk.created), bulk.ended().map(seconds));
        let changed = |file: &BulkFile| match since {
            None => true,
            Some(since) => match file.state {
                RequestState::Active => true,
                RequestState::Queued => bulk.created >= since,
                _ => file.finished.is_none_or(|finished| finished >= since),
            },
        };
        let (files, id) = (bulk.files, bulk.id);
        let files = files.into_iter().filter(changed).map(FileProgress::of).collect();
        Self { id, created_at, started_at: created_at, completed_at, files }
    }
}

impl FileProgress {
    fn of(file: BulkFile) -> Self {
        let (state, error) = match file.state {
            RequestState::Queued => ("SUBMITTED", None),
            RequestState::Active => ("STARTED", None),
            RequestState::Completed => ("COMPLETED", None),
            RequestState::Cancelled => ("CANCELLED", None),
            RequestState::Failed { reason } => ("FAILED", Some(reason)),
        };
        Self { path: file.path, state, finished_at: file.finished.map(seconds), error }
    }
}

#[cfg(test)]
mod tests {
    use wire::id::{AccountName, BitfileId, RequestId};

    use super::*;

    const SECOND: i64 = 1_000_000;

    fn bulk() -> Bulk {
        let file = |path: &str, state, finished: Option<i64>| BulkFile {
            path: path.to_owned(),
            request: Some((RequestId(1), BitfileId(2))),
            state,
            finished: finished.map(|seconds| Timestamp(seconds * SECOND + 700_000)),
        };
        Bulk {
            id: "x".to_owned(),
            account: AccountName::new("alice").expect("a name"),
            created: Timestamp(100 * SECOND + 900_000),
            files: vec![
                file("//queued", RequestState::Queued, None),
                file("/started", RequestState::Active, None),
                file("/done", RequestState::Completed, Some(150)),
                file("/gone", RequestState::Failed { reason: "why".to_owned() }, Some(200)),
                file("/away", RequestState::Cancelled, Some(210)),
            ],
        }
    }

    #[test]
    fn a_poll_says_state_in_seconds_and_nothing_that_it_does_not_know() {
        let said = serde_json::to_value(Progress::of(bulk(), None)).expect("JSON");
        let wanted = serde_json::json!({
            "id": "x", "createdAt": 100, "startedAt": 100,
            "files": [
                {"path": "//queued", "state": "SUBMITTED"},
                {"path": "/started", "state": "STARTED"},
                {"path": "/done", "state": "COMPLETED", "finishedAt": 150},
                {"path": "/gone", "state": "FAILED", "finishedAt": 200, "error": "why"},
                {"path": "/away", "state": "CANCELLED", "finishedAt": 210},
            ],
        });
        assert_eq!(said, wanted, "no null, no onDisk, no completedAt");
    }

    #[test]
    fn a_request_is_completed_when_its_last_file_has_ended() {
        let mut bulk = bulk();
        bulk.files.drain(..2);
        let said = serde_json::to_value(Progress::of(bulk, None)).expect("JSON");
        assert_eq!(said["completedAt"], 210);
    }

    #[test]
    fn what_has_changed_since_is_told() {
        let since = |seconds: i64| {
            let said = Progress::of(bulk(), Some(Timestamp(seconds * SECOND)));
            said.files.iter().map(|file| file.path.clone()).collect::<Vec<_>>()
        };
        assert_eq!(since(90).len(), 5);
        assert_eq!(since(160), ["/started", "/gone", "/away"]);
        assert_eq!(since(300), ["/started"]);
    }

    #[test]
    fn what_a_client_says_beyond_what_is_known_is_passed_over() {
        let body = r#"{"files": [{"path": "/a", "targetedMetadata": {"default": {"x": [1]}}, "y": 1},
            {"path": "/b", "diskLifetime": "PT1H"}, {"path": "/c", "diskLifetime": null}], "z": {}}"#;
        let stage: Stage = serde_json::from_str(body).expect("good");
        let lifetimes: Vec<_> = stage.files.iter().map(|file| file.disk_lifetime.as_deref()).collect();
        assert_eq!(lifetimes, [None, Some("PT1H"), None]);
        serde_json::from_str::<Stage>("{}").expect_err("no files");
        serde_json::from_str::<Paths>(r#"{"paths": "/a"}"#).expect_err("no list");
    }
}
