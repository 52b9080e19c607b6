//! What principals may see and do, over a real catalogue.

use catalog::{Base, Expected, NewAccount, NewFile, ROOT, Twins};
use wire::{
    checksum::{Algorithm, Sums},
    id::{AccountName, CosName, StorageClassName},
};

use super::*;
use crate::{
    config::{self, Config},
    identity::Identities,
};

struct Tree {
    files: Files,
    catalog: Catalog,
    root: Principal,
    alice: Principal,
    bob: Principal,
    folder: tempfile::TempDir,
}

fn principal(name: &str, groups: &[&str], admin: bool) -> Principal {
    Principal {
        account: AccountName::new(name).expect("a good name"),
        groups: groups.iter().map(|group| GroupName::new(*group).expect("a good name")).collect(),
        admin,
        subject: format!("/CN={name}"),
        home: None,
    }
}

fn path(text: &str) -> TreePath {
    Files::path(&TreePath::root(), text).expect("a good path")
}

async fn tree() -> Tree {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("catalogue.db").display());
    let catalog = Catalog::open(&url, catalog::Options::default()).await.expect("a catalogue");
    catalog.put_policies(config::policies(&Config::default())).await.expect("policies");
    let tree = Tree {
        files: Files::new(catalog.clone()),
        catalog,
        root: principal("root", &["wheel"], true),
        alice: principal("alice", &["users", "physics"], false),
        bob: principal("bob", &["users"], false),
        folder,
    };
    for (directory, owner, mode) in [("/alice", &tree.alice, 0o750), ("/open", &tree.root, 0o777)] {
        tree.files.make_directory(&tree.root, &path(directory)).await.expect("made");
        let owner = Change::Owner(owner.account.clone());
        tree.files.change(&tree.root, &path(directory), owner).await.expect("given");
        tree.files.change(&tree.root, &path(directory), Change::Mode(mode)).await.expect("set");
    }
    tree
}

impl Tree {
    /// An empty file of this principal.
    async fn touch(&self, who: &Principal, at: &str) {
        let target = self.files.target(who, &path(at)).await.expect("a target");
        let file = NewFile {
            parent: target.parent,
            name: target.name,
            expected: Expected::Any,
            twins: Twins::Refuse,
            owner: who.account.clone(),
            group: target.group,
            mode: target.mode,
            acl: None,
            replace_attributes: false,
            modified: None,
            cos: CosName::new("disk").expect("a good name"),
            storage_class: StorageClassName::new("disk").expect("a good name"),
            size_bytes: 0,
            sums: Sums::EMPTY,
            base: Base::Empty,
            segments: Vec::new(),
        };
        self.catalog.publish(file).await.expect("published");
    }
}

fn kind<T: std::fmt::Debug>(result: Result<T, Failure>) -> FailureKind {
    result.expect_err("refused").kind()
}

#[tokio::test]
async fn whoever_may_not_pass_a_directory_does_not_learn_what_is_in_it() {
    let tree = tree().await;
    tree.touch(&tree.alice, "/alice/a").await;
    let there = tree.files.stat(&tree.bob, &path("/alice/a")).await.expect_err("refused");
    let not_there = tree.files.stat(&tree.bob, &path("/alice/b")).await.expect_err("refused");
    assert_eq!((there.kind(), &there), (FailureKind::PermissionDenied, &not_there));
    assert!(there.message().contains("/alice") && !there.message().contains("/alice/"), "{there}");
    assert_eq!(kind(tree.files.delete(&tree.bob, &path("/alice/a")).await), FailureKind::PermissionDenied);
    assert_eq!(kind(tree.files.target(&tree.bob, &path("/alice/new")).await), FailureKind::PermissionDenied);
    assert_eq!(kind(tree.files.list(&tree.bob, &path("/alice"), None, 10).await), FailureKind::PermissionDenied);
    assert_eq!(kind(tree.files.stat(&tree.alice, &path("/alice/b")).await), FailureKind::NotFound);
    tree.files.stat(&tree.root, &path("/alice/a")).await.expect("an administrator may");
}

