//! Leases and runs; on both databases.

use catalog::*;
use wire::id::{Epoch, GatewayId};

use crate::site::*;

on_both! {
    one_holder_at_a_time_has_a_lease;
    every_run_of_a_gateway_has_a_number_of_its_own;
    of_many_who_ask_at_once_one_gets_the_lease;
}

async fn one_holder_at_a_time_has_a_lease(site: Site) {
    let (one, two) = (holder("gw1"), holder("gw2"));
    let ask = async |who: &Holder| site.catalog.lease("purge", who, MINUTE).await.expect("an answer");
    assert_eq!(ask(&one).await, Some(Epoch(1)));
    assert_eq!(ask(&two).await, None);
    assert_eq!(ask(&one).await, Some(Epoch(1)), "renewed");
    site.pass(2 * MINUTE);
    assert_eq!(ask(&two).await, Some(Epoch(2)), "it ran out");
    assert_eq!(ask(&one).await, None);
    site.catalog.release("purge", &one).await.expect("not theirs");
    assert_eq!(ask(&one).await, None);
    site.catalog.release("purge", &two).await.expect("given back");
    assert_eq!(ask(&one).await, Some(Epoch(3)));
    let leases = site.catalog.leases().await.expect("leases");
    assert_eq!((leases.len(), &leases[0].holder, leases[0].epoch), (1, &one, Epoch(3)));
}

async fn every_run_of_a_gateway_has_a_number_of_its_own(site: Site) {
    let gateway = GatewayId::new("gw1").expect("a name");
    let first = site.catalog.begin_run(&gateway).await.expect("a run");
    let second = site.another().await.catalog.begin_run(&gateway).await.expect("a run");
    assert!(second > first);
    assert_ne!(Holder::new(&gateway, first), Holder::new(&gateway, second));
}

async fn of_many_who_ask_at_once_one_gets_the_lease(site: Site) {
    let other = site.another().await;
    let asks = (0..20).map(|number| {
        let catalog = if number % 2 == 0 { site.catalog.clone() } else { other.catalog.clone() };
        tokio::spawn(async move { catalog.lease("purge", &holder(&format!("gw{number}")), MINUTE).await })
    });
    let mut holders = 0;
    for ask in asks.collect::<Vec<_>>() {
        holders += usize::from(ask.await.expect("no panic").expect("an answer").is_some());
    }
    assert_eq!(holders, 1);
}
