//! Accounts, mappings, classes; on both databases.

use catalog::*;

use crate::site::*;

on_both! {
    an_account_has_its_groups_and_changes_as_a_whole;
    a_subject_means_one_account;
    an_account_that_owns_files_is_not_removed;
    classes_are_checked_before_they_are_kept;
}

fn new_account(name: &str, groups: &[&str]) -> NewAccount {
    NewAccount {
        name: account(name),
        primary_group: group("users"),
        groups: groups.iter().map(|name| group(name)).collect(),
        admin: false,
        disabled: false,
        home: Some(format!("/home/{name}")),
    }
}

async fn an_account_has_its_groups_and_changes_as_a_whole(site: Site) {
    site.catalog.put_account(new_account("alice", &["physics", "users"])).await.expect("made");
    site.catalog.put_account(NewAccount { admin: true, ..new_account("bob", &[]) }).await.expect("made");
    let alice = site.catalog.account(&account("alice")).await.expect("an answer").expect("alice");
    assert_eq!(alice.groups, [group("physics"), group("users")]);
    assert_eq!((alice.admin, alice.home.as_deref()), (false, Some("/home/alice")));
    site.catalog.put_account(NewAccount { disabled: true, ..new_account("alice", &[]) }).await.expect("changed");
    let all = site.catalog.accounts().await.expect("accounts");
    let seen: Vec<_> = all.iter().map(|one| (one.name.as_str(), one.groups.len(), one.disabled, one.admin)).collect();
    assert_eq!(seen, [("alice", 1, true, false), ("bob", 1, false, true)]);
    assert_eq!(site.catalog.account(&account("carol")).await.expect("an answer"), None);
}

async fn a_subject_means_one_account(site: Site) {
    let subject = "/DC=org/DC=example/CN=Alice";
    assert!(matches!(
        site.catalog.map_subject(subject, &account("alice")).await,
        Err(CatalogError::NotFound { what: "account", .. })
    ));
    site.catalog.put_account(new_account("alice", &[])).await.expect("made");
    site.catalog.put_account(new_account("bob", &["physics"])).await.expect("made");
    site.catalog.map_subject(subject, &account("alice")).await.expect("mapped");
    site.catalog.map_subject(subject, &account("bob")).await.expect("mapped anew");
    let found = site.catalog.account_of_subject(subject).await.expect("an answer").expect("bob");
    assert_eq!((found.name, found.groups.len()), (account("bob"), 2));
    assert_eq!(site.catalog.account_of_subject("/CN=Nobody").await.expect("an answer"), None);
    assert_eq!(site.catalog.mappings().await.expect("mappings").len(), 1);
    site.catalog.unmap_subject(subject).await.expect("unmapped");
    assert!(matches!(site.catalog.unmap_subject(subject).await, Err(CatalogError::NotFound { .. })));
}

async fn an_account_that_owns_files_is_not_removed(site: Site) {
    site.catalog.put_account(new_account("alice", &[])).await.expect("made");
    site.catalog.map_subject("/CN=Alice", &account("alice")).await.expect("mapped");
    let file = site.publish(ROOT, "file", 10).await;
    let refused = site.catalog.remove_account(&account("alice")).await;
    assert!(matches!(refused, Err(CatalogError::InUse { .. })));
    site.catalog.delete_file(file.entry, None).await.expect("deleted");
    site.catalog.remove_account(&account("alice")).await.expect("removed");
    assert!(site.catalog.mappings().await.expect("mappings").is_empty());
    assert!(matches!(site.catalog.remove_account(&account("alice")).await, Err(CatalogError::NotFound { .. })));
    let usages = site.catalog.usages().await.expect("usages");
    assert!(usages.iter().all(|usage| usage.files == 0));
}

async fn classes_are_checked_before_they_are_kept(site: Site) {
    let known = site.catalog.policies().await.expect("policies");
    let mut class = known.class(&cos("dual")).expect("dual").clone();
    class.copies = 3;
    let too_many = Policies { classes: vec![class.clone()], ..Policies::default() };
    assert!(matches!(site.catalog.put_policies(too_many).await, Err(CatalogError::Inconsistent { .. })));
    class.copies = 1;
    class.hierarchy = "nowhere".to_owned();
    let nowhere = Policies { classes: vec![class.clone()], ..Policies::default() };
    assert!(matches!(site.catalog.put_policies(nowhere).await, Err(CatalogError::NotFound { .. })));
    class.hierarchy = "standard".to_owned();
    site.catalog.put_policies(Policies { classes: vec![class.clone()], ..Policies::default() }).await.expect("kept");
    let now = site.catalog.policies().await.expect("policies");
    assert_eq!((now.classes.len(), now.class(&cos("dual"))), (3, Some(&class)));
    assert_eq!(now.storage_classes, known.storage_classes);
}
