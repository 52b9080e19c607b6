//! Links with real delay, rate and loss, between real kernel TCP stacks.
//!
//! Each host of a lab is a network namespace with one interface. What an interface sends is read by one emulator
//! thread, which carries every packet through a model of the links and gives it to the interface of its destination.
//! Nothing of TCP is imitated: windows, congestion control, slow start and retransmission are the kernel's own.
//!
//! - [`fabric`]: the model. Pure and without a clock, so that it is tested in virtual time.
//! - [`topology`]: hosts, links and shared media as data; [`profile`]: links that have a name.
//! - [`frame`]: packets as the kernel hands them over: up to 64 KiB in one piece, cut into wire frames where the model
//!   must treat them apart.
//! - [`device`], [`namespace`]: what is asked of the kernel. The only unsafe code here.
//! - [`emulator`]: the thread that joins them, on time by [`punctual`].
//! - [`lab`]: a running topology, and processes, threads and runtimes on its hosts.
//!
//! Nothing is left behind: namespaces and devices have no name in the file system and end with the last process or file
//! descriptor that uses them, also after `kill -9`.

pub mod device;
pub mod emulator;
pub mod fabric;
pub mod frame;
pub mod lab;
pub mod namespace;
pub mod profile;
mod punctual;
pub mod topology;

pub use self::{
    lab::{Host, Lab, LabError},
    profile::Profile,
    topology::{Link, Medium, Topology},
};
