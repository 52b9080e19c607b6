//! What a caller asks of the token service, and until when it may have it. Pure.
//!
//! # Source
//!
//! AWS Security Token Service API Reference, "Making query requests" and "Common parameters".
//! `AssumeRoleWithCertificate` is MinIO's, with the same parameters and answer as STS's own calls.

use std::time::Duration;

use catalog::Timestamp;

use super::answer::Refusal;

/// The only call.
pub(super) const ACTION: &str = "AssumeRoleWithCertificate";
/// The only version.
const VERSION: &str = "2011-06-15";
/// How long a key is good if its user does not say.
const USUAL: Duration = Duration::from_secs(3600);
/// How long one may be asked for, in seconds: STS's least, and MinIO's most.
const DURATIONS_S: std::ops::RangeInclusive<u64> = 900..=604_800;
/// Parameters that would make the key weaker than the account. To pass them over would give more than was asked.
const NARROWING: [&str; 2] = ["Policy", "RoleArn"];

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    /// How long the key shall be good.
    pub(super) duration: Duration,
}

impl Asked {
    /// Reads the parameters of a query and of a form, which may be mixed.
    ///
    /// # Errors
    ///
    /// In STS's words: `MissingAction`, `InvalidAction`, `MissingParameter`, `InvalidParameterValue`.
    pub(super) fn of(parameters: &[(String, String)]) -> Result<Self, Refusal> {
        let one = |name: &str| {
            let mut values = parameters.iter().filter(|(found, _)| found == name).map(|(_, value)| value.as_str());
            match (values.next(), values.next()) {
                (_, Some(_)) => Err(invalid(format!("{name} is there twice"))),
                (value, None) => Ok(value),
            }
        };
        match one("Action")? {
            None => return Err(Refusal::bad("MissingAction", format!("say which: Action={ACTION}"))),
            Some(ACTION) => {}
            Some(other) => {
                let text = format!("{:?} is not offered here: Action={ACTION} is", shortened(other));
                return Err(Refusal::bad("InvalidAction", text));
            }
        }
        match one("Version")? {
            None => return Err(Refusal::bad("MissingParameter", format!("say Version={VERSION}"))),
            Some(VERSION) => {}
            Some(other) => {
                let text = format!("{ACTION} has no version {:?}: say {VERSION}", shortened(other));
                return Err(Refusal::bad("InvalidAction", text));
            }
        }
        if let Some(name) = NARROWING.into_iter().find(|name| parameters.iter().any(|(of, _)| of.starts_with(*name))) {
            return Err(invalid(format!("{name} is not taken: a temporary key may what its account may, not less")));
        }
        let duration = match one("DurationSeconds")? {
            None => USUAL,
            Some(text) => {
                let seconds = text.parse().ok().filter(|seconds| DURATIONS_S.contains(seconds)).ok_or_else(|| {
                    let (least, most) = (DURATIONS_S.start(), DURATIONS_S.end());
                    invalid(format!("DurationSeconds {:?} is not from {least} to {most}", shortened(text)))
                })?;
                Duration::from_secs(seconds)
            }
        };
        Ok(Self { duration })
    }

    /// Until when a key of now is good, to the second: for as long as was asked, but no longer than this site gives
    /// them and than the certificate is valid. `None` if that is no time at all.
    pub(super) fn until(self, now: Timestamp, limit: Duration, certificate_us: i64) -> Option<Timestamp> {
        let end = now.after(self.duration.min(limit)).min(Timestamp(certificate_us));
        Some(Timestamp::from_seconds(end.seconds())).filter(|end| *end > now)
    }
}

fn invalid(text: String) -> Refusal {
    Refusal::bad("InvalidParameterValue", text)
}

/// Enough of what a caller said to recognise it.
fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::s3::access::pairs;

    fn asked(text: &str) -> Result<u64, &'static str> {
        Asked::of(&pairs(text)).map(|asked| asked.duration.as_secs()).map_err(|refusal| refusal.code)
    }

    #[test]
    fn a_key_is_asked_for_by_name_and_version() {
        let call = "Action=AssumeRoleWithCertificate&Version=2011-06-15";
        assert_eq!(asked(call), Ok(3600));
        assert_eq!(asked(&format!("{call}&DurationSeconds=900&RoleSessionName=x")), Ok(900));
        assert_eq!(asked(&format!("DurationSeconds=604800&{call}")), Ok(604_800));
        assert_eq!(asked("Version=2011-06-15"), Err("MissingAction"));
        assert_eq!(asked("Action=AssumeRole&Version=2011-06-15"), Err("InvalidAction"));
        assert_eq!(asked("Action=AssumeRoleWithCertificate"), Err("MissingParameter"));
        assert_eq!(asked("Action=AssumeRoleWithCertificate&Version=2012-01-01"), Err("InvalidAction"));
        for seconds in ["899", "604801", "", "-1", "1e3", "99999999999999999999"] {
            assert_eq!(asked(&format!("{call}&DurationSeconds={seconds}")), Err("InvalidParameterValue"), "{seconds}");
        }
        for more in ["Policy=x", "PolicyArns.member.1=x", "RoleArn=arn", "DurationSeconds=900&DurationSeconds=9000"] {
            assert_eq!(asked(&format!("{call}&{more}")), Err("InvalidParameterValue"), "{more}");
        }
    }

    #[test]
    fn a_key_ends_with_the_shortest_of_what_limits_it() {
        let hour = Duration::from_secs(3600);
        let until = |asked, limit, certificate_us| {
            let asked = Asked { duration: Duration::from_secs(asked) };
            asked.until(Timestamp(500_000), limit, certificate_us).map(|end| end.0)
        };
        assert_eq!(until(900, hour, i64::MAX), Some(900_000_000));
        assert_eq!(until(9000, hour, i64::MAX), Some(3_600_000_000));
        assert_eq!(until(9000, hour, 60_900_000), Some(60_000_000), "never past the certificate");
        assert_eq!(until(900, hour, 999_999), None);
        assert_eq!(until(900, hour, i64::MIN), None);
        assert_eq!(until(900, Duration::ZERO, i64::MAX), None);
    }

    proptest! {
        #[test]
        fn whatever_is_asked_gets_a_time_within_bounds_or_a_word_of_sts(
            text in prop_oneof![
                "(Action=AssumeRoleWithCertificate)?&?(Version=2011-06-15)?&?(DurationSeconds=[0-9]{1,7})?",
                any::<String>(),
            ],
        ) {
            match asked(&text) {
                Ok(seconds) => prop_assert!(DURATIONS_S.contains(&seconds)),
                Err(code) => prop_assert!(code.starts_with("Missing") || code.starts_with("Invalid")),
            }
        }
    }
}
