//! The driver's management library (dcmi_interface_api.h), `libdcmi.so`: how well a chip is. It is asked when it is there, and its
//! numbering of cards and chips is that of the machine, whatever a process may see.

use crate::load::Libraries;
use std::path::PathBuf;

/// Where the driver puts the library when the linker does not know it.
const PLACES: [&str; 3] = [
    "libdcmi.so",
    "/usr/local/dcmi/libdcmi.so",
    "/usr/local/Ascend/driver/lib64/driver/libdcmi.so",
];
/// Most cards of a machine.
const CARDS: usize = 64;

declare_functions! {
    /// The functions of chip management.
    Dcmi {
        /// Starts the library.
        fn dcmi_init() -> i32;
        /// Numbers of the cards.
        fn dcmi_get_card_list(count: *mut i32, cards: *mut i32, room: i32) -> i32;
        /// Chips on a card.
        fn dcmi_get_device_num_in_card(card: i32, count: *mut i32) -> i32;
        /// A chip's number for the runtime, where all are visible.
        fn dcmi_get_device_logic_id(logic: *mut i32, card: i32, chip: i32) -> i32;
        /// How well a chip is.
        fn dcmi_get_device_health(card: i32, chip: i32, health: *mut u32) -> i32;
    }
}

/// How well a chip is, by the driver's own count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health(pub u32);

impl std::fmt::Display for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            0 => "healthy",
            1 => "minor alarm",
            2 => "major alarm",
            3 => "critical alarm",
            _ => "not there",
        })
    }
}

/// Health of all chips of the machine by number; empty without the library.
pub fn healths() -> Vec<Health> {
    let mut libraries = Libraries::default();
    if libraries
        .open_first(PLACES.map(PathBuf::from).to_vec())
        .is_err()
    {
        return Vec::new();
    }
    let dcmi = Dcmi::resolve(&libraries);
    let mut found = all(&dcmi).unwrap_or_default();
    found.sort_unstable_by_key(|(number, _)| *number);
    found.into_iter().map(|(_, health)| health).collect()
}

fn all(dcmi: &Dcmi) -> Option<Vec<(i32, Health)>> {
    let (mut count, mut cards) = (0, [0; CARDS]);
    // SAFETY: the arguments are places for numbers, and room for as many as said.
    unsafe {
        succeeded(dcmi.dcmi_init())?;
        succeeded(dcmi.dcmi_get_card_list(&mut count, cards.as_mut_ptr(), CARDS as i32))?;
    }
    let count = usize::try_from(count).ok()?.min(CARDS);
    let mut found = Vec::new();
    for card in &cards[..count] {
        let mut chips = 0;
        // SAFETY: as above.
        unsafe { succeeded(dcmi.dcmi_get_device_num_in_card(*card, &mut chips))? };
        for chip in 0..chips {
            let (mut number, mut health) = (0, u32::MAX);
            // SAFETY: as above.
            unsafe {
                succeeded(dcmi.dcmi_get_device_logic_id(&mut number, *card, chip))?;
                // A chip that does not answer is told as not there.
                let _ = dcmi.dcmi_get_device_health(*card, chip, &mut health);
            }
            found.push((number, Health(health)));
        }
    }
    Some(found)
}

fn succeeded(answer: Result<i32, crate::Absent>) -> Option<()> {
    (answer.ok()? == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_told_in_words() {
        assert_eq!(Health(0).to_string(), "healthy");
        assert_eq!(Health(3).to_string(), "critical alarm");
        assert_eq!(Health(u32::MAX).to_string(), "not there");
    }
}
