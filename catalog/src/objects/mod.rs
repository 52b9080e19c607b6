//! The S3 door's part of the catalogue.
//!
//! - `keys`: access keys. `buckets`: directories with attributes.
//! - `look`: one version of a key. `list`: pages of keys and of versions.
//! - `put`: publishing an object. `delete`: removing one. `versions`: what moves into and out of the tree meanwhile.
//! - `locks`: what every door must respect of versions and locks.
//! - `reclass`: another class of service for one.
//! - `multipart`: uploads in parts, which become an object in one transaction.
//! - `usage`: what lies in a bucket, counted in pages.
//!
//! A key's current version is a file of the tree: the components of the key are directories, its last is the file. A
//! key that ends in `/` is a file without a name in its directory, which only S3 sees. Versions that are not current,
//! and delete markers, have no name in the tree and lie in a table of their own, in the order of keys.

mod buckets;
mod delete;
mod keys;
mod list;
mod locks;
mod look;
mod multipart;
mod place;
mod put;
mod reclass;
mod usage;
mod versions;

pub(crate) use buckets::bucket_of_entry;
pub use list::{ObjectListing, ObjectPage, VersionListing};
pub(crate) use locks::{hide, is_locked, locked, need_movable, need_unlocked};
pub(crate) use multipart::drop_expired_uploads;
pub use usage::{Counted, UsageCount};

#[cfg(test)]
pub(crate) const ALL: [&[crate::sql::Statement]; 12] = [
    buckets::ALL,
    delete::ALL,
    keys::ALL,
    list::ALL,
    locks::ALL,
    look::ALL,
    multipart::ALL,
    place::ALL,
    put::ALL,
    reclass::ALL,
    usage::ALL,
    versions::ALL,
];
