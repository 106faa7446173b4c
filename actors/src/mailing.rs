//! News of several sequences, put together by session: one message per session and occasion.

use crate::messages::Progress;
use actix::Recipient;
use std::collections::HashMap;

/// Groups the items by their session, in the order in which the sessions first appear.
pub(crate) fn by_session<T>(
    items: impl Iterator<Item = (Recipient<Progress>, T)>,
) -> Vec<(Recipient<Progress>, Vec<T>)> {
    let mut parcels: Vec<(Recipient<Progress>, Vec<T>)> = Vec::new();
    let mut index: HashMap<Recipient<Progress>, usize> = HashMap::new();
    for (session, item) in items {
        let at = *index.entry(session.clone()).or_insert(parcels.len());
        match parcels.get_mut(at) {
            Some((_, parcel)) => parcel.push(item),
            None => parcels.push((session, vec![item])),
        }
    }
    parcels
}
