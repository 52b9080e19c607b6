//! Failures as this door says them.
//!
//! Owns the text form of a refusal. Grid clients derive an error number from Globus's four lines and the words of
//! `strerror`; people read the last line, which is what lftp and curl show. Never decides the code: the failure does.

use wire::ftp::Reply;

use crate::failure::{Failure, FailureKind};

/// What an operation is called in the reason line, as the Globus server calls it.
pub(super) type Operation = &'static str;

/// The reply that says why `operation` was not done.
pub(super) fn refusal(failure: &Failure, operation: Operation) -> Reply {
    let code = failure.ftp_code();
    let Some((class, errno, words)) = system_error(failure.kind()) else {
        return Reply::new(code, sentence(failure.message()));
    };
    let lines = vec![
        format!("GlobusError: v=1 c={class}"),
        format!("{code}-GridFTP-Errno: {errno}"),
        format!("{code}-GridFTP-Reason: System error in {operation}"),
        format!("{code}-GridFTP-Error-String: {words}"),
        sentence(failure.message()),
    ];
    Reply::with_lines(code, lines)
}

/// The system's error for a kind of failure: Globus's class, Linux's number and words. `None` where no system call
/// fails so; a grid client then reads the code alone.
const fn system_error(kind: FailureKind) -> Option<(&'static str, u32, &'static str)> {
    match kind {
        FailureKind::NotFound => Some(("PATH_NOT_FOUND", 2, "No such file or directory")),
        FailureKind::PermissionDenied => Some(("PERMISSION_DENIED", 13, "Permission denied")),
        FailureKind::Exists => Some(("PATH_EXISTS", 17, "File exists")),
        FailureKind::NotADirectory => Some(("NOT_A_DIRECTORY", 20, "Not a directory")),
        FailureKind::IsADirectory => Some(("IS_A_DIRECTORY", 21, "Is a directory")),
        FailureKind::NoSpace => Some(("NO_SPACE", 28, "No space left on device")),
        FailureKind::NotEmpty => Some(("NOT_EMPTY", 39, "Directory not empty")),
        FailureKind::QuotaExceeded => Some(("QUOTA_EXCEEDED", 122, "Disk quota exceeded")),
        _ => None,
    }
}

/// With a capital and a full stop.
pub(super) fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first: String = characters.next().map(|first| first.to_uppercase().collect()).unwrap_or_default();
    let end = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    // A path or a name keeps its first letter.
    let first =
        if text.starts_with(|first: char| first.is_ascii_lowercase()) { first } else { text.chars().take(1).collect() };
    format!("{first}{}{end}", characters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grid_clients_find_the_error_number_and_people_the_sentence() {
        let failure = Failure::new(FailureKind::NotFound, "/a/b does not exist: MKD /a makes the directory");
        let bytes = refusal(&failure, "stat").to_bytes();
        let expected = "550-GlobusError: v=1 c=PATH_NOT_FOUND\r\n550-GridFTP-Errno: 2\r\n\
                        550-GridFTP-Reason: System error in stat\r\n\
                        550-GridFTP-Error-String: No such file or directory\r\n\
                        550 /a/b does not exist: MKD /a makes the directory.\r\n";
        assert_eq!(&bytes[..], expected.as_bytes());
        let busy = Failure::new(FailureKind::Busy, "the drive is busy");
        assert_eq!(&refusal(&busy, "open").to_bytes()[..], b"450 The drive is busy.\r\n");
    }
}
