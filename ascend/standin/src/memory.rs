//! Memory of the devices, and pinned memory of the host. Device addresses are numbers that no processor accepts as a pointer, so
//! that a host which follows one dies at once, and no address is given out twice, so that a use after free is always seen. Fresh
//! and freed bytes are `FF`: NaN in every float format and -1 in every integer.

use crate::shadow::Shadow;
use std::alloc::Layout;
use std::collections::BTreeMap;

/// Fills memory whose value nobody may rely on.
pub const POISON: u8 = 0xFF;
/// Tag of device addresses, in bits that a pointer cannot have.
const TAG: u64 = 0x00A0;
/// Address bits of one device.
const DEVICE_BITS: u32 = 42;
/// Every allocation begins at a multiple of this.
const ALIGNMENT: u64 = 512;
/// Kernels may read so far beyond the end: sizes are rounded up to 32 and 32 are added.
const PADDING: u64 = 32;
/// Above this size, memory comes in huge pages.
const HUGE_ABOVE: u64 = 1 << 20;
/// Bytes of a huge page.
const HUGE_PAGE: u64 = 2 << 20;

/// Some bytes at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Of the first byte.
    pub address: u64,
    /// How many.
    pub len: usize,
}

impl Span {
    /// Whether two spans share a byte.
    pub fn meets(&self, other: &Self) -> bool {
        self.address < other.address + other.len as u64
            && other.address < self.address + self.len as u64
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes at {:#x}", self.len, self.address)
    }
}

/// Whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// A device's, by its physical number.
    Device(u32),
    /// The host's, pinned.
    Host,
}

/// One allocation.
#[derive(Debug)]
pub struct Block {
    /// Whose.
    pub home: Home,
    /// History of its bytes.
    pub shadow: Shadow,
    /// Bytes that count against the device's memory.
    charged: u64,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Own(Vec<u8>),
    /// So many, which nobody keeps.
    Hollow(usize),
    Pinned {
        address: u64,
        layout: Layout,
    },
}

impl Block {
    /// How many bytes it has, padding included.
    pub fn len(&self) -> usize {
        match &self.bytes {
            Bytes::Own(bytes) => bytes.len(),
            Bytes::Hollow(len) => *len,
            Bytes::Pinned { layout, .. } => layout.size(),
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Own(bytes) => bytes,
            Bytes::Hollow(_) => &[],
            // SAFETY: the allocation lives as long as the block; the host promised not to touch it while a copy may run.
            Bytes::Pinned { address, layout } => unsafe {
                std::slice::from_raw_parts(*address as *const u8, layout.size())
            },
        }
    }

    /// Its bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.bytes {
            Bytes::Own(bytes) => bytes,
            Bytes::Hollow(_) => &mut [],
            // SAFETY: as above.
            Bytes::Pinned { address, layout } => unsafe {
                std::slice::from_raw_parts_mut(*address as *mut u8, layout.size())
            },
        }
    }
}

/// All allocations.
#[derive(Debug, Default)]
pub struct Memory {
    /// Fresh device memory holds nothing: for devices that only take their time.
    pub hollow: bool,
    /// By first address.
    blocks: BTreeMap<u64, Block>,
    /// Per physical device: bytes given out so far and bytes in use.
    devices: BTreeMap<u32, (u64, u64)>,
}

/// Whether a number is an address of some device.
pub fn is_device_address(address: u64) -> bool {
    address >> 48 == TAG
}

fn align_up(value: u64, to: u64) -> u64 {
    value.div_ceil(to) * to
}

/// Bytes that an allocation of `size` takes from the device.
fn charge(size: u64, huge: bool) -> u64 {
    let padded = align_up(size, 32) + PADDING;
    if huge && size > HUGE_ABOVE {
        align_up(padded, HUGE_PAGE)
    } else {
        padded
    }
}

impl Memory {
    /// Bytes in use on a device.
    pub fn used(&self, device: u32) -> u64 {
        self.devices.get(&device).map_or(0, |(_, used)| *used)
    }

    /// Gives out `size` bytes of a device that has `total`; `None` when they are not there.
    pub fn allocate(&mut self, device: u32, size: u64, huge: bool, total: u64) -> Option<u64> {
        let (given, used) = self.devices.entry(device).or_default();
        // Huge pages that run out are replaced by normal ones.
        let charged = [charge(size, huge), charge(size, false)];
        let charged = charged.into_iter().find(|bytes| *used + bytes <= total)?;
        let address = (TAG << 48) | (u64::from(device) << DEVICE_BITS) | *given;
        let padded = align_up(size, 32) + PADDING;
        *given += align_up(padded, ALIGNMENT) + ALIGNMENT;
        *used += charged;
        let block = Block {
            home: Home::Device(device),
            shadow: Shadow::new(padded as usize, false),
            charged,
            bytes: match self.hollow {
                true => Bytes::Hollow(padded as usize),
                false => Bytes::Own(vec![POISON; padded as usize]),
            },
        };
        self.blocks.insert(address, block);
        Some(address)
    }

