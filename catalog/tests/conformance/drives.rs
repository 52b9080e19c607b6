//! Drives that are out of use; on both databases.

use wire::id::DriveId;

use crate::site::*;

on_both! {
    a_drive_that_is_out_of_use_stays_so_until_it_is_put_into_use;
}

async fn a_drive_that_is_out_of_use_stays_so_until_it_is_put_into_use(site: Site) {
    let drive = |name: &str| DriveId::new(name).expect("a name");
    let set = async |name: &str, reason: Option<&str>| {
        site.catalog.set_drive_down(&drive(name), reason.map(str::to_owned)).await.expect("kept");
    };
    let down = async || site.catalog.drives_down().await.expect("the drives");
    set("d2", Some("belt")).await;
    set("d1", Some("head")).await;
    set("d2", Some("belt again")).await;
    assert_eq!(down().await, [(drive("d1"), "head".to_owned()), (drive("d2"), "belt again".to_owned())]);
    set("d1", None).await;
    set("d3", None).await;
    assert_eq!(down().await, [(drive("d2"), "belt again".to_owned())]);
}
