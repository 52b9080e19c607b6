//! Storage classes, hierarchies and classes of service, and what they are to the catalogue.

use std::collections::BTreeSet;

use catalog::{ClassOfService, Hierarchy, MediumKind, Policies, StorageClass, TapeRead};
use daemon::config::{ByteSize, Problems, TimeSpan};
use serde::{Deserialize, Serialize};
use wire::{
    checksum::{Algorithm, ExtraSums},
    id::{CosName, StorageClassName, VolumeLabel},
};

use super::Config;

/// `[[storage_class]]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageClassConfig {
    /// Its name.
    pub name: StorageClassName,
    /// Disk or tape.
    pub kind: MediumKind,
    /// Which volumes belong to it: labels, `*` for any letters. The first class that fits has a volume.
    pub volumes: Vec<String>,
    /// Over how many movers a large file is striped.
    #[serde(default = "one")]
    pub stripe_width: u16,
    /// In multiples of what a file is cut for striping.
    #[serde(default = "default_block")]
    pub block: ByteSize,
    /// Purge begins when volumes are fuller than this.
    #[serde(default = "default_high")]
    pub high_water: f64,
    /// Purge ends when volumes are emptier than this.
    #[serde(default = "default_low")]
    pub low_water: f64,
}

/// `[[hierarchy]]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HierarchyConfig {
    /// Its name.
    pub name: String,
    /// The disk class files arrive in.
    pub disk: StorageClassName,
    /// The tape class of copy 1, of copy 2, and so on.
    #[serde(default)]
    pub tapes: Vec<StorageClassName>,
}

/// `[[cos]]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassOfServiceConfig {
    /// Its name.
    pub name: CosName,
    /// The hierarchy it uses.
    pub hierarchy: String,
    /// How many tape copies, each on a cartridge of its own.
    pub copies: u32,
    /// Sums besides Adler-32 and CRC-32C.
    #[serde(default)]
    pub checksums: Vec<Algorithm>,
    /// What reading from tape does.
    #[serde(default)]
    pub tape_read: TapeRead,
    /// How long reading waits for tape at most.
    #[serde(default = "day")]
    pub tape_wait: TimeSpan,
    /// How old a file must be before it is migrated.
    #[serde(default = "minutes")]
    pub migration_age: TimeSpan,
    /// How long a staged copy stays.
    #[serde(default = "week")]
    pub stage_lifetime: TimeSpan,
    /// How long a deleted or replaced file can be brought back.
    #[serde(default = "week")]
    pub undelete: TimeSpan,
}

const fn one() -> u16 {
    1
}

const fn default_block() -> ByteSize {
    ByteSize::mib(64)
}

const fn default_high() -> f64 {
    0.90
}

const fn default_low() -> f64 {
    0.80
}

const fn day() -> TimeSpan {
    TimeSpan::seconds(86_400)
}

const fn minutes() -> TimeSpan {
    TimeSpan::seconds(600)
}

const fn week() -> TimeSpan {
    TimeSpan::seconds(7 * 86_400)
}

fn class(name: &str, kind: MediumKind, volumes: &str) -> StorageClassConfig {
    StorageClassConfig {
        name: StorageClassName::new(name).expect("a good name"),
        kind,
        volumes: vec![volumes.to_owned()],
        stripe_width: if kind == MediumKind::Disk { 4 } else { 1 },
        block: default_block(),
        high_water: default_high(),
        low_water: default_low(),
    }
}

pub(super) fn default_storage_classes() -> Vec<StorageClassConfig> {
    vec![class("disk", MediumKind::Disk, "*.disk*"), class("tape", MediumKind::Tape, "*")]
}

pub(super) fn default_hierarchies() -> Vec<HierarchyConfig> {
    let name = |name| StorageClassName::new(name).expect("a good name");
    vec![
        HierarchyConfig { name: "disk-only".to_owned(), disk: name("disk"), tapes: Vec::new() },
        HierarchyConfig { name: "disk-tape".to_owned(), disk: name("disk"), tapes: vec![name("tape"), name("tape")] },
    ]
}

pub(super) fn default_classes() -> Vec<ClassOfServiceConfig> {
    let class = |name, hierarchy: &str, copies| ClassOfServiceConfig {
        name: CosName::new(name).expect("a good name"),
        hierarchy: hierarchy.to_owned(),
        copies,
        checksums: Vec::new(),
        tape_read: TapeRead::Wait,
        tape_wait: day(),
        migration_age: minutes(),
        stage_lifetime: week(),
        undelete: week(),
    };
    vec![class("standard", "disk-tape", 2), class("single", "disk-tape", 1), class("disk", "disk-only", 0)]
}

