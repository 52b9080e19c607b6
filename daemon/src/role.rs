//! Which part of a site a verified certificate of the site's own authority stands for.
//!
//! Owns the meaning of names under the site's authority. Pure. Never reads a role from a proxy,
//! nor from a name of any other shape.
//!
//! Invariant: only identities judged by a trust that holds nothing but the site's own authority
//! may be asked for a role. Any other authority could write the same name.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::trust::Identity;

/// What a site's own certificate makes its holder.
///
/// Written as the organisational unit of the subject: `/O=Penstock site NAME/OU=mover/CN=m1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Plans transfers and tells movers what to do.
    Gateway,
    /// Holds data.
    Mover,
    /// May use the admin door.
    Admin,
}

/// What the organisation of a site's certificates begins with.
pub(crate) const ORGANISATION: &str = "Penstock site ";

impl Role {
    /// Its organisational unit.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Mover => "mover",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.unit())
    }
}

/// A part of this site at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SitePeer {
    /// The site's name.
    pub site: String,
    /// What it is.
    pub role: Role,
    /// Its name in the site: the mover's, the gateway's, the administrator's.
    pub name: String,
}

impl SitePeer {
    /// Reads the role out of a verified identity; `None` if it has none.
    ///
    /// The identity must come from a trust that holds only the site's own authority.
    #[must_use]
    pub fn of(identity: &Identity) -> Option<Self> {
        let [organisation, unit, name] = identity.attributes.as_slice() else {
            return None;
        };
        let right_shape = organisation.kind == "O" && unit.kind == "OU" && name.kind == "CN" && !identity.is_proxy();
        let role = [Role::Gateway, Role::Mover, Role::Admin].into_iter().find(|role| role.unit() == unit.value)?;
        let site = organisation.value.strip_prefix(ORGANISATION)?;
        right_shape.then(|| Self { site: site.to_owned(), role, name: name.value.clone() })
    }
}

impl fmt::Display for SitePeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.role, self.name)
    }
}
