//! What PROPFIND asks and is told: properties by name, in XML.
//!
//! Pure.
//!
//! # Source
//!
//! RFC 4918 sections 14 and 15. `LCGDM:mode` is what davix reads of permissions; `FileLocality` is of SRM v2.2, and
//! `Checksums` of dCache, whose value is that of RFC 3230's `Digest`.

use std::fmt::Write as _;

use catalog::{Entry, FileInfo};
use quick_xml::{NsReader, escape::escape, events::Event, name::ResolveResult};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{
    conditions, digest,
    read::{DIRECTORY_TYPE, FILE_TYPE},
};

/// The namespaces of the properties that are known here.
const DAV: &str = "DAV:";
const LCGDM: &str = "LCGDM:";
const SRM: &str = "http://srm.lbl.gov/StorageResourceManager";
const DCACHE: &str = "http://www.dcache.org/2013/webdav";

/// No client asks for more properties than this.
const MAX_PROPERTIES: usize = 100;

/// A property's namespace and name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Property {
    space: String,
    name: String,
}

/// Which properties are asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    /// Those that every resource has.
    All,
    /// Their names only.
    Names,
    /// These.
    These(Vec<Property>),
}

/// Reads the body of a PROPFIND. Nothing means everything (RFC 4918 section 9.1).
///
/// # Errors
///
/// A sentence.
pub(super) fn wanted(body: &[u8]) -> Result<Wanted, String> {
    let text = std::str::from_utf8(body).map_err(|_| "the body is not UTF-8".to_owned())?;
    if text.trim().is_empty() {
        return Ok(Wanted::All);
    }
    let mut reader = NsReader::from_str(text);
    let (mut depth, mut wanted, mut root) = (0_u32, None, false);
    let mut properties = Vec::new();
    loop {
        let bad = |error| format!("the body is no XML: {error}");
        let (resolved, event) = reader.read_resolved_event().map_err(|error| bad(error.to_string()))?;
        let (element, opens) = match event {
            Event::Start(element) => (element, true),
            Event::Empty(element) => (element, false),
            Event::End(_) => {
                depth = depth.saturating_sub(1);
                continue;
            }
            Event::DocType(_) => return Err("the body has a document type, which nobody needs".to_owned()),
            Event::Eof => break,
            _ => continue,
        };
        let space = match resolved {
            ResolveResult::Bound(space) => String::from_utf8_lossy(space.into_inner()).into_owned(),
            _ => String::new(),
        };
        let local = element.local_name();
        let name = String::from_utf8_lossy(local.into_inner()).into_owned();
        match (depth, space.as_str(), name.as_str()) {
            (0, DAV, "propfind") => root = true,
            (0, ..) => return Err(format!("the body is a {name}, not a propfind")),
            (1, DAV, "allprop") => wanted = Some(Wanted::All),
            (1, DAV, "propname") => wanted = Some(Wanted::Names),
            (1, DAV, "prop") => wanted = Some(Wanted::These(Vec::new())),
            (2, ..) if properties.len() >= MAX_PROPERTIES => return Err("too many properties".to_owned()),
            (2, ..) => properties.push(Property { space, name }),
            _ => {}
        }
        depth += u32::from(opens);
    }
    match wanted {
        Some(Wanted::These(_)) => Ok(Wanted::These(properties)),
        Some(other) => Ok(other),
        None if root => Err("the propfind asks for nothing".to_owned()),
        None => Err("the body is no propfind".to_owned()),
    }
}

/// What every resource is said to be, to whoever asks for everything.
const USUAL: [(&str, &str); 9] = [
    (DAV, "creationdate"),
    (DAV, "displayname"),
    (DAV, "getcontentlength"),
    (DAV, "getcontenttype"),
    (DAV, "getetag"),
    (DAV, "getlastmodified"),
    (DAV, "resourcetype"),
    (LCGDM, "mode"),
    (SRM, "FileLocality"),
];

/// One resource's part of a multi-status answer. `href` is as it stands in a URI.
pub(super) fn response(href: &str, entry: &Entry, wanted: &Wanted) -> String {
    let (mut found, mut missing) = (String::new(), String::new());
    match wanted {
        Wanted::These(properties) => {
            for property in properties {
                match value(entry, &property.space, &property.name) {
                    Some(value) => element(&mut found, &property.space, &property.name, Some(&value)),
                    None => element(&mut missing, &property.space, &property.name, None),
                }
            }
        }
        Wanted::All | Wanted::Names => {
            for (space, name) in USUAL {
                if let Some(value) = value(entry, space, name) {
                    element(&mut found, space, name, (*wanted == Wanted::All).then_some(&value));
                }
            }
        }
    }
    let mut text = format!("<D:response><D:href>{}</D:href>", escape(href));
    if !found.is_empty() || missing.is_empty() {
        let _ = write!(text, "<D:propstat><D:prop>{found}</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>");
    }
    if !missing.is_empty() {
        let _ = write!(
            text,
            "<D:propstat><D:prop>{missing}</D:prop><D:status>HTTP/1.1 404 Not Found</D:status></D:propstat>"
        );
    }
    text + "</D:response>"
}