/// What a volume's label says of where it belongs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacedClass {
    /// The storage class.
    pub class: StorageClassName,
    /// Its pool.
    pub pool: String,
}

/// Which volumes belong to which storage class. Cheap enough to clone into a service.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StorageConfig(Vec<(StorageClassName, MediumKind, Vec<String>)>);

impl StorageConfig {
    /// The class of a volume of this kind and label: the first that has a pattern for it.
    #[must_use]
    pub fn place(&self, kind: MediumKind, volume: &VolumeLabel) -> Option<PlacedClass> {
        let fits = |(_, of, patterns): &&(_, MediumKind, Vec<String>)| {
            *of == kind && patterns.iter().any(|pattern| matches(pattern.as_bytes(), volume.as_str().as_bytes()))
        };
        let (class, ..) = self.0.iter().find(fits)?;
        Some(PlacedClass { class: class.clone(), pool: class.to_string() })
    }
}

/// Whether `text` is of the form `pattern`, in which `*` stands for any letters. Pure, linear in space, no recursion.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&byte) if byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, covered)) = star else { return false };
                star = Some((at, covered + 1));
                (p, t) = (at + 1, covered + 1);
            }
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

impl Config {
    /// Which volumes belong to which storage class.
    #[must_use]
    pub fn storage(&self) -> StorageConfig {
        let rows = self.storage_classes.iter();
        StorageConfig(rows.map(|class| (class.name.clone(), class.kind, class.volumes.clone())).collect())
    }

    pub(super) fn check_storage(&self, problems: &mut Problems) {
        for (index, class) in self.storage_classes.iter().enumerate() {
            let key = format!("storage_class[{index}]");
            if !(0.0 < class.low_water && class.low_water <= class.high_water && class.high_water <= 1.0) {
                let step = "write 0 < low_water <= high_water <= 1, for example 0.80 and 0.90";
                problems.add(format!("{key}.high_water"), "does not fit low_water", step);
            }
            if !(1..=64).contains(&class.stripe_width) {
                problems.add(format!("{key}.stripe_width"), "is not between 1 and 64", "1 does not stripe");
            }
        }
        let of_kind = |kind| {
            let classes = self.storage_classes.iter().filter(move |class| class.kind == kind);
            classes.map(|class| class.name.clone()).collect::<BTreeSet<_>>()
        };
        let (disks, tapes) = (of_kind(MediumKind::Disk), of_kind(MediumKind::Tape));
        for (index, hierarchy) in self.hierarchies.iter().enumerate() {
            if !disks.contains(&hierarchy.disk) {
                let what = format!("is {:?}, which is no storage class of kind \"disk\"", hierarchy.disk.as_str());
                problems.add(format!("hierarchy[{index}].disk"), what, one_of(&disks));
            }
            for (place, tape) in hierarchy.tapes.iter().enumerate().filter(|(_, tape)| !tapes.contains(*tape)) {
                let what = format!("is {:?}, which is no storage class of kind \"tape\"", tape.as_str());
                problems.add(format!("hierarchy[{index}].tapes[{place}]"), what, one_of(&tapes));
            }
        }
        let names = self.classes.iter().map(|class| class.name.clone()).collect::<BTreeSet<_>>();
        if !names.contains(&self.default_cos) {
            let what = format!("is {:?}, which no [[cos]] has", self.default_cos.as_str());
            problems.add("default_cos", what, one_of(&names));
        }
        for (index, class) in self.classes.iter().enumerate() {
            self.check_class(&format!("cos[{index}]"), class, problems);
        }
    }

    fn check_class(&self, key: &str, class: &ClassOfServiceConfig, problems: &mut Problems) {
        let Some(hierarchy) = self.hierarchies.iter().find(|hierarchy| hierarchy.name == class.hierarchy) else {
            let names = self.hierarchies.iter().map(|hierarchy| hierarchy.name.clone()).collect::<BTreeSet<_>>();
            let what = format!("is {:?}, which no [[hierarchy]] has", class.hierarchy);
            return problems.add(format!("{key}.hierarchy"), what, one_of(&names));
        };
        let most = hierarchy.tapes.len();
        if class.copies as usize > most {
            let what = format!("is more than the {most} tape classes of hierarchy {:?}", hierarchy.name);
            problems.add(format!("{key}.copies"), what, "ask for fewer copies, or add to the hierarchy's tapes");
        }
    }
}

