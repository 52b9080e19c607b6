//! What each version is to those of its key, as they come by in order, newest first. Pure.

use catalog::{Object, Timestamp};

use super::rules::State;

/// What has come by, across pages.
#[derive(Debug, Default)]
pub(super) struct Trail {
    /// The newer version of the same key, if the last that came by is of it.
    newer: Option<Newer>,
    /// A delete marker that is the newest of its key, until it is known whether there are others.
    marker: Option<Object>,
}

#[derive(Debug)]
struct Newer {
    key: String,
    modified: Timestamp,
    /// How many versions that are not current have come by.
    hidden: u32,
}

impl Trail {
    /// Takes the next version; returns those of which it is now known what they are.
    pub(super) fn next(&mut self, object: Object) -> Vec<(Object, State)> {
        let mut known = Vec::new();
        match self.newer.as_mut().filter(|newer| newer.key == object.key) {
            Some(newer) => {
                known.extend(self.marker.take().map(|marker| (marker, State::Marker)));
                let state = State::Hidden { since: newer.modified, newer: newer.hidden };
                newer.modified = object.modified;
                newer.hidden += u32::from(object.data.is_some());
                known.push((object, state));
            }
            None => {
                known.extend(self.end());
                self.newer = Some(Newer { key: object.key.clone(), modified: object.modified, hidden: 0 });
                if object.data.is_some() {
                    known.push((object, State::Current));
                } else {
                    self.marker = Some(object);
                }
            }
        }
        known
    }

    /// There are no more versions.
    pub(super) fn end(&mut self) -> Option<(Object, State)> {
        self.newer = None;
        self.marker.take().map(|marker| (marker, State::LoneMarker))
    }
}

#[cfg(test)]
mod tests {
    use catalog::Version;

    use super::*;

    fn marker(key: &str, number: u64) -> Object {
        let version = Version { number, plain: false };
        let account = wire::id::AccountName::new("alice").expect("a name");
        let group = wire::id::GroupName::new("users").expect("a name");
        let modified = Timestamp(i64::try_from(number).expect("small"));
        Object {
            key: key.to_owned(),
            version,
            latest: false,
            owner: account,
            group,
            mode: 0,
            acl: None,
            modified,
            data: None,
        }
    }

    #[test]
    fn a_marker_is_alone_if_the_next_key_follows_and_versions_are_hidden_since_the_newer_one_came() {
        let mut trail = Trail::default();
        assert!(trail.next(marker("a", 9)).is_empty());
        let second = trail.next(marker("a", 7));
        let states: Vec<_> = second.iter().map(|(object, state)| (object.version.number, *state)).collect();
        assert_eq!(states, [(9, State::Marker), (7, State::Hidden { since: Timestamp(9), newer: 0 })]);
        let third = trail.next(marker("a", 5));
        assert_eq!(third[0].1, State::Hidden { since: Timestamp(7), newer: 0 });
        assert!(trail.next(marker("b", 8)).is_empty());
        let lone = trail.next(marker("c", 8));
        assert_eq!((lone[0].0.key.as_str(), lone[0].1), ("b", State::LoneMarker));
        assert_eq!(trail.end().map(|(object, state)| (object.key, state)), Some(("c".to_owned(), State::LoneMarker)));
        assert!(trail.end().is_none());
    }
}
