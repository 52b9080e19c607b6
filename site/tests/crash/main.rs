//! `kill -9` of a gateway or a mover at seeded moments of put, migrate, purge, stage and drain, with real processes.
//!
//! A site lives through many moments. After each, the killed process is started again, and then: every acknowledged file
//! is there, byte for byte; what was not acknowledged is there whole or not at all; no file is left over on a mover; no
//! bitfile lost its disk copy without having all its tape copies; every request ends. A seed is printed; `CRASH_SEED`
//! repeats it and `CRASH_MOMENTS` says how many moments.

mod processes;
mod world;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use catalog::testing::PostgresCluster;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use tokio::time::sleep;

use self::{
    processes::{Processes, Victim},
    world::World,
};

/// What the site is doing when a process is killed, in the order in which a site's moments go.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Put,
    Migrate,
    Purge,
    Stage,
}

impl Phase {
    const ALL: [Self; 4] = [Self::Put, Self::Migrate, Self::Purge, Self::Stage];

    /// How long it takes about, so that moments fall into it.
    const fn window_ms(self) -> u64 {
        match self {
            Self::Put => 900,
            Self::Migrate => 500,
            Self::Purge => 60,
            Self::Stage => 500,
        }
    }
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

async fn lives_through(moments: u64, seed: u64, cluster: Option<Arc<PostgresCluster>>) {
    let seed = variable("CRASH_SEED").unwrap_or(seed);
    let moments = variable("CRASH_MOMENTS").unwrap_or(moments);
    println!("CRASH_SEED={seed} CRASH_MOMENTS={moments}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut site = Processes::start(cluster).await;
    let mut world = World::new(&site).await;
    for (number, phase) in (1..=moments).zip(Phase::ALL.into_iter().cycle()) {
        let victim = *[Victim::Gateway, Victim::Mover(1), Victim::Mover(2)].choose(&mut random).expect("not empty");
        let delay = Duration::from_millis(random.random_range(0..phase.window_ms()));
        let again = random.random_bool(0.2).then(|| Duration::from_millis(random.random_range(0..400)));
        println!("moment {number}: {phase:?}, {victim} after {delay:?}, again after {again:?}");
        let began = Instant::now();
        moment(&mut site, &mut world, &mut random, phase, Kill { victim, delay, again }).await;
        println!("moment {number} took {:?}", began.elapsed());
    }
    // Whatever was cut, the site goes on as if nothing had been.
    world.migrate(&site).await;
    world.on_tape(&site).await;
    world.queue_ends(&site).await;
    world.check(true).await;
    world.nothing_is_left_over(&site).await;
}

/// Who is killed, when, and whether once more.
struct Kill {
    victim: Victim,
    delay: Duration,
    again: Option<Duration>,
}

impl Kill {
    async fn strike(self, site: &mut Processes) {
        sleep(self.delay).await;
        site.kill_and_restart(self.victim, self.again).await;
    }
}

async fn moment(site: &mut Processes, world: &mut World, random: &mut StdRng, phase: Phase, kill: Kill) {
    match phase {
        Phase::Put => {
            tokio::join!(world.put(random), kill.strike(site));
        }
        Phase::Migrate => {
            let mut admin = site.admin().await.expect("the admin door");
            let (asked, ()) = tokio::join!(world.ask_once(&mut admin, "/v1/migrate"), kill.strike(site));
            // What was acknowledged goes on by itself.
            if asked.is_none() {
                world.migrate(site).await;
            }
            world.on_tape(site).await;
        }
        Phase::Purge => {
            world.release(site).await;
            let mut admin = site.admin().await.expect("the admin door");
            tokio::join!(world.ask_once(&mut admin, "/v1/purge"), kill.strike(site));
            world.nothing_is_purged_that_is_needed(site).await;
            world.purge(site).await;
        }
        Phase::Stage => {
            let mut admin = site.admin().await.expect("the admin door");
            let (asked, ()) = tokio::join!(world.ask_once(&mut admin, "/v1/stage"), kill.strike(site));
            world.staged(site, asked).await;
        }
    }
    world.nothing_is_purged_that_is_needed(site).await;
    // What is on tape only is read after it was staged.
    world.check(!matches!(phase, Phase::Purge)).await;
    world.nothing_is_left_over(site).await;
}

/// Files of a site whose disks are drained: so many that a drain lasts for many looks at it.
const DRAINED_NAMES: u64 = 120;

/// Empties one mover's disk after the other, while processes are killed.
async fn drains_through(moments: u64, seed: u64) {
    let seed = variable("CRASH_SEED").unwrap_or(seed);
    let moments = variable("CRASH_MOMENTS").unwrap_or(moments);
    println!("CRASH_SEED={seed} CRASH_MOMENTS={moments}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut site = Processes::start(None).await;
    let mut world = World::of(&site, DRAINED_NAMES).await;
    let mut in_the_middle = 0;
    for (number, disk) in (1..=moments).zip([1, 2].into_iter().cycle()) {
        world.put(&mut random).await;
        let victim = *[Victim::Gateway, Victim::Mover(1), Victim::Mover(2)].choose(&mut random).expect("not empty");
        let percent = random.random_range(0..80);
        world.drain(&site, disk).await;
        let left = world.drained_by(&site, disk, percent).await;
        println!("moment {number}: drain of mover{disk}, {victim} after {percent} of a hundred: {left:?}");
        in_the_middle += u64::from(left.moving && left.left_segments > 0);
        site.kill_and_restart(victim, None).await;
        // While it goes on, and when it is done, every byte is there.
        world.check(true).await;
        world.is_drained(&site, disk).await;
        world.check(true).await;
        world.nothing_is_left_over(&site).await;
        world.undrain(&site, disk).await;
    }
    println!("{in_the_middle} of {moments} kills fell into a drain");
    assert!(in_the_middle > 0, "every drain was over before its kill");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_drain_that_is_killed_goes_on_and_loses_nothing() {
    drains_through(5, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_site_that_is_killed_over_and_over_keeps_what_it_acknowledged() {
    lives_through(22, 1, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_site_that_is_killed_over_and_over_keeps_what_it_acknowledged() {
    lives_through(20, 2, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_site_over_postgresql_keeps_what_it_acknowledged() {
    let cluster = PostgresCluster::shared().await.expect("PostgreSQL is installed (apt install postgresql)");
    lives_through(8, 3, Some(cluster)).await;
}
