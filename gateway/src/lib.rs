//! Penstock's gateway: doors, sessions, planning and services of the storage hierarchy. Holds no file data.
//!
//! ```text
//!   ftp  s3  webdav  admin           doors: a protocol each, no policy of their own
//!        \    |    /  \
//!     files  transfer  hsm         names; what moves; what sinks and comes back
//!          \    |    /
//!   identity  movers  mounts       who may; who moves; which cartridge in which drive
//!               |
//!            catalog, wire
//! ```
//!
//! Every arrow points down; nothing imports a door. What can go wrong for a client is a [`failure::Failure`] everywhere.

pub mod admin;
pub mod config;
pub mod failure;
pub mod files;
pub mod ftp;
mod gateway;
pub mod hsm;
pub mod identity;
pub mod mounts;
pub mod movers;
mod redirect;
mod relay;
pub mod s3;
#[cfg(test)]
mod testing;
pub mod transfer;
pub mod webdav;

pub use self::gateway::{Gateway, StartError};
