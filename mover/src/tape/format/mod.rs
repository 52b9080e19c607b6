//! What the bytes on a tape mean.
