//! The grid-mapfile: which certificate subject is which account, a line each.
//!
//! ```text
//! "/DC=org/DC=example/CN=Alice Example" alice
//! "/DC=org/DC=example/OU=Robots/*" robot,transfer   # the first account unless the client names the other
//! ```
//!
//! Pure. A line with a mistake is left out and reported; the others hold.
//!
//! # Source
//!
//! The format of Globus's `grid-mapfile(5)`; a subject that ends in `*` is ours, as in many sites' generators.

use std::collections::HashMap;

use wire::id::AccountName;

/// The most bytes of a subject that are looked at: a certificate's subject is shorter.
const MAX_SUBJECT_BYTES: usize = 4096;

/// A grid-mapfile that has been read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GridMap {
    exact: HashMap<String, Vec<AccountName>>,
    // Longest first.
    patterns: Vec<(String, Vec<AccountName>)>,
}

/// Why a line was left out.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Mistake {
    line: usize,
    what: String,
}

impl GridMap {
    /// Reads the text of a grid-mapfile; what is wrong in it comes back beside it.
    #[must_use]
    pub fn read(text: &str) -> (Self, Vec<Mistake>) {
        let mut map = Self::default();
        let mut mistakes = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match entry(line) {
                Ok((subject, accounts)) => match subject.strip_suffix('*') {
                    Some(prefix) => map.patterns.push((prefix.to_owned(), accounts)),
                    None => {
                        // The first line of a subject holds, as in Globus's library.
                        map.exact.entry(subject).or_insert(accounts);
                    }
                },
                Err(what) => mistakes.push(Mistake { line: index + 1, what }),
            }
        }
        map.patterns.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        (map, mistakes)
    }

    /// The accounts of a subject, the one to take by default first: of its own line, else of the longest pattern.
    #[must_use]
    pub fn accounts(&self, subject: &str) -> &[AccountName] {
        if let Some(accounts) = self.exact.get(subject) {
            return accounts;
        }
        let fits = |(prefix, _): &&(String, _)| subject.starts_with(prefix.as_str());
        self.patterns.iter().find(fits).map_or(&[], |(_, accounts)| accounts)
    }
}

fn entry(line: &str) -> Result<(String, Vec<AccountName>), String> {
    let (subject, rest) = match line.strip_prefix('"') {
        Some(quoted) => quoted_subject(quoted)?,
        None => {
            let (subject, rest) = line.split_once(char::is_whitespace).ok_or("no account behind the subject")?;
            (subject.to_owned(), rest)
        }
    };
    if !subject.starts_with('/') || subject.len() > MAX_SUBJECT_BYTES {
        return Err(format!("{:?} is not a subject: it begins with '/'", subject.chars().take(80).collect::<String>()));
    }
    let list = rest.split('#').next().unwrap_or_default().trim();
    if list.is_empty() {
        return Err("no account behind the subject".to_owned());
    }
    let accounts = list.split(',').map(|name| AccountName::new(name.trim()).map_err(|bad| bad.to_string()));
    Ok((subject, accounts.collect::<Result<_, _>>()?))
}

/// The text up to the closing quote, with `\"` and `\\` unescaped, and what follows it.
fn quoted_subject(quoted: &str) -> Result<(String, &str), String> {
    let mut subject = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Ok((subject, &quoted[at + 1..])),
            '\\' => subject.extend(chars.next().map(|(_, escaped)| escaped)),
            _ => subject.push(char),
        }
    }
    Err("the quotation mark is not closed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[AccountName]) -> Vec<&str> {
        names.iter().map(AccountName::as_str).collect()
    }

    #[test]
    fn the_most_specific_line_holds() {
        let (map, mistakes) = GridMap::read(
            "# comment\n\"/O=x/*\" x\n\"/O=x/OU=y/*\" y,z # why\n\"/O=x/OU=y/CN=A B\" ab\n/O=plain plain\n",
        );
        assert_eq!(mistakes, []);
        assert_eq!(names(map.accounts("/O=x/OU=y/CN=A B")), ["ab"]);
        assert_eq!(names(map.accounts("/O=x/OU=y/CN=C")), ["y", "z"]);
        assert_eq!(names(map.accounts("/O=x/CN=C")), ["x"]);
        assert_eq!(names(map.accounts("/O=plain")), ["plain"]);
        assert_eq!(names(map.accounts("/O=plain/CN=x")), [""; 0]);
    }

    #[test]
    fn a_line_with_a_mistake_is_named_and_the_others_hold() {
        let (map, mistakes) =
            GridMap::read("\"/O=a\" a\n\"/O=b b\n\"/O=c\"\nCN=d d\n\"/O=e\" ../e\n\"/O=\\\"f\\\\\" f");
        assert_eq!(mistakes.iter().map(|mistake| mistake.line).collect::<Vec<_>>(), [2, 3, 4, 5]);
        assert_eq!(names(map.accounts("/O=a")), ["a"]);
        assert_eq!(names(map.accounts("/O=\"f\\")), ["f"]);
    }
}
