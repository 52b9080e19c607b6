//! Accounts, groups, quotas and certificate subjects.

use std::collections::BTreeMap;

use axum::{Extension, extract::State as Axum};
use catalog::{Account, NewAccount, QuotaSubject};
use tracing::info;
use wire::{
    admin::{
        Code, Done,
        people::{Group, Limits, Map, NewGroup, NewUser, Quota, Subject, User},
    },
    id::{AccountName, GroupName},
};

use super::{
    State,
    door::Caller,
    extract::{Json, Path},
    refusal::{Answer, Refusal},
};

/// The longest certificate subject that is taken, in bytes.
const MAX_SUBJECT_BYTES: usize = 2048;

pub(super) async fn users(Axum(state): Axum<State>) -> Answer<Vec<User>> {
    let mut subjects: BTreeMap<AccountName, Vec<String>> = BTreeMap::new();
    for mapping in state.catalog.mappings().await? {
        subjects.entry(mapping.account).or_default().push(mapping.subject);
    }
    let users = state.catalog.accounts().await?.into_iter().map(|account| {
        let subjects = subjects.remove(&account.name).unwrap_or_default();
        let usual = state.homes.as_ref().map_or_else(|| "/".to_owned(), |homes| below(homes, &account.name));
        User {
            groups: groups_of(&account),
            account: account.name,
            admin: account.admin,
            enabled: !account.disabled,
            home: account.home.unwrap_or(usual),
            subjects,
        }
    });
    Ok(Json(users.collect()))
}

/// The home that a session of this account is given where it has none of its own.
fn below(homes: &str, account: &AccountName) -> String {
    format!("{}/{account}", homes.trim_end_matches('/'))
}

/// The primary group first.
fn groups_of(account: &Account) -> Vec<GroupName> {
    let others = account.groups.iter().filter(|group| **group != account.primary_group);
    std::iter::once(&account.primary_group).chain(others).cloned().collect()
}

pub(super) async fn put_user(
    Axum(state): Axum<State>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<AccountName>,
    Json(new): Json<NewUser>,
) -> Answer<Done> {
    let known = state.catalog.account(&name).await?;
    let groups = match (&new.groups, &known) {
        (Some(groups), _) if groups.is_empty() => {
            let text = format!("account {name} would be in no group");
            return Err(Refusal::new(Code::BadRequest, text, "name one group at least"));
        }
        (Some(groups), _) => groups.clone(),
        (None, Some(known)) => groups_of(known),
        (None, None) => vec![GroupName::new(name.as_str())?],
    };
    let subjects: Vec<String> = new.subjects.iter().map(|text| subject(text)).collect::<Result<_, _>>()?;
    let account = NewAccount {
        name: name.clone(),
        primary_group: groups[0].clone(),
        groups,
        admin: new.admin.or(known.as_ref().map(|known| known.admin)).unwrap_or(false),
        disabled: new.enabled.map(|enabled| !enabled).or(known.as_ref().map(|known| known.disabled)).unwrap_or(false),
        home: new.home.clone().or_else(|| known.as_ref().and_then(|known| known.home.clone())),
    };
    if account.home.as_ref().is_some_and(|home| !home.starts_with('/')) {
        return Err(Refusal::new(Code::BadRequest, "a home does not begin with /", "give an absolute path"));
    }
    state.catalog.put_account(account).await?;
    for subject in &subjects {
        state.catalog.map_subject(subject, &name).await?;
    }
    info!(principal = caller.name, account = %name, new = known.is_none(), "account written");
    let verb = if known.is_some() { "changed" } else { "made" };
    Ok(Json(Done::new(format!("account {name} is {verb}"))))
}

pub(super) async fn remove_user(
    Axum(state): Axum<State>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<AccountName>,
) -> Answer<Done> {
    state.catalog.remove_account(&name).await?;
    info!(principal = caller.name, account = %name, "account removed");
    Ok(Json(Done::new(format!("account {name} and its certificate mappings are removed"))))
}

pub(super) async fn groups(Axum(state): Axum<State>) -> Answer<Vec<Group>> {
    let mut groups: BTreeMap<GroupName, Vec<AccountName>> = BTreeMap::new();
    for account in state.catalog.accounts().await? {
        for group in groups_of(&account) {
            groups.entry(group).or_default().push(account.name.clone());
        }
    }
    Ok(Json(groups.into_iter().map(|(group, members)| Group { group, members }).collect()))
}

