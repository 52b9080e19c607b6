//! Tape above the SCSI seam: labelled volumes, pax containers, drives and the robot.
//!
//! Nothing here knows whether the library is real: everything goes through [`crate::scsi::ScsiTransport`].
//!
//! - [`Changer`]: what is where, and moving it.
//! - [`Drive`]: one drive and the volume in it: attach, label, append a container, read members, scan, detach.
//! - [`Member`], [`MemberSource`]: what is appended; [`Wanted`]: what is read.
//! - [`mod@format`]: what the bytes on the tape mean; pure.
//!
//! All calls block and run on the drive's own thread.
//!
//! Invariant: a member is reported as written only after a synchronous WRITE FILEMARKS succeeded and READ POSITION
//! said what was expected with an empty buffer.

mod changer;
mod device;
mod drive;
mod error;
pub mod format;
mod member;

pub use changer::{Changer, ChangerError, Inventory};
pub use device::CommandError;
pub use drive::{Attached, Drive, DriveActivity, NewVolume, Overwrite, Scan, ScannedContainer, ScannedOne, Unload};
pub use error::DriveError;
pub use member::{
    AppendPoint, AppendReport, ContainerHeader, MAX_PATH_BYTES, Member, MemberSource, ReadReport, SegmentOf, Sink,
    SinkError, SourceError, Stopped, Wanted, Written,
};
