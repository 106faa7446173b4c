//! Which devices of the machine a process sees: `ASCEND_RT_VISIBLE_DEVICES`.

/// Physical numbers of the visible devices, in the order of their logical numbers. The list must ascend; it ends at its first
/// invalid entry.
pub fn visible(count: u32, list: Option<&str>) -> Vec<u32> {
    let Some(list) = list else {
        return (0..count).collect();
    };
    let mut seen: Vec<u32> = Vec::new();
    for entry in list.split(',') {
        match entry.trim().parse() {
            Ok(device) if device < count && seen.last().is_none_or(|last| *last < device) => {
                seen.push(device);
            }
            _ => break,
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::visible;

    #[test]
    fn the_list_ends_at_its_first_invalid_entry() {
        assert_eq!(visible(3, None), [0, 1, 2]);
        assert_eq!(visible(4, Some("0,2,3")), [0, 2, 3]);
        assert_eq!(visible(4, Some("1,9,2")), [1], "there is no device 9");
        assert_eq!(visible(4, Some("2,1")), [2], "not ascending");
        assert_eq!(visible(4, Some("")), [] as [u32; 0]);
    }
}
