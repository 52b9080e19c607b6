//! What the catalogue promises, run on SQLite and on PostgreSQL alike.
//!
//! One binary, so that all tests share one PostgreSQL cluster, each in a database of its own.
#![allow(clippy::unwrap_used, reason = "tests")]

mod accounts;
mod adopt;
mod bulk;
mod concurrency;
mod drives;
mod events;
mod files;
mod leases;
mod migration;
mod names;
mod objects;
mod purge;
mod queue;
mod reclass;
mod relocate;
mod replicas;
mod scrubs;
mod site;
mod staging;
mod tree_model;
mod uploads;
mod usage;
mod volumes;
