//! Performance markers: how much each stripe has moved.
//!
//! Owns the text of reply 112 (GFD.20 section 4.5; the form that Globus sends and gfal reads).

use super::{Reply, UnexpectedReply};

/// One 112 reply: progress of one stripe of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerformanceMarker {
    /// When, in milliseconds since the epoch; a tenth of a second is sent.
    pub timestamp_ms: u64,
    /// Which stripe, from 0.
    pub stripe: u32,
    /// Bytes the stripe has moved in this transfer.
    pub bytes: u64,
    /// How many stripes there are.
    pub stripes: u32,
}

impl PerformanceMarker {
    /// The reply.
    pub fn reply(&self) -> Reply {
        let (seconds, tenth) = (self.timestamp_ms / 1000, self.timestamp_ms / 100 % 10);
        let lines = vec![
            "Perf Marker".to_owned(),
            format!(" Timestamp:  {seconds}.{tenth}"),
            format!(" Stripe Index: {}", self.stripe),
            format!(" Stripe Bytes Transferred: {}", self.bytes),
            format!(" Total Stripe Count: {}", self.stripes),
            "End.".to_owned(),
        ];
        Reply::with_lines(112, lines)
    }

    /// Reads a 112 reply. A missing time or stripe counts as 0, a missing count of stripes as 1.
    ///
    /// # Errors
    ///
    /// [`UnexpectedReply`] if it does not say how many bytes.
    pub fn from_reply(reply: &Reply) -> Result<Self, UnexpectedReply> {
        let find = |label: &str| reply.lines().iter().find_map(|line| line.trim_start().strip_prefix(label));
        let number = |label: &str| find(label).and_then(|text| text.trim().parse::<u64>().ok());
        let small = |label: &str| number(label).and_then(|number| u32::try_from(number).ok());
        let Some(bytes) = number("Stripe Bytes Transferred:").filter(|_| reply.code() == 112) else {
            return Err(reply.unexpected("a performance marker"));
        };
        let time = find("Timestamp:").map_or("", str::trim);
        let (seconds, fraction) = time.split_once('.').unwrap_or((time, "0"));
        let millis = format!("{fraction:0<3}").get(..3).and_then(|digits| digits.parse().ok()).unwrap_or(0);
        let timestamp_ms = seconds.parse::<u64>().unwrap_or(0).saturating_mul(1000).saturating_add(millis);
        let stripes = small("Total Stripe Count:").unwrap_or(1);
        Ok(Self { timestamp_ms, stripe: small("Stripe Index:").unwrap_or(0), bytes, stripes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_written_as_globus_writes_it_and_read_back() {
        let marker = PerformanceMarker { timestamp_ms: 1_796_042_558_600, stripe: 1, bytes: 10_485_760, stripes: 2 };
        let text = "112-Perf Marker\r\n Timestamp:  1796042558.6\r\n Stripe Index: 1\r\n \
                    Stripe Bytes Transferred: 10485760\r\n Total Stripe Count: 2\r\n112 End.\r\n";
        assert_eq!(&marker.reply().to_bytes()[..], text.as_bytes());
        assert_eq!(PerformanceMarker::from_reply(&marker.reply()).unwrap(), marker);
        assert!(PerformanceMarker::from_reply(&Reply::new(112, "x")).is_err());
        let huge = Reply::with_lines(
            112,
            vec![
                "x".into(),
                " Stripe Bytes Transferred: 1".into(),
                " Timestamp: 99999999999999999999.é".into(),
                "End".into(),
            ],
        );
        assert_eq!(PerformanceMarker::from_reply(&huge).unwrap().timestamp_ms, 0);
    }
}
