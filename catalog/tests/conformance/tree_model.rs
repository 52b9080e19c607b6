//! Random changes of the tree against a map of keys, from a printed seed; on both databases.

use std::collections::BTreeMap;

use catalog::*;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use wire::id::EntryId;

use crate::site::*;

on_both! {
    the_tree_is_the_map_of_its_keys_whatever_happens;
}

/// Keys below the root in S3's order: a directory's ends in `/`.
type Model = BTreeMap<String, EntryId>;

const STEPS: usize = 150;
const NAMES: [&str; 7] = ["a", "a.b", "a0", "b", "", "é", "a-"];

async fn the_tree_is_the_map_of_its_keys_whatever_happens(site: Site) {
    let seed: u64 = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    println!("SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut model = Model::new();
    for step in 0..STEPS {
        change(&site, &mut model, &mut random).await;
        if step % 10 == 0 {
            compare(&site, &model, &mut random).await;
        }
    }
    compare(&site, &model, &mut random).await;
}

async fn change(site: &Site, model: &mut Model, random: &mut StdRng) {
    let directories: Vec<_> = model.iter().filter(|(key, _)| key.ends_with('/')).collect();
    let root = (&String::new(), &ROOT);
    let (prefix, &parent) = *directories.choose(random).filter(|_| random.random_bool(0.8)).unwrap_or(&root);
    let (prefix, name) = (prefix.clone(), *NAMES.choose(random).expect("names"));
    let victim = model.iter().nth(random.random_range(0..model.len().max(1))).map(|(key, id)| (key.clone(), *id));
    match (random.random_range(0..10), victim) {
        (0..=3, _) if name.is_empty() => {
            let file = site.file(parent, name, 1).await;
            assert!(matches!(site.catalog.publish(file).await, Err(CatalogError::InvalidName { .. })));
        }
        (0..=3, _) => {
            let mut file = site.file(parent, name, 1).await;
            file.twins = Twins::Allow;
            let published = site.catalog.publish(file).await.expect("a file");
            let old = model.insert(format!("{prefix}{name}"), published.entry);
            assert!(old.is_none_or(|old| old == published.entry), "a rewrite keeps the entry");
        }
        (4..=5, _) => {
            let made =
                site.catalog.make_directory(NewDirectory { twins: Twins::Allow, ..new_directory(parent, name) }).await;
            let key = format!("{prefix}{name}/");
            match made {
                Ok(entry) => assert_eq!(model.insert(key, entry.id), None),
                Err(CatalogError::Exists { .. }) => assert!(model.contains_key(&key)),
                Err(other) => panic!("{other}"),
            }
        }
        (6, Some((key, id))) => remove(site, model, key, id).await,
        (7..=9, Some((key, id))) => rename(site, model, (key, id), (prefix, parent), name).await,
        _ => {}
    }
}

async fn remove(site: &Site, model: &mut Model, key: String, id: EntryId) {
    if !key.ends_with('/') {
        site.catalog.delete_file(id, None).await.expect("deleted");
        model.remove(&key);
        return;
    }
    let empty = !model.keys().any(|other| other.starts_with(&key) && *other != key);
    match site.catalog.remove_directory(id).await {
        Ok(()) => {
            assert!(empty);
            model.remove(&key);
        }
        Err(CatalogError::NotEmpty { .. }) => assert!(!empty),
        Err(other) => panic!("{other}"),
    }
}

async fn rename(site: &Site, model: &mut Model, from: (String, EntryId), to: (String, EntryId), name: &str) {
    let ((key, id), (prefix, parent)) = (from, to);
    let directory = key.ends_with('/');
    let new_key = format!("{prefix}{name}{}", if directory { "/" } else { "" });
    let into_itself = directory && prefix.starts_with(&key);
    let taken = new_key != key && model.contains_key(&new_key);
    let wish = Rename { entry: id, to_parent: parent, to_name: name.to_owned(), replace: true, twins: Twins::Allow };
    match site.catalog.rename(wish).await {
        Ok(_) => {
            assert!(!(into_itself || directory && taken), "{key:?} to {new_key:?}");
            let below: Vec<_> = model.keys().filter(|other| directory && other.starts_with(&key)).cloned().collect();
            let moved: Vec<_> = if directory { below } else { vec![key.clone()] };
            let moved: Vec<_> = moved.into_iter().filter_map(|old| model.remove(&old).map(|id| (old, id))).collect();
            model.extend(moved.into_iter().map(|(old, id)| (format!("{new_key}{}", &old[key.len()..]), id)));
        }
        Err(CatalogError::InvalidName { .. }) => assert!(!directory && name.is_empty()),
        Err(CatalogError::IntoItself { .. }) => assert!(into_itself, "{key:?} to {new_key:?}"),
        Err(CatalogError::Exists { .. }) => assert!(directory && taken, "{key:?} to {new_key:?}"),
        Err(other) => panic!("{key:?} to {new_key:?}: {other}"),
    }
}

/// Walks everything, from the middle, and by prefix, and follows one path.
async fn compare(site: &Site, model: &Model, random: &mut StdRng) {
    let walk = async |after: Option<String>, prefix: &str, limit: u32| {
        let (mut keys, mut listing) = (Vec::new(), Listing { after, prefix: prefix.to_owned(), limit });
        loop {
            let page = site.catalog.walk(ROOT, &listing).await.expect("a walk");
            keys.extend(page.items.into_iter().map(|walked| (walked.key, walked.entry.id)));
            match page.next {
                Some(next) => listing.after = Some(next),
                None => return keys,
            }
        }
    };
    let all: Vec<_> = model.iter().map(|(key, id)| (key.clone(), *id)).collect();
    assert_eq!(walk(None, "", random.random_range(1..20)).await, all);
    let Some((middle, id)) = all.choose(random) else { return };
    let behind: Vec<_> = all.iter().filter(|(key, _)| key > middle).cloned().collect();
    assert_eq!(walk(Some(middle.clone()), "", 7).await, behind, "behind {middle:?}");
    let cut = middle.char_indices().map(|(at, _)| at).collect::<Vec<_>>();
    let prefix = &middle[..*cut.choose(random).unwrap_or(&0)];
    let begins: Vec<_> = all.iter().filter(|(key, _)| key.starts_with(prefix)).cloned().collect();
    assert_eq!(walk(None, prefix, 5).await, begins, "with {prefix:?}");
    let both: Vec<_> = begins.into_iter().filter(|(key, _)| key > middle).collect();
    assert_eq!(walk(Some(middle.clone()), prefix, 5).await, both, "with {prefix:?} behind {middle:?}");
    let found =
        site.catalog.resolve(&TreePath::key(&TreePath::root(), middle).expect("a key")).await.expect("an answer");
    assert_eq!(found.entry().expect("what the model has").id, *id, "{middle:?}");
}
