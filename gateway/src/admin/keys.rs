//! Access keys of accounts. A secret is shown once, to whoever makes the key.

use axum::{Extension, extract::State as Axum};
use catalog::AccessKey;
use serde::Deserialize;
use tracing::info;
use wire::{
    admin::{
        Code, Done,
        people::{Direct, Key, NewKey, SecretKey, SetKey},
    },
    id::AccountName,
};

use super::{
    State,
    door::Caller,
    extract::{Json, Path, Query},
    refusal::{Answer, Refusal},
};
use crate::s3::secrets::new_key;

/// Whose keys are wanted.
#[derive(Debug, Deserialize)]
pub(super) struct Of {
    account: Option<AccountName>,
}

pub(super) async fn list(Axum(state): Axum<State>, Query(of): Query<Of>) -> Answer<Vec<Key>> {
    let keys = state.catalog.access_keys(of.account.as_ref()).await?;
    let shown = |key: AccessKey| Key {
        key: key.id,
        account: key.account,
        enabled: !key.disabled,
        created_us: key.created.0,
        direct: direct(key.direct),
    };
    Ok(Json(keys.into_iter().map(shown).collect()))
}

pub(super) async fn create(
    Axum(state): Axum<State>,
    Extension(caller): Extension<Caller>,
    Json(new): Json<NewKey>,
) -> Answer<SecretKey> {
    let made = make(&state, &new.account, kept(new.direct)).await?;
    info!(principal = caller.name, account = %new.account, key = made.key, "access key made");
    Ok(Json(made))
}

/// The word for what the catalogue keeps of a key.
const fn direct(kept: Option<bool>) -> Direct {
    match kept {
        None => Direct::Auto,
        Some(true) => Direct::On,
        Some(false) => Direct::Off,
    }
}

/// What the catalogue keeps for a word.
const fn kept(direct: Direct) -> Option<bool> {
    match direct {
        Direct::Auto => None,
        Direct::On => Some(true),
        Direct::Off => Some(false),
    }
}

async fn make(state: &State, account: &AccountName, direct: Option<bool>) -> Result<SecretKey, Refusal> {
    let Some(sealer) = &state.sealer else {
        let step = "set [s3] listen in the gateway's configuration, and start it again";
        return Err(Refusal::new(Code::Unsupported, "this gateway has no S3 door", step));
    };
    let no_bytes =
        |error: std::io::Error| Refusal::new(Code::Internal, error.to_string(), "look into the system's log");
    let (key, secret) = new_key().map_err(no_bytes)?;
    let new = AccessKey {
        id: key.clone(),
        account: account.clone(),
        sealed: sealer.seal(&key, secret.expose()),
        disabled: false,
        created: state.catalog.now(),
        direct,
    };
    state.catalog.add_access_key(new).await?;
    Ok(SecretKey { key, account: account.clone(), secret: secret.expose().clone() })
}

pub(super) async fn change(
    Axum(state): Axum<State>,
    Extension(caller): Extension<Caller>,
    Path((key, what)): Path<(String, String)>,
) -> Answer<serde_json::Value> {
    let known = state.catalog.access_key(&key).await?;
    let known = known.ok_or_else(|| {
        let step = "`penstock admin key list` names them";
        Refusal::new(Code::NotFound, format!("there is no access key {key}"), step)
    })?;
    let shown = |value: Result<serde_json::Value, serde_json::Error>| {
        value.map(Json).map_err(|error| Refusal::new(Code::Internal, error.to_string(), "tell the operator"))
    };
    info!(principal = caller.name, account = %known.account, key, what, "access key changed");
    match what.as_str() {
        "disable" | "enable" => {
            state.catalog.disable_access_key(&key, what == "disable").await?;
            shown(serde_json::to_value(Done::new(format!("access key {key} is {what}d"))))
        }
        // The old one works until it is disabled, so that clients can be changed one after the other.
        "rotate" => shown(serde_json::to_value(make(&state, &known.account, known.direct).await?)),
        other => {
            let text = format!("an access key cannot be told to {other}");
            Err(Refusal::new(Code::NotFound, text, "say disable, enable or rotate"))
        }
    }
}

pub(super) async fn set(
    Axum(state): Axum<State>,
    Extension(caller): Extension<Caller>,
    Path(key): Path<String>,
    Json(set): Json<SetKey>,
) -> Answer<Done> {
    let Some(direct) = set.direct else {
        return Err(Refusal::new(Code::BadRequest, "nothing of the key is to change", "say what: direct"));
    };
    state.catalog.direct_access_key(&key, kept(direct)).await?;
    info!(principal = caller.name, key, direct = direct.as_str(), "access key changed");
    let done = match direct {
        Direct::Auto => "clients that are known to follow are sent to movers",
        Direct::On => "every client is sent to movers for bytes",
        Direct::Off => "no client is sent to movers",
    };
    Ok(Json(Done::new(format!("access key {key}: {done}"))))
}

pub(super) async fn remove(
    Axum(state): Axum<State>,
    Extension(caller): Extension<Caller>,
    Path(key): Path<String>,
) -> Answer<Done> {
    state.catalog.remove_access_key(&key).await?;
    info!(principal = caller.name, key, "access key removed");
    Ok(Json(Done::new(format!("access key {key} is removed"))))
}
