//! When something will be done: from what mounts, locates and reading have taken so far.

use std::time::Duration;

/// What things take at this site, as measured; it begins with a full-height LTO-9 drive's figures.
///
/// # Source
///
/// IBM TS4500 documentation and Oracle ACSLS notes: robot 15 s, load 17 s, average locate 45 s, unload and rewind 85 s,
/// 400 MB/s.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    mount_s: f64,
    unmount_s: f64,
    locate_s: f64,
    bytes_per_s: f64,
}

impl Default for Measured {
    fn default() -> Self {
        Self { mount_s: 32.0, unmount_s: 85.0, locate_s: 45.0, bytes_per_s: 400e6 }
    }
}

/// How much the newest measurement counts against all before it.
const NEWEST: f64 = 0.2;

fn blend(known: &mut f64, newest: f64) {
    if newest.is_finite() && newest >= 0.0 {
        *known += (newest - *known) * NEWEST;
    }
}

/// What one cartridge has to give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session {
    /// How many files.
    pub files: u64,
    /// How many bytes.
    pub bytes: u64,
    /// It is mounted already.
    pub mounted: bool,
}

impl Measured {
    /// A mount took so long, from the wish for it to the drive's being ready.
    pub fn mount_took(&mut self, took: Duration) {
        blend(&mut self.mount_s, took.as_secs_f64());
    }

    /// So many files and bytes took so long to read. What is not explained by the rate is put down to locating.
    #[allow(clippy::cast_precision_loss)]
    pub fn reading_took(&mut self, files: u64, bytes: u64, took: Duration) {
        if files == 0 || took.is_zero() {
            return;
        }
        let took = took.as_secs_f64();
        let per_file = bytes as f64 / files as f64;
        if per_file / self.bytes_per_s > self.locate_s {
            blend(&mut self.bytes_per_s, (bytes as f64 / took).max(1.0));
        } else {
            blend(&mut self.locate_s, (took - bytes as f64 / self.bytes_per_s).max(0.0) / files as f64);
        }
    }

    /// Bytes a second, for showing.
    #[must_use]
    pub const fn bytes_per_second(&self) -> f64 {
        self.bytes_per_s
    }

    #[allow(clippy::cast_precision_loss)]
    fn session_s(&self, session: &Session) -> f64 {
        let mount = if session.mounted { 0.0 } else { self.mount_s };
        mount + session.files as f64 * self.locate_s + session.bytes as f64 / self.bytes_per_s
    }

    /// In how long each session will be over, in the given order, on this many drives: each goes to the drive that is
    /// free first. `None` for all without a drive.
    #[must_use]
    pub fn ends(&self, sessions: &[Session], drives: usize) -> Vec<Option<Duration>> {
        // More drives than sessions change nothing, and a peer's number must not size a list.
        let mut free = vec![0.0f64; drives.min(sessions.len())];
        sessions
            .iter()
            .map(|session| {
                let next = free.iter_mut().min_by(|a, b| a.total_cmp(b))?;
                let unmount = if *next > 0.0 { self.unmount_s } else { 0.0 };
                *next += unmount + self.session_s(session);
                Some(seconds(*next))
            })
            .collect()
    }

    /// How long before the end of its session a file is done, that has so many files and bytes behind it.
    #[allow(clippy::cast_precision_loss)]
    #[must_use]
    pub fn before_end(&self, files_behind: u64, bytes_behind: u64) -> Duration {
        seconds(files_behind as f64 * self.locate_s + bytes_behind as f64 / self.bytes_per_s)
    }
}

/// A year at most: nobody believes more.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.clamp(0.0, 366.0 * 86_400.0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(files: u64, bytes: u64, mounted: bool) -> Session {
        Session { files, bytes, mounted }
    }

    #[test]
    fn a_second_drive_halves_the_wait() {
        let measured = Measured::default();
        let sessions = [session(1, 0, false); 4];
        let one = measured.ends(&sessions, 1);
        let two = measured.ends(&sessions, 2);
        assert!(one[3] > two[3]);
        assert_eq!(one[0], two[1]);
    }

    #[test]
    fn without_a_drive_there_is_no_estimate() {
        assert_eq!(Measured::default().ends(&[session(1, 1, false)], 0), [None]);
    }

    #[test]
    fn a_mounted_cartridge_is_read_sooner() {
        let ends = |mounted| Measured::default().ends(&[session(1, 1, mounted)], 1)[0].expect("a drive");
        assert_eq!(ends(false) - ends(true), Duration::from_secs(32));
    }

    #[test]
    fn measurements_move_the_estimate() {
        let mut measured = Measured::default();
        for _ in 0..50 {
            measured.mount_took(Duration::from_millis(10));
            measured.reading_took(1000, 4_096_000, Duration::from_secs(1));
        }
        assert!(measured.ends(&[session(10, 0, false)], 1)[0] < Some(Duration::from_secs(1)));
        for _ in 0..50 {
            measured.reading_took(1, 100_000_000_000, Duration::from_secs(1000));
        }
        assert!((measured.bytes_per_second() - 100e6).abs() < 5e6);
    }

    #[test]
    fn an_absurd_queue_has_an_absurd_but_finite_estimate() {
        let ends = Measured::default().ends(&[session(u64::MAX, u64::MAX, false)], usize::MAX);
        assert_eq!(ends, [Some(Duration::from_secs(366 * 86_400))]);
    }
}
