//! Signing policies: which names a certification authority may put into certificates.
//!
//! Owns the reading of `HASH.signing_policy` files and the matching of names. Pure. Never grants
//! what a file does not say: an entry it cannot read is an error, not a permission.

use super::dn::Dn;

/// A policy file is a page of text; more is refused before it is read.
const MAX_ENTRIES: usize = 1024;

/// One `.signing_policy` file.
///
/// # Source
///
/// Globus "EACL" files as the IGTF distribution ships them: `access_id_CA X509 'NAME'`, then
/// `pos_rights globus CA:sign`, then `cond_subjects globus '"PATTERN" "PATTERN"'`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SigningPolicy(Vec<Entry>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    authority: String,
    patterns: Vec<String>,
}

/// Where and why a policy file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub(super) struct BadPolicy {
    line: usize,
    reason: &'static str,
}

impl SigningPolicy {
    pub(super) fn parse(text: &str) -> Result<Self, BadPolicy> {
        let mut entries: Vec<Entry> = Vec::new();
        // The name of the entry being read, and whether its right to sign was seen.
        let mut open: Option<(String, bool)> = None;
        for (index, line) in text.lines().enumerate() {
            let bad = |reason| BadPolicy { line: index + 1, reason };
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (keyword, rest) = line.split_once(char::is_whitespace).ok_or(bad("expected a keyword and a value"))?;
            let (kind, value) = rest.trim().split_once(char::is_whitespace).ok_or(bad("expected three words"))?;
            let value = unquote(value.trim()).ok_or(bad("a quotation mark is missing"))?;
            match (keyword, kind) {
                ("access_id_CA", "X509") => open = Some((normal(value), false)),
                ("pos_rights", "globus") if value.eq_ignore_ascii_case("CA:sign") => {
                    open.as_mut().ok_or(bad("pos_rights before access_id_CA"))?.1 = true;
                }
                ("cond_subjects", "globus") => {
                    let (authority, may_sign) = open.clone().ok_or(bad("cond_subjects before access_id_CA"))?;
                    if !may_sign {
                        return Err(bad("cond_subjects without pos_rights globus CA:sign"));
                    }
                    if entries.len() == MAX_ENTRIES {
                        return Err(bad("too many entries"));
                    }
                    let patterns = patterns(value).ok_or(bad("patterns must be in quotation marks"))?;
                    entries.push(Entry { authority, patterns });
                }
                _ => {
                    return Err(bad(
                        "only access_id_CA X509, pos_rights globus CA:sign and cond_subjects globus are understood",
                    ));
                }
            }
        }
        Ok(Self(entries))
    }

    /// Whether `authority` may issue a certificate named `subject`.
    pub(super) fn permits(&self, authority: &str, subject: &str) -> bool {
        let (authority, subject) = (normal(authority), normal(subject));
        self.0
            .iter()
            .filter(|entry| entry.authority == authority)
            .flat_map(|entry| &entry.patterns)
            .any(|pattern| matches(pattern.as_bytes(), subject.as_bytes()))
    }
}

/// Brings older spellings up to date; patterns such as `/*` stay as they are.
fn normal(text: &str) -> String {
    text.parse::<Dn>().map_or_else(|_| text.to_owned(), |dn| dn.as_str().to_owned())
}

/// Takes one pair of enclosing single or double quotation marks off, if there is one.
fn unquote(text: &str) -> Option<&str> {
    for quote in ['\'', '"'] {
        if let Some(rest) = text.strip_prefix(quote) {
            // `"/C=x/*" "/C=y/*"` without outer marks is a list, which `patterns` reads.
            return match rest.find(quote) {
                Some(end) if end + 1 == rest.len() => Some(&rest[..end]),
                Some(_) if quote == '"' => Some(text),
                _ => None,
            };
        }
    }
    Some(text)
}

/// The patterns in a list such as `"/C=x/*" "/C=y/*"`, or one bare pattern.
fn patterns(list: &str) -> Option<Vec<String>> {
    if !list.contains('"') {
        return Some(vec![normal(list)]);
    }
    let mut found = Vec::new();
    let mut rest = list.trim();
    while !rest.is_empty() {
        let (pattern, after) = rest.strip_prefix('"')?.split_once('"')?;
        found.push(normal(pattern));
        rest = after.trim_start();
    }
    Some(found)
}

/// Whether `text` has the form `pattern`: `*` stands for any bytes, `?` for one. Linear in
/// practice: one step back per star.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((star_at, eaten)) => {
                    star = Some((star_at, eaten + 1));
                    p = star_at + 1;
                    t = eaten + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
# made by hand
access_id_CA   X509    '/C=CH/O=Grid/CN=Grid CA'
pos_rights     globus  CA:sign
cond_subjects  globus  '"/C=CH/O=Grid/*" "/DC=ch/DC=grid/CN=host/?.grid.ch"'

access_id_CA X509 "/C=CH/O=Other/Email=ca@other.ch"
pos_rights globus CA:sign
cond_subjects globus "/O=Other/*"
"#;

    #[test]
    fn a_policy_permits_what_its_patterns_say_and_nothing_else() {
        let policy = SigningPolicy::parse(FILE).unwrap();
        let ca = "/C=CH/O=Grid/CN=Grid CA";
        assert!(policy.permits(ca, "/C=CH/O=Grid/CN=Alice"));
        assert!(policy.permits(ca, "/DC=ch/DC=grid/CN=host/a.grid.ch"));
        for subject in
            ["/C=CH/O=Gridx/CN=Alice", "/O=Other/CN=Bob", "/DC=ch/DC=grid/CN=host/ab.grid.ch", "", "/C=CH/O=Grid"]
        {
            assert!(!policy.permits(ca, subject), "{subject}");
        }
        assert!(policy.permits("/C=CH/O=Other/emailAddress=ca@other.ch", "/O=Other/CN=Bob"));
        assert!(!policy.permits("/C=CH/CN=Nobody", "/C=CH/O=Grid/CN=Alice"));
    }

    #[test]
    fn what_cannot_be_read_is_an_error_with_its_line() {
        for (text, line) in [
            ("access_id_CA X509 '/CN=x'\ncond_subjects globus '\"*\"'", 2),
            ("cond_subjects globus '\"*\"'", 1),
            ("access_id_CA X509 '/CN=x", 1),
            ("access_id_CA X509", 1),
            ("neg_rights globus CA:sign", 1),
            ("access_id_CA X509 '/CN=x'\npos_rights globus CA:sign\ncond_subjects globus '\"/a\" /b'", 3),
        ] {
            assert_eq!(SigningPolicy::parse(text).unwrap_err().line, line, "{text}");
        }
    }

    #[test]
    fn many_stars_do_not_make_matching_slow() {
        let text = "a".repeat(2000);
        assert!(!matches("*a".repeat(30).as_bytes(), (text.clone() + "b").as_bytes()));
        assert!(matches(b"*a*", text.as_bytes()) && matches(b"", b"") && matches(b"**", b""));
    }
}
