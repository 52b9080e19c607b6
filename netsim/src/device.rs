//! A host's interface: a TUN device with segmentation offload, and the kernel's own pacing of its NIC.
//!
//! # Source
//!
//! Linux, `Documentation/networking/tuntap.rst`; flags from `include/uapi/linux/if_tun.h`.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    net::{Ipv4Addr, Ipv6Addr},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::fs::OpenOptionsExt,
    },
    process::Command,
};

use crate::{frame::VNET_HEADER_BYTES, namespace::Namespace};

/// The interface's name on every host.
pub const INTERFACE: &str = "lab0";

/// The largest piece of a TCP stream the kernel hands over at once. Larger saves little and makes a gigabit link lumpy:
/// 64 KiB take half a millisecond.
const LARGEST_SEGMENT_BYTES: u32 = 16_384;

const IFF_TUN: u16 = 0x0001;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;
const TUN_F_CSUM: libc::c_ulong = 0x01;
const TUN_F_TSO4: libc::c_ulong = 0x02;
const TUN_F_TSO6: libc::c_ulong = 0x04;

/// How a host is connected.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DeviceSpec {
    /// Its address; all hosts of a lab are on one subnet.
    pub address: Ipv4Addr,
    /// The subnet's prefix length.
    pub prefix: u8,
    /// Largest IP packet on the wire.
    pub mtu: u16,
    /// What its NIC sends at most, bits a second on the wire. The kernel paces it, so a sender feels its own NIC as
    /// back pressure and not as loss, as on a real host.
    pub nic_bps: Option<u64>,
}

impl DeviceSpec {
    /// Its address of version 6, where the kernel has that: a local one (RFC 4193) with the same number in its subnet.
    #[must_use]
    pub fn address6(&self) -> Option<Ipv6Addr> {
        let [_, _, high, low] = self.address.octets();
        has_ipv6().then(|| Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, u16::from_be_bytes([high, low])))
    }
}

/// Whether new interfaces get IPv6 here.
fn has_ipv6() -> bool {
    std::fs::read_to_string("/proc/sys/net/ipv6/conf/default/disable_ipv6").is_ok_and(|text| text.trim() == "0")
}

/// One end of a host's interface: what the host sends can be read, what is written arrives at the host.
#[derive(Debug)]
pub struct Device(File);

impl Device {
    /// Makes the interface in this namespace, gives it its address and brings it up.
    ///
    /// # Errors
    ///
    /// If `/dev/net/tun` cannot be opened, or `ip` or `tc` (Debian package `iproute2`) refuse.
    pub fn open(namespace: &Namespace, spec: &DeviceSpec) -> io::Result<Self> {
        let device = namespace.run(open_tun)?;
        let DeviceSpec { address, prefix, mtu, .. } = spec;
        configure(namespace, "ip", &format!("address add {address}/{prefix} dev {INTERFACE}"))?;
        let limits = format!("link set dev {INTERFACE} mtu {mtu} txqueuelen 1000 gso_max_size {LARGEST_SEGMENT_BYTES}");
        configure(namespace, "ip", &limits)?;
        configure(namespace, "ip", &format!("link set dev {INTERFACE} up"))?;
        configure(namespace, "ip", "link set dev lo up")?;
        if let Some(address) = spec.address6() {
            // Nobody else on a link of two can have it, and looking would take a second.
            configure(namespace, "ip", &format!("-6 address add {address}/64 dev {INTERFACE} nodad"))?;
        }
        if let Some(rate) = spec.nic_bps {
            pace(namespace, rate)?;
        }
        Ok(Self(device))
    }

    /// Reads one packet, virtio-net header first.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(buffer)
    }

    /// Writes one packet, virtio-net header first.
    ///
    /// # Errors
    ///
    /// The kernel's own; the packet is lost then.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        (&self.0).write(packet).map(drop)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Limits what the interface sends. The rate that `tbf` counts leaves out what a link layer adds to each frame, hence
/// the correction: 975 for 1,000 (measured, for packets of 1,500 bytes).
pub(crate) fn pace(namespace: &Namespace, nic_bps: u64) -> io::Result<()> {
    let rate = nic_bps / 1000 * 975;
    // A burst of 2 ms, at least one large segment; a queue of 50 ms keeps the sender's own stack waiting, not dropping.
    let burst = (rate / 8 / 500).max(u64::from(LARGEST_SEGMENT_BYTES) * 2);
    let queue = (rate / 8 / 20).max(burst * 2);
    configure(
        namespace,
        "tc",
        &format!("qdisc replace dev {INTERFACE} root tbf rate {rate}bit burst {burst} limit {queue}"),
    )
}

fn configure(namespace: &Namespace, program: &str, arguments: &str) -> io::Result<()> {
    let output =
        namespace.command(program)?.args(arguments.split_whitespace()).output().map_err(|error| {
            io::Error::new(error.kind(), format!("run {program} (Debian package iproute2): {error}"))
        })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{program} {arguments}: {}", said.trim())))
}

/// `struct ifreq`, as far as `TUNSETIFF` reads it: name and flags; 40 bytes in all.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

fn open_tun() -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .map_err(|error| io::Error::new(error.kind(), format!("open /dev/net/tun: {error}")))?;
    let mut request = InterfaceRequest { name: [0; 16], flags: IFF_TUN | IFF_NO_PI | IFF_VNET_HDR, rest: [0; 22] };
    request.name[..INTERFACE.len()].copy_from_slice(INTERFACE.as_bytes());
    set_up(&file, &request)?;
    Ok(file)
}

#[allow(unsafe_code)]
fn set_up(file: &File, request: &InterfaceRequest) -> io::Result<()> {
    // TUNSETIFF, TUNSETVNETHDRSZ, TUNSETOFFLOAD.
    let header_bytes = libc::c_int::try_from(VNET_HEADER_BYTES).expect("ten");
    let fd = file.as_raw_fd();
    // SAFETY: the file descriptor is open while `file` is borrowed; the kernel reads and writes the 40 bytes of the
    // request that TUNSETIFF defines, and the four of the header size; the offload flags are passed by value.
    let results = unsafe {
        [
            libc::ioctl(fd, 0x4004_54ca, std::ptr::from_ref(request)),
            libc::ioctl(fd, 0x4004_54d8, std::ptr::from_ref(&header_bytes)),
            libc::ioctl(fd, 0x4004_54d0, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6),
        ]
    };
    if results.iter().any(|&result| result < 0) {
        let error = io::Error::last_os_error();
        return Err(io::Error::new(error.kind(), format!("make a TUN device: {error}")));
    }
    Ok(())
}

/// Whether the machine has what [`Device::open`] needs, without opening anything: `None`, or what is missing.
#[must_use]
pub fn missing() -> Option<String> {
    if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/net/tun") {
        return Some(format!("/dev/net/tun cannot be opened ({error}): run as root, on a machine with TUN devices"));
    }
    for program in ["ip", "tc"] {
        if Command::new(program).arg("-V").output().is_err() {
            return Some(format!("{program} is missing: install the Debian package iproute2"));
        }
    }
    None
}
