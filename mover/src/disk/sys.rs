//! Two calls that neither the standard library nor `nix` has.

use std::{fs::File, io, os::fd::AsRawFd as _};

/// Asks the kernel to begin writing out the dirty pages of `file`, and does not wait for them.
///
/// Without it a large upload gathers dirty pages until its end, and one long sync then holds up everybody's commits.
#[allow(unsafe_code)]
pub(super) fn begin_writeback(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as `file` is borrowed; the call takes numbers only.
    let result = unsafe { nix::libc::sync_file_range(file.as_raw_fd(), 0, 0, nix::libc::SYNC_FILE_RANGE_WRITE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
