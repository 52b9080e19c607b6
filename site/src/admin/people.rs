//! Accounts, groups, quotas, certificate subjects.

use hyper::Method;
use wire::admin::{
    Done,
    people::{Group, Key, Limits, Map, NewGroup, NewKey, NewUser, Quota, SecretKey, SetKey, Subject, User},
};

use super::{
    AdminError, Connection, Output,
    command::{GroupCommand, KeyCommand, MapCommand, PeopleCommand, QuotaCommand, UserCommand},
    show::{bytes, list, or_dash, table},
};

pub(super) async fn run(command: PeopleCommand, connection: &mut Connection, output: Output) -> Result<(), AdminError> {
    match command {
        PeopleCommand::User(UserCommand::List) => output.print(&connection.get("/v1/users").await?, show_users),
        PeopleCommand::User(UserCommand::Set { account, groups, home, admin, enabled, subject }) => {
            let user = NewUser { groups, home, admin, enabled, subjects: subject };
            change(connection, output, Method::PUT, &format!("/v1/users/{account}"), &user).await
        }
        PeopleCommand::User(UserCommand::Remove { account }) => {
            change(connection, output, Method::DELETE, &format!("/v1/users/{account}"), &()).await
        }
        PeopleCommand::Group(GroupCommand::List) => output.print(&connection.get("/v1/groups").await?, show_groups),
        PeopleCommand::Group(GroupCommand::Set { group, members }) => {
            change(connection, output, Method::PUT, &format!("/v1/groups/{group}"), &NewGroup { members }).await
        }
        PeopleCommand::Group(GroupCommand::Remove { group }) => {
            change(connection, output, Method::DELETE, &format!("/v1/groups/{group}"), &()).await
        }
        PeopleCommand::Quota(QuotaCommand::List) => output.print(&connection.get("/v1/quotas").await?, show_quotas),
        PeopleCommand::Quota(QuotaCommand::Set { account, bytes, files }) => {
            let limits = Limits { bytes: bytes.map(daemon::config::ByteSize::bytes), files };
            change(connection, output, Method::PUT, &format!("/v1/quotas/{account}"), &limits).await
        }
        PeopleCommand::Quota(QuotaCommand::Remove { account }) => {
            change(connection, output, Method::DELETE, &format!("/v1/quotas/{account}"), &()).await
        }
        PeopleCommand::Key(command) => keys(command, connection, output).await,
        PeopleCommand::Map(MapCommand::List) => output.print(&connection.get("/v1/maps").await?, show_maps),
        PeopleCommand::Map(MapCommand::Add { subject, account }) => {
            change(connection, output, Method::POST, "/v1/maps", &Map { subject, account }).await
        }
        PeopleCommand::Map(MapCommand::Remove { subject }) => {
            change(connection, output, Method::DELETE, "/v1/maps", &Subject { subject }).await
        }
    }
}

async fn keys(command: KeyCommand, connection: &mut Connection, output: Output) -> Result<(), AdminError> {
    let secret = |made: &SecretKey| format!("access key {}\nsecret     {}", made.key, made.secret);
    match command {
        KeyCommand::List { account } => {
            let of = account.map(|account| format!("?account={account}")).unwrap_or_default();
            let keys: Vec<Key> = connection.get(&format!("/v1/keys{of}")).await?;
            output.print(&keys, show_keys)
        }
        KeyCommand::Create { account, direct } => {
            let made = connection.send(Method::POST, "/v1/keys", &NewKey { account, direct }).await?;
            output.print(&made, secret)
        }
        KeyCommand::Rotate { key } => {
            let made = connection.send(Method::POST, &format!("/v1/keys/{key}/rotate"), &()).await?;
            output.print(&made, secret)
        }
        KeyCommand::Set { key, direct } => {
            let set = SetKey { direct: Some(direct) };
            change(connection, output, Method::PUT, &format!("/v1/keys/{key}"), &set).await
        }
        KeyCommand::Disable { key } => {
            change(connection, output, Method::POST, &format!("/v1/keys/{key}/disable"), &()).await
        }
        KeyCommand::Enable { key } => {
            change(connection, output, Method::POST, &format!("/v1/keys/{key}/enable"), &()).await
        }
        KeyCommand::Remove { key } => change(connection, output, Method::DELETE, &format!("/v1/keys/{key}"), &()).await,
    }
}

#[allow(clippy::ptr_arg, reason = "the answer's own type")]
fn show_keys(keys: &Vec<Key>) -> String {
    let state = |key: &Key| if key.enabled { "enabled" } else { "disabled" }.to_owned();
    table(
        ["account", "access key", "state", "direct"],
        keys.iter().map(|key| [key.account.to_string(), key.key.clone(), state(key), key.direct.as_str().to_owned()]),
    )
}

async fn change(
    connection: &mut Connection,
    output: Output,
    method: Method,
    path: &str,
    body: &impl serde::Serialize,
) -> Result<(), AdminError> {
    let done: Done = connection.send(method, path, body).await?;
    output.print(&done, |done| done.message.clone())
}

#[allow(clippy::ptr_arg, reason = "the answer's own type")]
fn show_users(users: &Vec<User>) -> String {
    table(
        ["account", "groups", "may", "home", "certificates"],
        users.iter().map(|user| {
            let may = match (user.enabled, user.admin) {
                (false, _) => "not log in",
                (true, true) => "administer",
                (true, false) => "log in",
            };
            [user.account.to_string(), list(&user.groups), may.to_owned(), user.home.clone(), list(&user.subjects)]
        }),
    )
}

#[allow(clippy::ptr_arg, reason = "the answer's own type")]
fn show_groups(groups: &Vec<Group>) -> String {
    table(["group", "members"], groups.iter().map(|group| [group.group.to_string(), list(&group.members)]))
}

#[allow(clippy::ptr_arg, reason = "the answer's own type")]
fn show_quotas(quotas: &Vec<Quota>) -> String {
    table(
        ["account", "used ", "of ", "files ", "of "],
        quotas.iter().map(|quota| {
            [
                quota.account.to_string(),
                bytes(quota.used_bytes),
                or_dash(quota.limits.bytes.map(bytes)),
                quota.used_files.to_string(),
                or_dash(quota.limits.files),
            ]
        }),
    )
}

#[allow(clippy::ptr_arg, reason = "the answer's own type")]
fn show_maps(maps: &Vec<Map>) -> String {
    table(["certificate", "account"], maps.iter().map(|map| [map.subject.clone(), map.account.to_string()]))
}
