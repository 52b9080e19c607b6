//! What `penstock admin` can be told, as data.

use clap::Subcommand;
use daemon::config::TimeSpan;
use wire::{
    admin::{people::Direct, queue::Kind},
    id::{AccountName, BitfileId, CosName, DriveId, GroupName, MoverId, RequestId, VolumeLabel, WorkId},
};

/// A command; the variants only group them for the code, not for the user.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// The site and its parts.
    #[command(flatten)]
    Site(SiteCommand),
    /// Files, and the queue of work on them.
    #[command(flatten)]
    Queue(QueueCommand),
    /// Accounts, groups, quotas, certificates.
    #[command(flatten)]
    People(PeopleCommand),
}

/// The site and its parts.
#[derive(Debug, Subcommand)]
pub enum SiteCommand {
    /// How the site is, in one page.
    Status,
    /// Wait until the site is there and ready.
    Wait {
        /// Give up after so long.
        #[arg(long, value_name = "TIME", default_value = "30s")]
        limit: TimeSpan,
    },
    /// Movers: whether they are there, what they have, what they moved.
    Movers,
    /// Tape drives: state with its reason, what is mounted, what it does.
    Drives,
    /// Take a drive into service.
    DriveUp {
        /// The drive.
        drive: DriveId,
        /// Why, for the log.
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Take a drive out of service.
    DriveDown {
        /// The drive.
        drive: DriveId,
        /// Why: it is shown to everybody who waits.
        #[arg(long)]
        reason: String,
    },
    /// Disk volumes and cartridges: state, place, how full.
    Volumes,
    /// Let a volume be used again.
    VolumeEnable {
        /// The volume.
        volume: VolumeLabel,
        /// Why, for the log.
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Use a volume no more.
    VolumeDisable {
        /// The volume.
        volume: VolumeLabel,
        /// Why: it is shown to everybody who waits.
        #[arg(long)]
        reason: String,
    },
    /// Classes of service: hierarchy, copies, checksums.
    Cos,
    /// Transfers under way, with rates.
    Transfers,
    /// Give a mover or a volume nothing new; what moves is finished, and what lies there stays and is read, or moves to
    /// other volumes (--move) until the volume is empty. `undrain` stops it.
    Drain {
        /// The mover.
        #[arg(long, required_unless_present = "volume", conflicts_with = "volume")]
        mover: Option<MoverId>,
        /// The volume.
        #[arg(long)]
        volume: Option<VolumeLabel>,
        /// Move what lies on the volume to others, in the background and over restarts, until it is empty.
        #[arg(long = "move", requires = "volume", conflicts_with = "mover")]
        moves: bool,
        /// Show how far that is, until the volume is empty. Interrupted, the drain goes on; the same command shows it
        /// again.
        #[arg(long, requires = "moves")]
        wait: bool,
        /// Why: it is shown.
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// End a drain. What has moved stays where it is now.
    Undrain {
        /// The mover.
        #[arg(long, required_unless_present = "volume", conflicts_with = "volume")]
        mover: Option<MoverId>,
        /// The volume.
        #[arg(long)]
        volume: Option<VolumeLabel>,
    },
    /// Take over what a cartridge says it holds: names, copies, sums, as the tape alone has them. For a catalogue that was
    /// lost, or a cartridge that is new to it. What the catalogue has stays as it is; doing it again changes nothing.
    Rebuild {
        /// The cartridge.
        #[arg(long)]
        volume: VolumeLabel,
        /// Show how far that is, until it is done. Interrupted, it goes on.
        #[arg(long)]
        wait: bool,
    },
    /// Buckets, and what lies in them.
    #[command(subcommand)]
    Bucket(BucketCommand),
    /// Show what happens as it happens, until interrupted.
    Watch,
}

/// Buckets, and what lies in them.
#[derive(Debug, Subcommand)]
pub enum BucketCommand {
    /// All of them: owner, versions, objects and bytes as they were counted last.
    List,
    /// One of them, with what lay in it when it was counted last.
    Show {
        /// The bucket.
        bucket: String,
    },
}

/// Paths to work on.
#[derive(Debug, clap::Args)]
pub struct PathArguments {
    /// Paths in the name space.
    #[arg(required = true)]
    pub paths: Vec<String>,
    /// Directories too, with everything in them.
    #[arg(short, long)]
    pub recursive: bool,
}

/// Files, and the queue of work on them.
#[derive(Debug, Subcommand)]
pub enum QueueCommand {
    /// Every request and piece of work: owner, age, position, estimate, and why it waits.
    Queue {
        /// Only this kind: stage, migrate, purge, repack, verify, reclaim, rebuild.
        #[arg(long, value_parser = kind)]
        kind: Option<Kind>,
        /// Only of this account.
        #[arg(long)]
        account: Option<AccountName>,
        /// Also what has ended.
        #[arg(long)]
        ended: bool,
        /// At most so many.
        #[arg(long, default_value_t = 1000)]
        limit: u32,
    },
    /// Bring files from tape to disk.
    Stage {
        /// Which.
        #[command(flatten)]
        files: PathArguments,
        /// How long they stay, such as `7d`.
        #[arg(long)]
        lifetime: Option<TimeSpan>,
        /// Give up after so long.
        #[arg(long)]
        deadline: Option<TimeSpan>,
        /// Larger is sooner.
        #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
        priority: i32,
        /// Wait until all are on disk, or cannot be.
        #[arg(long)]
        wait: bool,
    },
    /// Let staged files go when space is wanted.
    Release(PathArguments),
    /// Keep files on disk.
    Pin {
        /// Which.
        #[command(flatten)]
        files: PathArguments,
        /// For how long, such as `7d`; until unpinned if left out.
        #[arg(long)]
        lifetime: Option<TimeSpan>,
    },
    /// End a pin.
    Unpin(PathArguments),
    /// Copy files to tape now.
    Migrate {
        /// Which.
        #[command(flatten)]
        files: PathArguments,
        /// Wait until all are on tape, or cannot be.
        #[arg(long)]
        wait: bool,
    },
    /// Keep so many copies of files on the disks of as many movers, which then send them together; returns when that is
    /// so. Copies that are too many are dropped, those first that cannot be reached.
    Replicate {
        /// Which.
        #[command(flatten)]
        files: PathArguments,
        /// How many copies there are to be on disk, each on a mover of its own, the first one counted.
        #[arg(long)]
        copies: u32,
    },
    /// Drop the disk copies of files that are safe on tape.
    Purge(PathArguments),
    /// Cancel requests, or work that no request waits for.
    Cancel {
        /// Requests by number, as `queue` shows them.
        requests: Vec<RequestId>,
        /// Work by number.
        #[arg(long)]
        work: Vec<WorkId>,
    },
    /// Where a file is: copies, segments, sums, pins.
    File {
        /// Its path.
        path: String,
    },
    /// Files that were deleted or overwritten and can come back.
    Deleted {
        /// Below this directory.
        #[arg(default_value = "/")]
        path: String,
    },
    /// Bring a deleted file back.
    Undelete {
        /// Its bitfile, as `deleted` shows it.
        bitfile: BitfileId,
        /// Under another path.
        #[arg(long)]
        to: Option<String>,
    },
    /// Read copies again and compare their sums.
    #[command(subcommand)]
    Scrub(ScrubCommand),
}

fn kind(text: &str) -> Result<Kind, String> {
    let kinds = [Kind::Stage, Kind::Migrate, Kind::Purge, Kind::Repack, Kind::Verify, Kind::Reclaim, Kind::Rebuild];
    kinds
        .into_iter()
        .find(|kind| kind.as_str() == text)
        .ok_or_else(|| format!("no kind of work is called so; there are {}", kinds.map(Kind::as_str).join(", ")))
}

/// Reading copies again and comparing their sums.
#[derive(Debug, Subcommand)]
pub enum ScrubCommand {
    /// Begin one.
    Start {
        /// Paths.
        #[arg(required_unless_present_any = ["cos", "volume"], conflicts_with_all = ["cos", "volume"])]
        paths: Vec<String>,
        /// Directories too, with everything in them.
        #[arg(short, long)]
        recursive: bool,
        /// Everything of a class of service.
        #[arg(long, conflicts_with = "volume")]
        cos: Option<CosName>,
        /// Everything on a volume.
        #[arg(long)]
        volume: Option<VolumeLabel>,
        /// At most so many bytes a second.
        #[arg(long)]
        rate: Option<daemon::config::ByteSize>,
    },
    /// All that are known.
    List,
    /// What one found.
    Results {
        /// Its number.
        scrub: u64,
        /// Only what is wrong.
        #[arg(long)]
        bad: bool,
    },
}

/// Accounts, groups, quotas, certificates.
#[derive(Debug, Subcommand)]
pub enum PeopleCommand {
    /// Accounts.
    #[command(subcommand)]
    User(UserCommand),
    /// Groups of accounts.
    #[command(subcommand)]
    Group(GroupCommand),
    /// What accounts may use, and do.
    #[command(subcommand)]
    Quota(QuotaCommand),
    /// Which certificate is which account.
    #[command(subcommand)]
    Map(MapCommand),
    /// Access keys for S3.
    #[command(subcommand)]
    Key(KeyCommand),
}

/// Access keys for S3.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// All of them, without their secrets.
    List {
        /// Only of this account.
        #[arg(long)]
        account: Option<AccountName>,
    },
    /// Make one; its secret is shown now and never again.
    Create {
        /// Whose it will be.
        account: AccountName,
        /// Whether clients that sign with it are sent to movers for bytes: auto (those known to follow), on, off.
        #[arg(long, value_name = "WHEN", default_value = "auto")]
        direct: Direct,
    },
    /// Change one.
    Set {
        /// The key.
        key: String,
        /// Whether clients that sign with it are sent to movers for bytes: auto (those known to follow), on, off.
        #[arg(long, value_name = "WHEN")]
        direct: Direct,
    },
    /// Let one be used no more.
    Disable {
        /// The key.
        key: String,
    },
    /// Let one be used again.
    Enable {
        /// The key.
        key: String,
    },
    /// Make another for the same account; the old one works until it is disabled.
    Rotate {
        /// The old key.
        key: String,
    },
    /// Remove one.
    Remove {
        /// The key.
        key: String,
    },
}

/// Accounts.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// All of them.
    List,
    /// Add one, or change what is named.
    Set {
        /// The account.
        account: AccountName,
        /// Its groups; the first is that of new files.
        #[arg(long, value_delimiter = ',')]
        groups: Option<Vec<GroupName>>,
        /// Where its sessions begin.
        #[arg(long)]
        home: Option<String>,
        /// Whether it may use the admin door.
        #[arg(long)]
        admin: Option<bool>,
        /// Whether it may log in.
        #[arg(long)]
        enabled: Option<bool>,
        /// Certificate subjects that are this account.
        #[arg(long)]
        subject: Vec<String>,
    },
    /// Remove one that owns nothing.
    Remove {
        /// The account.
        account: AccountName,
    },
}

/// Groups of accounts.
#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// All of them.
    List,
    /// Add one, or set its members.
    Set {
        /// The group.
        group: GroupName,
        /// Its members.
        #[arg(value_delimiter = ',')]
        members: Vec<AccountName>,
    },
    /// Remove one.
    Remove {
        /// The group.
        group: GroupName,
    },
}

/// Limits.
#[derive(Debug, Subcommand)]
pub enum QuotaCommand {
    /// All of them, with what is used.
    List,
    /// Set one; what is left out is not limited.
    Set {
        /// The account.
        account: AccountName,
        /// Bytes, such as `10TiB`.
        #[arg(long)]
        bytes: Option<daemon::config::ByteSize>,
        /// Files.
        #[arg(long)]
        files: Option<u64>,
    },
    /// Remove one.
    Remove {
        /// The account.
        account: AccountName,
    },
}

/// Certificate subjects.
#[derive(Debug, Subcommand)]
pub enum MapCommand {
    /// All of them.
    List,
    /// Let a certificate be an account.
    Add {
        /// Its subject, as `/C=…/O=…/CN=…`.
        subject: String,
        /// The account.
        account: AccountName,
    },
    /// End that.
    Remove {
        /// The subject.
        subject: String,
    },
}
