//! Penstock's mover: disk volumes, tape drives and data channels; bytes in, bytes out.

pub mod scsi;
pub mod tape;
pub mod vtl;