fn one_of<T: ToString>(names: &BTreeSet<T>) -> String {
    format!("name one of: {}", names.iter().map(T::to_string).collect::<Vec<_>>().join(", "))
}

/// The configured classes as the catalogue keeps them.
#[must_use]
pub fn policies(config: &Config) -> Policies {
    Policies {
        storage_classes: config
            .storage_classes
            .iter()
            .map(|class| StorageClass {
                name: class.name.clone(),
                kind: class.kind,
                pool: class.name.to_string(),
                stripe_width: class.stripe_width,
                block_bytes: class.block.bytes(),
                high_water: class.high_water,
                low_water: class.low_water,
            })
            .collect(),
        hierarchies: config
            .hierarchies
            .iter()
            .map(|hierarchy| Hierarchy {
                name: hierarchy.name.clone(),
                disk: hierarchy.disk.clone(),
                tapes: hierarchy.tapes.clone(),
            })
            .collect(),
        classes: config
            .classes
            .iter()
            .map(|class| ClassOfService {
                name: class.name.clone(),
                hierarchy: class.hierarchy.clone(),
                copies: class.copies,
                extra_sums: ExtraSums {
                    md5: class.checksums.contains(&Algorithm::Md5),
                    sha256: class.checksums.contains(&Algorithm::Sha256),
                },
                tape_read: class.tape_read,
                undelete_window: class.undelete.duration(),
                migration_age: class.migration_age.duration(),
                stage_lifetime: class.stage_lifetime.duration(),
            })
            .collect(),
    }
}

pub(super) const TEMPLATE: &str = r#"
# Storage classes: kinds of medium and how they are used. The first class of its kind whose pattern fits has a volume.
[[storage_class]]
name = "disk"
kind = "disk"
# Labels of its volumes; * stands for any letters. Disk volumes are called MOVER.NAME.
volumes = ["*.disk*"]
# Over how many movers a large file may be striped, and in multiples of what it is cut.
stripe_width = 4
block = "64 MiB"
# Purge begins when its volumes are fuller than high_water and ends when they are emptier than low_water.
high_water = 0.90
low_water = 0.80

[[storage_class]]
name = "tape"
kind = "tape"
# Bar codes of its cartridges.
volumes = ["*"]

# Hierarchies: the disk class files arrive in, and the tape class of copy 1, of copy 2, and so on.
[[hierarchy]]
name = "disk-only"
disk = "disk"

[[hierarchy]]
name = "disk-tape"
disk = "disk"
tapes = ["tape", "tape"]

# Classes of service: what a writer chooses by name (SITE SETCOS).
[[cos]]
name = "standard"
hierarchy = "disk-tape"
# Tape copies, each on a cartridge of its own.
copies = 2
# Sums besides Adler-32 and CRC-32C, which are always kept: "md5", "sha256". They rule out striping.
checksums = []
# What reading a file does that is on tape only: "wait" (at most tape_wait) or "refuse".
tape_read = "wait"
tape_wait = "1d"
# How old a file must be before it is migrated, how long a staged copy stays, how long a deleted file can come back.
migration_age = "10m"
stage_lifetime = "7d"
undelete = "7d"

[[cos]]
name = "single"
hierarchy = "disk-tape"
copies = 1

[[cos]]
name = "disk"
hierarchy = "disk-only"
copies = 0
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_letters() {
        for (pattern, text, fits) in [
            ("*", "PEN001L8", true),
            ("PEN*L8", "PEN001L8", true),
            ("PEN*L9", "PEN001L8", false),
            ("*.disk*", "m1.disk0", true),
            ("*.disk*", "m1.ssd0", false),
            ("**a*b", "xaxbxab", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn a_volume_belongs_to_the_first_class_of_its_kind_that_fits() {
        let storage = Config::default().storage();
        let label = VolumeLabel::new("m1.disk0").expect("a good label");
        assert_eq!(storage.place(MediumKind::Disk, &label).expect("placed").pool, "disk");
        assert_eq!(storage.place(MediumKind::Tape, &label).expect("placed").pool, "tape");
        let other = VolumeLabel::new("m1.ssd").expect("a good label");
        assert_eq!(storage.place(MediumKind::Disk, &other), None);
    }
}
