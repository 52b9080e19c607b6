//! What the door keeps of a bucket, an object, an upload and a part, as JSON in the catalogue. Pure.
//!
//! Fields are only ever added, each with a default, so that what an older door wrote is read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{acl::Acl, checksum::Kept};

/// Of an object.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Attributes {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content_encoding: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content_language: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content_disposition: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cache_control: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expires: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) redirect: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tags: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) acl: Option<Acl>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) checksum: Option<Kept>,
    /// How many parts it was uploaded in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parts: Option<u32>,
    /// The upload it was made by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) upload: Option<String>,
}

impl Attributes {
    /// Whether the client's own words on the object come to so many bytes at most, and are plain text: a redirect carries
    /// them in its URL.
    pub(super) fn fit_url(&self, most: usize) -> bool {
        let own = [
            &self.content_type,
            &self.content_encoding,
            &self.content_language,
            &self.content_disposition,
            &self.cache_control,
            &self.expires,
            &self.redirect,
        ];
        let own = own.into_iter().flatten();
        let texts = || own.clone().chain(self.metadata.iter().flat_map(|(name, value)| [name, value]));
        let plain = |text: &String| text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        texts().map(String::len).sum::<usize>() <= most && texts().all(plain)
    }
}

/// Of an upload in parts: what the object will have, and how its sums are made.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct UploadAttributes {
    pub(super) object: Attributes,
    pub(super) algorithm: Option<super::checksum::Algorithm>,
    /// The sum is of the whole, not of the parts' sums.
    pub(super) full_object: bool,
    pub(super) storage_class: Option<String>,
    pub(super) hold: bool,
    pub(super) retain_us: Option<i64>,
    pub(super) compliance: bool,
}

/// Of a part.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct PartAttributes {
    pub(super) checksum: Option<Kept>,
}

/// Of a part of an object.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct PartOf {
    pub(super) number: u32,
    pub(super) size: u64,
    pub(super) checksum: Option<Kept>,
}

/// Of a bucket. What is XML to clients is kept in the form it was given.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Settings {
    pub(super) acl: Option<Acl>,
    pub(super) policy: Option<String>,
    pub(super) tags: Vec<(String, String)>,
    pub(super) cors: Vec<CorsRule>,
    pub(super) lifecycle: Option<String>,
    pub(super) ownership: Option<String>,
    pub(super) public_access: Option<PublicAccess>,
    pub(super) retention: Option<DefaultRetention>,
    pub(super) requester_pays: bool,
    pub(super) location: Option<String>,
}

/// Who is kept from letting everybody in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct PublicAccess {
    pub(super) block_acls: bool,
    pub(super) ignore_acls: bool,
    pub(super) block_policy: bool,
    pub(super) restrict: bool,
}

/// How long what is written is retained, unless its writer says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct DefaultRetention {
    pub(super) compliance: bool,
    pub(super) days: Option<i32>,
    pub(super) years: Option<i32>,
}

/// From where browsers may ask.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct CorsRule {
    pub(super) id: Option<String>,
    pub(super) methods: Vec<String>,
    pub(super) origins: Vec<String>,
    pub(super) headers: Vec<String>,
    pub(super) expose: Vec<String>,
    pub(super) max_age: Option<i32>,
}

/// What a JSON text says; a text that is damaged says nothing, and the log says so.
pub(super) fn read<T: Default + for<'d> Deserialize<'d>>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_else(|error| {
        tracing::error!(%error, "attributes in the catalogue are damaged");
        T::default()
    })
}

/// As a JSON text.
pub(super) fn write<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("plain fields have a JSON form")
}
