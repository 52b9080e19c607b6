//! Files that are being made, or whose outcome somebody here still has to deal with.
//!
//! Whoever finds such a file unconfirmed leaves it alone.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use wire::mover::VolumeFile;

/// The files in flight. Cheap to clone.
#[derive(Clone, Default, Debug)]
pub(super) struct Flying(Arc<Mutex<HashMap<VolumeFile, usize>>>);

impl Flying {
    /// Counts these files as in flight until the care is dropped.
    pub(super) fn take(&self, files: Vec<VolumeFile>) -> Care {
        if !files.is_empty() {
            let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            for file in &files {
                *counts.entry(file.clone()).or_default() += 1;
            }
        }
        Care { flying: self.clone(), files }
    }

    /// Those of these files that are not in flight.
    pub(super) fn landed(&self, files: Vec<VolumeFile>) -> Vec<VolumeFile> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.into_iter().filter(|file| !counts.contains_key(file)).collect()
    }
}

/// Keeps files in flight as long as it lives.
#[derive(Debug)]
pub(super) struct Care {
    flying: Flying,
    files: Vec<VolumeFile>,
}

impl Care {
    /// The files are no longer in flight.
    pub(super) fn land(mut self) -> Vec<VolumeFile> {
        self.release();
        std::mem::take(&mut self.files)
    }

    fn release(&self) {
        if self.files.is_empty() {
            return;
        }
        let mut counts = self.flying.0.lock().unwrap_or_else(PoisonError::into_inner);
        for file in &self.files {
            if let Some(count) = counts.get_mut(file) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(file);
                }
            }
        }
    }
}

impl Drop for Care {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use wire::id::{FileId, VolumeLabel};

    use super::*;

    #[test]
    fn a_file_is_in_flight_until_its_last_care_is_dropped() {
        let file = VolumeFile { volume: VolumeLabel::new("m1.d0").expect("a good label"), file: FileId(1) };
        let flying = Flying::default();
        let (first, second) = (flying.take(vec![file.clone()]), flying.take(vec![file.clone()]));
        drop(first);
        assert!(flying.landed(vec![file.clone()]).is_empty());
        assert_eq!(second.land(), std::slice::from_ref(&file));
        assert_eq!(flying.landed(vec![file.clone()]), [file]);
    }
}
