//! The door, over real sockets.
