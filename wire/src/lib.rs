//! What crosses a process boundary in Penstock, pure: identifiers, extents, FTP commands and replies, MODE E, mover messages.
