//! The S3 door's section of the gateway's configuration.
//!
//! Owns the defaults, and what a storage class of S3 means here: a class of service.

use std::{collections::BTreeMap, net::SocketAddr};

use daemon::config::{Problems, TimeSpan};
use serde::{Deserialize, Serialize};
use wire::id::CosName;

use super::notify::{self, DestinationConfig};

/// `[s3]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct S3Config {
    /// Where the door listens with TLS; none turns it off.
    pub listen: Vec<SocketAddr>,
    /// Where it listens without TLS.
    pub listen_clear: Vec<SocketAddr>,
    /// Names under which buckets are host names: `BUCKET.NAME`.
    pub domains: Vec<String>,
    /// The region that clients are told.
    pub region: String,
    /// Requests signed by version 2 of the signature, which is older than SHA-256, are taken too.
    pub signature_v2: bool,
    /// Connections at a time.
    pub max_connections: u32,
    /// How long a client may send nothing in the middle of a body, or leave an answer unread.
    pub stall_limit: TimeSpan,
    /// When an upload in parts that nobody completes is given up.
    pub upload_limit: TimeSpan,
    /// The longest that a temporary key is good, which is given for a client certificate; nothing gives none.
    pub temporary_limit: TimeSpan,
    /// How often what lies in buckets is counted; nothing is never.
    pub usage_every: TimeSpan,
    /// How long a day of lifecycle rules is. Other than 24 hours for tests only.
    pub lifecycle_day: TimeSpan,
    /// How long an event waits for a destination that does not take it.
    pub event_age: TimeSpan,
    /// How many events wait for a destination at most.
    pub event_limit: u64,
    /// Storage classes and the classes of service they mean; one that is not here is refused.
    pub classes: BTreeMap<String, CosName>,
    /// Where buckets can have events told to.
    pub notify: BTreeMap<String, DestinationConfig>,
}

fn cos(name: &str) -> CosName {
    CosName::new(name).expect("a good name")
}

impl Default for S3Config {
    fn default() -> Self {
        let classes =
            [("STANDARD", "disk"), ("GLACIER_IR", "single"), ("GLACIER", "single"), ("DEEP_ARCHIVE", "standard")];
        Self {
            listen: Vec::new(),
            listen_clear: Vec::new(),
            domains: Vec::new(),
            region: "us-east-1".to_owned(),
            signature_v2: false,
            max_connections: 2000,
            stall_limit: TimeSpan::seconds(120),
            upload_limit: TimeSpan::seconds(7 * 86_400),
            temporary_limit: TimeSpan::seconds(7 * 86_400),
            usage_every: TimeSpan::seconds(3600),
            lifecycle_day: TimeSpan::seconds(86_400),
            event_age: TimeSpan::seconds(7 * 86_400),
            event_limit: 100_000,
            notify: BTreeMap::new(),
            classes: classes.into_iter().map(|(class, name)| (class.to_owned(), cos(name))).collect(),
        }
    }
}

impl S3Config {
    /// The section with every key, its default and a comment.
    pub const TEMPLATE: &'static str = r#"# The S3 door. Buckets are directories below [names] export.
[s3]
# Where it listens with TLS, and without; [] turns it off.
listen = []
listen_clear = []
# Names under which buckets are host names (BUCKET.NAME), such as "s3.example.org".
domains = []
# The region that clients are told.
region = "us-east-1"
# Take requests signed by version 2 of the signature too (SHA-1): for old clients only.
signature_v2 = false
# Connections at a time.
max_connections = 2000
# How long a client may send nothing in the middle of a body, or leave an answer unread.
stall_limit = "2m"
# When an upload in parts that nobody completes is given up.
upload_limit = "7d"
# The longest that a temporary key is good, which is given for a client certificate (AssumeRoleWithCertificate); "0s"
# gives none, and asks for no certificate.
temporary_limit = "7d"
# How often what lies in buckets is counted, for `penstock admin bucket`; "0s" is never.
usage_every = "1h"
# How long a day of lifecycle rules is: for tests that cannot wait for one. Answers tell of real days all the same.
lifecycle_day = "1d"
# What waits for a destination of events ([s3.notify] below) that does not take it: so long, and so many of the latest.
event_age = "7d"
event_limit = 100000

# Storage classes of S3 and the classes of service they mean; STANDARD is that of objects whose writer names none.
# Objects of GLACIER and DEEP_ARCHIVE that are on tape must be restored before they are read; others are waited for.
[s3.classes]
STANDARD = "disk"
GLACIER_IR = "single"
GLACIER = "single"
DEEP_ARCHIVE = "standard"

# Destinations of events. A bucket's notification configuration names one as arn:penstock:s3:::NAME. Gateways over one
# catalogue have the same ones.
[s3.notify]
# [s3.notify.NAME]
# webhook = "https://HOST/PATH"    # events are posted there as JSON; http:// is taken too
# header_file = "/etc/penstock/hook"   # a file with one line, `Name: value`: a header that is sent with each post
# ca = "/etc/penstock/hook-ca.pem"     # authorities of its certificate; left out, the system's
# timeout = "10s"                      # for one post
# [s3.notify.OTHER]
# file = "/var/log/penstock/events.jsonl"   # events are appended, one a line
"#;

    /// Whether any address is listened on.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.listen.is_empty() || !self.listen_clear.is_empty()
    }

    /// Reports what makes no sense; `section` is `s3`, `known` the classes of service there are.
    pub fn check(&self, section: &str, known: &[&CosName], problems: &mut Problems) {
        if self.max_connections == 0 {
            problems.add(format!("{section}.max_connections"), "is nothing", "leave it out for the default");
        }
        let spans = [
            ("stall_limit", self.stall_limit),
            ("upload_limit", self.upload_limit),
            ("lifecycle_day", self.lifecycle_day),
            ("event_age", self.event_age),
        ];
        for (key, span) in spans {
            if span.duration().is_zero() {
                problems.add(format!("{section}.{key}"), "is nothing", "leave it out for the default");
            }
        }
        if self.event_limit == 0 {
            problems.add(format!("{section}.event_limit"), "is nothing", "leave it out for the default");
        }
        notify::check(&format!("{section}.notify"), &self.notify, problems);
        if !self.is_open() {
            return;
        }
        if !self.classes.contains_key("STANDARD") {
            let advice = "say which class of service an object without a storage class gets: STANDARD = \"…\"";
            problems.add(format!("{section}.classes"), "has no STANDARD", advice);
        }
        for (class, cos) in &self.classes {
            if !known.contains(&cos) {
                let names = known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                let key = format!("{section}.classes.{class}");
                problems.add(key, format!("is {cos:?}, which no [[cos]] has"), format!("name one of: {names}"));
            }
        }
        for domain in &self.domains {
            if domain.is_empty() || domain.starts_with('.') || domain.contains(['/', ' ']) {
                let advice = "write a host name, with a port if clients name one";
                problems.add(format!("{section}.domains"), format!("has {domain:?}"), advice);
            }
        }
    }
}
