//! The live stream: what happens, one JSON value a line.
//!
//! A stream begins with one [`Event::Hello`]. A reader that is too slow is told how much it missed
//! ([`Event::Missed`]); it never slows the site down.

use serde::{Deserialize, Serialize};

use crate::{
    admin::{
        queue::{Kind, State},
        site::{DriveState, Transfer},
    },
    id::{BitfileId, DriveId, GatewayId, MoverId, RequestId, VolumeLabel, WorkId},
};

/// Something that happened.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Stamped {
    /// When.
    pub at_us: i64,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// What happened.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The stream has begun.
    Hello {
        /// Who tells.
        gateway: GatewayId,
    },
    /// The reader was too slow.
    Missed {
        /// So many events.
        events: u64,
    },
    /// A mover came or went.
    Mover {
        /// Which.
        mover: MoverId,
        /// Whether it is connected.
        up: bool,
        /// In a sentence.
        message: String,
    },
    /// A drive does something else.
    Drive {
        /// Which.
        drive: DriveId,
        /// Whether it can be used.
        state: DriveState,
        /// What it is doing.
        activity: String,
        /// What is in it.
        volume: Option<VolumeLabel>,
        /// In a sentence.
        message: String,
    },
    /// A volume's state changed.
    Volume {
        /// Which.
        volume: VolumeLabel,
        /// In a sentence.
        message: String,
    },
    /// A request of the queue moved on.
    Work {
        /// The row.
        work: WorkId,
        /// A request of it, where there is one.
        request: Option<RequestId>,
        /// What kind.
        kind: Kind,
        /// The bitfile.
        bitfile: BitfileId,
        /// State.
        state: State,
        /// In a sentence.
        message: String,
    },
    /// A batch of work began: a container to write, a mount's recalls.
    Batch {
        /// What kind.
        kind: Kind,
        /// The volume, where one is used.
        volume: Option<VolumeLabel>,
        /// How many files.
        files: u64,
        /// How many bytes.
        bytes: u64,
        /// Whether it is over.
        done: bool,
        /// In a sentence.
        message: String,
    },
    /// A transfer moves; about once a second while it does.
    Transfer(Transfer),
    /// An event of a newer version.
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_a_newer_version_is_still_a_line() {
        let line = r#"{"at_us":5,"event":"earthquake","magnitude":3}"#;
        let stamped: Stamped = serde_json::from_str(line).expect("read");
        assert_eq!(stamped, Stamped { at_us: 5, event: Event::Unknown });
    }

    #[test]
    fn an_event_is_one_flat_line() {
        let event = Event::Mover { mover: MoverId::new("m1").expect("name"), up: true, message: "m1 came".into() };
        let line = serde_json::to_string(&Stamped { at_us: 5, event: event.clone() }).expect("written");
        assert_eq!(line, r#"{"at_us":5,"event":"mover","mover":"m1","up":true,"message":"m1 came"}"#);
        assert_eq!(serde_json::from_str::<Stamped>(&line).expect("read").event, event);
    }
}