    /// Pins `size` bytes of the host; `None` when the host has none.
    pub fn pin(&mut self, size: usize) -> Option<u64> {
        let layout = Layout::from_size_align(size, 64)
            .ok()
            .filter(|_| size > 0)?;
        // SAFETY: the layout is not empty.
        let pointer = unsafe { std::alloc::alloc(layout) };
        if pointer.is_null() {
            return None;
        }
        let address = pointer as u64;
        let mut block = Block {
            home: Home::Host,
            shadow: Shadow::new(size, true),
            charged: 0,
            bytes: Bytes::Pinned { address, layout },
        };
        block.bytes_mut().fill(POISON);
        self.blocks.insert(address, block);
        Some(address)
    }

    /// Takes an allocation back. Pinned memory stays with the system until the block is dropped.
    pub fn free(&mut self, address: u64) -> Option<Block> {
        let block = self.blocks.remove(&address)?;
        if let Home::Device(device) = block.home
            && let Some((_, used)) = self.devices.get_mut(&device)
        {
            *used -= block.charged;
        }
        Some(block)
    }

    /// The allocation that an address lies in, with its first address.
    pub fn find(&self, address: u64) -> Option<(u64, &Block)> {
        let (base, block) = self.blocks.range(..=address).next_back()?;
        (address - base < block.len() as u64).then_some((*base, block))
    }

    /// The same, to be changed.
    pub fn find_mut(&mut self, address: u64) -> Option<(u64, &mut Block)> {
        let (base, block) = self.blocks.range_mut(..=address).next_back()?;
        (address - base < block.len() as u64).then_some((*base, block))
    }

    /// First addresses of a device's allocations.
    pub fn of_device(&self, device: u32) -> Vec<u64> {
        let own = self
            .blocks
            .iter()
            .filter(|(_, block)| block.home == Home::Device(device));
        own.map(|(address, _)| *address).collect()
    }

    /// Pinned allocations.
    pub fn pinned(&self) -> usize {
        self.blocks
            .values()
            .filter(|block| block.home == Home::Host)
            .count()
    }
}

/// Gives pinned memory back to the system.
impl Drop for Block {
    fn drop(&mut self) {
        if let Bytes::Pinned { address, layout } = self.bytes {
            // SAFETY: allocated in `pin` with this layout, and dropped once.
            unsafe { std::alloc::dealloc(address as *mut u8, layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn sizes_are_charged_with_padding_and_in_huge_pages() {
        assert_eq!(charge(1, true), 64);
        assert_eq!(charge(100, true), 160);
        assert_eq!(charge(MIB, true), MIB + 32, "up to 1 MiB in normal pages");
        assert_eq!(charge(MIB + 1, true), 2 * MIB);
        assert_eq!(charge(2 * MIB, true), 4 * MIB, "the padding opens a page");
        assert_eq!(charge(2 * MIB, false), 2 * MIB + 32);
    }

    #[test]
    fn huge_pages_that_run_out_are_replaced_and_memory_ends() {
        let mut memory = Memory::default();
        let total = 5 * MIB;
        assert!(memory.allocate(0, 2 * MIB, true, total).is_some());
        let address = memory
            .allocate(0, MIB / 2, true, total)
            .expect("half a MiB of the last");
        assert_eq!(memory.used(0), 4 * MIB + MIB / 2 + 32);
        assert!(memory.allocate(0, MIB, true, total).is_none());
        memory.free(address).expect("allocated");
        assert!(memory.allocate(0, MIB - 32, true, total).is_some());
    }

    #[test]
    fn an_address_is_found_inside_its_allocation_only_and_never_comes_back() {
        let mut memory = Memory::default();
        let first = memory.allocate(1, 40, true, MIB).expect("room");
        assert!(is_device_address(first));
        assert_eq!(first % ALIGNMENT, 0);
        assert_eq!(memory.find(first + 95).map(|(base, _)| base), Some(first));
        assert!(memory.find(first + 96).is_none(), "40 and padding");
        memory.free(first);
        assert!(memory.find(first).is_none());
        assert_ne!(memory.allocate(1, 40, true, MIB), Some(first));
    }
}