/// `name` was a name in the client's XML, or is one of ours.
fn element(text: &mut String, space: &str, name: &str, value: Option<&str>) {
    let (open, close) = match space {
        DAV => (format!("D:{name}"), format!("D:{name}")),
        "" => (name.to_owned(), name.to_owned()),
        _ => (format!("p:{name} xmlns:p=\"{}\"", escape(space)), format!("p:{name}")),
    };
    let _ = match value {
        Some(value) => write!(text, "<{open}>{value}</{close}>"),
        None => write!(text, "<{open}/>"),
    };
}

/// A property's value, as XML.
fn value(entry: &Entry, space: &str, name: &str) -> Option<String> {
    let file = entry.file();
    match (space, name) {
        (DAV, "creationdate") => {
            let time = OffsetDateTime::from_unix_timestamp(entry.created.0.div_euclid(1_000_000)).ok()?;
            time.format(&Rfc3339).ok()
        }
        (DAV, "displayname") => Some(escape(entry.name.as_str()).into_owned()),
        (DAV, "getcontentlength") => Some(file?.size_bytes.to_string()),
        (DAV, "getcontenttype") => Some(if file.is_some() { FILE_TYPE } else { DIRECTORY_TYPE }.to_owned()),
        (DAV, "getetag") => Some(escape(conditions::tag(file?)).into_owned()),
        (DAV, "getlastmodified") => Some(conditions::date(entry.modified)),
        (DAV, "resourcetype") => Some(if file.is_some() { "" } else { "<D:collection/>" }.to_owned()),
        (LCGDM, "mode") => {
            let kind = if file.is_some() { 0o100_000 } else { 0o040_000 };
            Some(format!("{:06o}", kind | entry.mode & 0o7777))
        }
        (SRM, "FileLocality") => Some(locality(file?).to_owned()),
        (DCACHE, "Checksums") => Some(escape(digest::all(&file?.sums)).into_owned()),
        _ => None,
    }
}

/// SRM v2.2 `TFileLocality`, as far as the name itself knows it.
fn locality(file: &FileInfo) -> &'static str {
    let residency = file.residency;
    match (residency.on_disk, residency.tape_copies > 0) {
        _ if file.size_bytes == 0 => "NONE",
        (true, true) => "ONLINE_AND_NEARLINE",
        (true, false) => "ONLINE",
        (false, true) => "NEARLINE",
        (false, false) => "LOST",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn property(space: &str, name: &str) -> Property {
        Property { space: space.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn what_davix_asks_is_read() {
        let body = r#"<?xml version="1.0" encoding="utf-8" ?><D:propfind xmlns:D="DAV:" xmlns:L="LCGDM:"><D:prop>
            <D:displayname/><D:getcontentlength></D:getcontentlength><L:mode/></D:prop></D:propfind>"#;
        let asked = vec![property(DAV, "displayname"), property(DAV, "getcontentlength"), property("LCGDM:", "mode")];
        assert_eq!(wanted(body.as_bytes()), Ok(Wanted::These(asked)));
    }

    #[test]
    fn all_names_and_nothing_are_read() {
        let body = |inner: &str| format!("<propfind xmlns=\"DAV:\">{inner}</propfind>");
        assert_eq!(wanted(b" "), Ok(Wanted::All));
        assert_eq!(wanted(body("<allprop/>").as_bytes()), Ok(Wanted::All));
        assert_eq!(wanted(body("<propname/>").as_bytes()), Ok(Wanted::Names));
        for bad in [
            body(""),
            "<propfind/>".to_owned(),
            "<x xmlns='DAV:'/>".to_owned(),
            "<a".to_owned(),
            "text".to_owned(),
            format!("<!DOCTYPE x [<!ENTITY a \"b\">]>{}", body("<allprop/>")),
            body(&format!("<prop>{}</prop>", "<a/>".repeat(MAX_PROPERTIES + 1))),
        ] {
            wanted(bad.as_bytes()).expect_err(&bad);
        }
    }

    #[test]
    fn a_body_that_is_cut_anywhere_is_refused_or_read() {
        let body = "<propfind xmlns=\"DAV:\"><prop><getetag/><ä xmlns=\"x:\"/></prop></propfind>";
        for end in 0..body.len() {
            let _ = wanted(&body.as_bytes()[..end]);
        }
    }
}
