//! What the catalogue keeps, as plain values: no behaviour beyond what a value can say of itself.

pub mod account;
pub mod adoption;
pub mod bitfile;
pub mod bulk;
pub mod event;
pub mod name;
pub mod policy;
pub mod s3;
pub mod scrub;
pub mod stats;
pub mod volume;
pub mod work;

pub use account::{Account, Mapping, NewAccount, QuotaSubject, Usage};
pub use adoption::{Adopted, Adoption, FoundMember, MAX_ADOPTED_ID};
pub use bitfile::{
    Base, Bitfile, Copy, DISK_COPY, Expected, FIRST_REPLICA, Located, MAX_REPLICAS, NewFile, NewPartial, Partial, Pin,
    Published, PurgeCandidate, Purged, ReplicaCandidate, Segment,
};
pub use bulk::{Bulk, BulkFile, NewBulk, NewBulkFile};
pub use event::{Cause, Event, EventKind, EventRule, EventsDropped, Happening, QueuedEvent, UnknownEvent, Way};
pub use name::{
    AttributeChange, Content, DeletedFile, Entry, FileInfo, Leaf, Listing, MAX_PAGE, NewDirectory, Page, ROOT, Rename,
    Residency, Resolved, Twins, Walked,
};
pub use policy::{ClassOfService, Hierarchy, MediumKind, Policies, StorageClass, TapeRead};
pub(crate) use s3::tag_of_sums;
pub use s3::{
    AccessKey, Amount, Bucket, BucketUsage, CompleteUpload, DeleteObject, Deleted, NewBucket, NewObject, NewPart,
    NewUpload, Object, ObjectData, Precondition, Reclass, Retention, Tags, Upload, UploadPart, Version, VersionRef,
    Versioning,
};
pub use scrub::{
    AfterVerify, KEPT_SCRUBS, NewScrub, Scrub, ScrubFound, ScrubItem, ScrubListed, ScrubTarget, Verified,
    VerifiedSegment,
};
pub use stats::{COUNT_LIMIT, QueueLength, Reclaimed, Statistics, VolumeFile};
pub use volume::{AppendWish, Home, Medium, NewVolume, TapePosition, Volume, VolumeState};
pub use work::{
    AfterFailure, CatalogRefusal, Claim, ContainerRecorded, DEMAND_LIMIT, Fence, Holder, Lease, NewRequest, NewWork,
    PoolDemand, Relocated, RequestFilter, RequestState, StageDemand, StageRecorded, StageRequest, Staged, Subject,
    Ticket, WorkFailure, WorkItem, WorkKind, WrittenContainer, WrittenMember,
};