pub(super) async fn put_group(
    Axum(state): Axum<State>,
    Extension(caller): Extension<Caller>,
    Path(group): Path<GroupName>,
    Json(new): Json<NewGroup>,
) -> Answer<Done> {
    let accounts = state.catalog.accounts().await?;
    for member in &new.members {
        if !accounts.iter().any(|account| account.name == *member) {
            let text = format!("there is no account {member}");
            return Err(Refusal::new(Code::NotFound, text, "make it first: `penstock admin user add`"));
        }
    }
    for account in accounts {
        let (is_in, shall) = (account.groups.contains(&group), new.members.contains(&account.name));
        if is_in && !shall && account.primary_group == group {
            let text = format!("{group} is the primary group of {}", account.name);
            return Err(Refusal::new(Code::Conflict, text, "give the account another primary group first"));
        }
        if is_in != shall {
            set_membership(&state, account, &group, shall).await?;
        }
    }
    info!(principal = caller.name, %group, members = new.members.len(), "group written");
    Ok(Json(Done::new(format!("group {group} has {} members", new.members.len()))))
}

pub(super) async fn remove_group(
    Axum(state): Axum<State>,
    extension: Extension<Caller>,
    path: Path<GroupName>,
) -> Answer<Done> {
    put_group(Axum(state), extension, path, Json(NewGroup::default())).await
}

async fn set_membership(state: &State, account: Account, group: &GroupName, shall: bool) -> Result<(), Refusal> {
    let mut groups: Vec<GroupName> = groups_of(&account).into_iter().filter(|of| of != group).collect();
    if shall {
        groups.push(group.clone());
    }
    let changed = NewAccount {
        name: account.name,
        primary_group: account.primary_group,
        groups,
        admin: account.admin,
        disabled: account.disabled,
        home: account.home,
    };
    Ok(state.catalog.put_account(changed).await?)
}

pub(super) async fn quotas(Axum(state): Axum<State>) -> Answer<Vec<Quota>> {
    let quotas = state.catalog.usages().await?.into_iter().filter_map(|usage| {
        let QuotaSubject::Account(account) = usage.subject else { return None };
        let limits = Limits { bytes: usage.limit_bytes, files: usage.limit_files };
        Some(Quota { account, limits, used_bytes: usage.bytes, used_files: usage.files })
    });
    Ok(Json(quotas.collect()))
}

pub(super) async fn set_quota(
    Axum(state): Axum<State>,
    Extension(caller): Extension<Caller>,
    Path(account): Path<AccountName>,
    Json(limits): Json<Limits>,
) -> Answer<Done> {
    if state.catalog.account(&account).await?.is_none() {
        let text = format!("there is no account {account}");
        return Err(Refusal::new(Code::NotFound, text, "`penstock admin user list` names them"));
    }
    state.catalog.set_quota(QuotaSubject::Account(account.clone()), limits.bytes, limits.files).await?;
    info!(principal = caller.name, %account, ?limits, "quota set");
    Ok(Json(Done::new(format!("the quota of {account} is set; what it has already stays"))))
}

pub(super) async fn remove_quota(
    state: Axum<State>,
    caller: Extension<Caller>,
    account: Path<AccountName>,
) -> Answer<Done> {
    set_quota(state, caller, account, Json(Limits::default())).await
}

pub(super) async fn maps(Axum(state): Axum<State>) -> Answer<Vec<Map>> {
    let maps = state.catalog.mappings().await?.into_iter();
    Ok(Json(maps.map(|mapping| Map { subject: mapping.subject, account: mapping.account }).collect()))
}

pub(super) async fn map(
    Axum(state): Axum<State>,
    Extension(caller): Extension<Caller>,
    Json(map): Json<Map>,
) -> Answer<Done> {
    let subject = subject(&map.subject)?;
    state.catalog.map_subject(&subject, &map.account).await?;
    info!(principal = caller.name, subject, account = %map.account, "certificate mapped");
    Ok(Json(Done::new(format!("{subject} logs in as {}", map.account))))
}

pub(super) async fn unmap(
    Axum(state): Axum<State>,
    Extension(caller): Extension<Caller>,
    Json(Subject { subject }): Json<Subject>,
) -> Answer<Done> {
    state.catalog.unmap_subject(&subject).await?;
    info!(principal = caller.name, subject, "certificate not mapped any more");
    Ok(Json(Done::new(format!("{subject} is mapped to nobody any more"))))
}

fn subject(text: &str) -> Result<String, Refusal> {
    let right = text.starts_with('/') && text.contains('=') && text.len() <= MAX_SUBJECT_BYTES;
    if right && !text.chars().any(char::is_control) {
        return Ok(text.to_owned());
    }
    let shown: String = text.chars().take(100).collect();
    let step = "write it as the log shows it: /C=…/O=…/CN=…";
    Err(Refusal::new(Code::BadRequest, format!("{shown:?} is no certificate subject"), step))
}