#[tokio::test]
async fn groups_others_and_lists_get_what_the_bits_and_the_list_say() {
    let tree = tree().await;
    tree.files.change(&tree.alice, &path("/alice"), Change::Mode(0o711)).await.expect("set");
    tree.touch(&tree.alice, "/alice/a").await;
    tree.files.readable(&tree.bob, &path("/alice/a")).await.expect("others may read");
    tree.files.change(&tree.alice, &path("/alice/a"), Change::Mode(0o640)).await.expect("set");
    tree.files.readable(&tree.bob, &path("/alice/a")).await.expect("its group may read");
    tree.files.change(&tree.alice, &path("/alice/a"), Change::Mode(0o600)).await.expect("set");
    assert_eq!(kind(tree.files.readable(&tree.bob, &path("/alice/a")).await), FailureKind::PermissionDenied);
    let list = Change::Acl("user:bob:r--".to_owned());
    tree.files.change(&tree.alice, &path("/alice/a"), list).await.expect("set");
    tree.files.readable(&tree.bob, &path("/alice/a")).await.expect("the list says so");
    assert_eq!(kind(tree.files.target(&tree.bob, &path("/alice/a")).await), FailureKind::PermissionDenied);
    let mine = Change::Mode(0o666);
    assert_eq!(kind(tree.files.change(&tree.bob, &path("/alice/a"), mine).await), FailureKind::PermissionDenied);
    let wheel = Change::Group(GroupName::new("wheel").expect("a good name"));
    assert_eq!(kind(tree.files.change(&tree.alice, &path("/alice/a"), wheel).await), FailureKind::PermissionDenied);
}

#[tokio::test]
async fn in_a_sticky_directory_everybody_removes_their_own_only() {
    let tree = tree().await;
    tree.files.change(&tree.root, &path("/open"), Change::Mode(0o1777)).await.expect("set");
    tree.touch(&tree.alice, "/open/a").await;
    assert_eq!(kind(tree.files.delete(&tree.bob, &path("/open/a")).await), FailureKind::PermissionDenied);
    assert_eq!(
        kind(tree.files.rename(&tree.bob, &path("/open/a"), &path("/open/b")).await),
        FailureKind::PermissionDenied
    );
    tree.files.delete(&tree.alice, &path("/open/a")).await.expect("her own");
}

#[tokio::test]
async fn what_is_made_in_a_set_group_id_directory_gets_its_group() {
    let tree = tree().await;
    let physics = GroupName::new("physics").expect("a good name");
    tree.files.change(&tree.alice, &path("/alice"), Change::Group(physics.clone())).await.expect("hers");
    tree.files.change(&tree.alice, &path("/alice"), Change::Mode(0o2770)).await.expect("set");
    let made = tree.files.make_directory(&tree.alice, &path("/alice/d")).await.expect("made");
    assert_eq!((&made.entry.group, made.entry.mode), (&physics, 0o2755));
    assert_eq!(tree.files.target(&tree.alice, &path("/alice/f")).await.expect("a target").group, physics);
    assert_eq!(tree.files.target(&tree.alice, &path("/open/f")).await.expect("a target").group.as_str(), "users");
}

#[tokio::test]
async fn names_are_made_moved_and_removed_as_one_expects() {
    let tree = tree().await;
    let (files, alice) = (&tree.files, &tree.alice);
    tree.touch(alice, "/alice/a").await;
    assert_eq!(kind(files.make_directory(alice, &path("/alice/a")).await), FailureKind::Exists);
    assert_eq!(kind(files.remove_directory(alice, &path("/alice/a")).await), FailureKind::NotADirectory);
    files.make_directory(alice, &path("/alice/d")).await.expect("made");
    assert_eq!(kind(files.delete(alice, &path("/alice/d")).await), FailureKind::IsADirectory);
    assert_eq!(kind(files.rename(alice, &path("/alice/a"), &path("/alice/d")).await), FailureKind::Exists);
    files.rename(alice, &path("/alice/a"), &path("/alice/d/b")).await.expect("moved");
    assert_eq!(kind(files.remove_directory(alice, &path("/alice/d")).await), FailureKind::NotEmpty);
    assert_eq!(kind(files.stat(alice, &path("/alice/d/b/c")).await), FailureKind::NotADirectory);
    assert_eq!(kind(files.readable(alice, &path("/alice/d/b/")).await), FailureKind::NotADirectory);
    files.delete(alice, &path("/alice/d/b")).await.expect("deleted");
    files.remove_directory(alice, &path("/alice/d")).await.expect("removed");
    assert_eq!(kind(files.remove_directory(&tree.root, &path("/")).await), FailureKind::BadArgument);
}

#[tokio::test]
async fn a_sum_that_is_not_kept_is_refused_with_those_that_are() {
    let tree = tree().await;
    tree.touch(&tree.alice, "/alice/a").await;
    let at = path("/alice/a");
    let sum = tree.files.checksum(&tree.alice, &at, Algorithm::Adler32, None).await.expect("kept");
    assert_eq!(sum, "00000001");
    let refused = tree.files.checksum(&tree.alice, &at, Algorithm::Md5, None).await.expect_err("not kept");
    assert!(refused.message().contains("ADLER32, CRC32C"), "{refused}");
    let part = Some(ByteRange::new(0, 5).expect("small"));
    assert_eq!(kind(tree.files.checksum(&tree.alice, &at, Algorithm::Crc32c, part).await), FailureKind::Unsupported);
}

#[tokio::test]
async fn doors_stay_below_what_is_exported() {
    let tree = tree().await;
    let names = NamesConfig { export: "/alice/data".to_owned(), homes: Some("/people".to_owned()), umask: 0o027 };
    let files = Files::exported(tree.catalog.clone(), &names).expect("good names");
    files.prepare().await.expect("prepared");
    assert_eq!(kind(files.stat(&tree.root, &path("/../../open")).await), FailureKind::NotFound);
    let home = files.home(&tree.alice).await.expect("a home");
    assert_eq!(home.to_string(), "/people/alice");
    let made = tree.files.stat(&tree.root, &path("/alice/data/people/alice")).await.expect("made");
    assert_eq!((made.entry.owner.as_str(), made.entry.mode), ("alice", 0o750));
}

#[tokio::test]
async fn a_subject_is_an_account_by_the_catalogue_first_and_by_the_grid_mapfile_then() {
    let tree = tree().await;
    for name in ["alice", "bob"] {
        let new = NewAccount {
            name: AccountName::new(name).expect("a good name"),
            primary_group: GroupName::new("users").expect("a good name"),
            groups: vec![GroupName::new("physics").expect("a good name")],
            admin: false,
            disabled: name == "bob",
            home: None,
        };
        tree.catalog.put_account(new).await.expect("made");
    }
    let map = tree.folder.path().join("grid-mapfile");
    std::fs::write(&map, "\"/CN=A\" bob\n\"/CN=F\" alice\n\"/CN=N\" nobody\n").expect("written");
    let identities = Identities::new(tree.catalog.clone(), Some(map));
    let alice = AccountName::new("alice").expect("a good name");
    tree.catalog.map_subject("/CN=A", &alice).await.expect("mapped");
    let who = identities.principal("/CN=A", None).await.expect("by the catalogue");
    assert_eq!((who.account.as_str(), who.primary_group().as_str(), who.groups.len()), ("alice", "users", 2));
    assert_eq!(identities.principal("/CN=F", None).await.expect("by the file").account, alice);
    let unmapped = identities.principal("/CN=X", None).await.expect_err("nobody");
    assert!(unmapped.message().contains("/CN=X") && unmapped.message().contains("penstock admin map"), "{unmapped}");
    let unknown = identities.principal("/CN=N", None).await.expect_err("no such account");
    assert!(unknown.message().contains("nobody"), "{unknown}");
    let other = AccountName::new("bob").expect("a good name");
    assert_eq!(kind(identities.principal("/CN=A", Some(&other)).await), FailureKind::NotLoggedIn);
    tree.catalog.map_subject("/CN=B", &other).await.expect("mapped");
    assert!(identities.principal("/CN=B", None).await.expect_err("disabled").message().contains("disabled"));
}

#[tokio::test]
async fn the_root_is_where_it_is() {
    let tree = tree().await;
    let item = tree.files.stat(&tree.alice, &TreePath::root()).await.expect("there");
    assert_eq!((item.entry.id, item.removable), (ROOT, false));
}

#[tokio::test]
async fn whoever_waits_for_bytes_hears_of_every_name_that_loses_them() {
    let tree = tree().await;
    let told = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let files = {
        let told = told.clone();
        tree.files.clone().telling(move || {
            told.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        })
    };
    let count = || told.load(std::sync::atomic::Ordering::Relaxed);
    for name in ["a", "b", "c"] {
        tree.touch(&tree.alice, &format!("/alice/{name}")).await;
    }
    files.rename(&tree.alice, &path("/alice/a"), &path("/alice/d")).await.expect("renamed");
    assert_eq!(count(), 0, "a file of another name has its bytes still");
    files.rename(&tree.alice, &path("/alice/d"), &path("/alice/b")).await.expect("renamed");
    assert_eq!(count(), 1, "what was there was replaced");
    files.delete(&tree.alice, &path("/alice/c")).await.expect("deleted");
    assert_eq!(count(), 2);
    files.delete(&tree.alice, &path("/alice/c")).await.expect_err("gone");
    assert_eq!(count(), 2);
}

#[tokio::test]
async fn a_home_of_the_accounts_own_is_made_at_the_first_login_where_there_is_a_place_for_it() {
    let tree = tree().await;
    let at = |home: &str| Principal { home: Some(home.to_owned()), ..tree.alice.clone() };
    assert_eq!(tree.files.home(&at("/open/lab")).await.expect("a home").to_string(), "/open/lab");
    let made = tree.files.stat(&tree.root, &path("/open/lab")).await.expect("made");
    assert_eq!(made.entry.owner, tree.alice.account);
    assert_eq!(tree.files.home(&at("/nowhere/at/all")).await.expect("passed over").to_string(), "/");
}
