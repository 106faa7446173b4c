//! ScatterPaKvCache: writes each token's key and value to its slot of a paged cache `[blocks, block_size, heads, head_dim]`.

use super::Executor;
use super::arguments::{Arguments, INDICES, Role, contiguous, not_offered, ranked, shaped, typed};
use crate::fail::{Fail, mistake};
use crate::task::{Access, Id};
use crate::tensor::Tensor;
use ropeteam_acl_sys::code::ACL_ERROR_RT_AICORE_EXCEPTION;
use ropeteam_acl_sys::types::{ACL_BF16, ACL_FLOAT16, ACL_INT8};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What the operator is asked for.
pub struct Scatter {
    /// Handles of key, key cache, slots, value, value cache: the operator's own order.
    pub tensors: [Id; 5],
    /// Arguments of the compressed modes, all of which must be null here.
    pub compressed: [Id; 5],
    /// `None` or "Norm".
    pub cache_mode: Option<String>,
    /// `None` or "None".
    pub scatter_mode: Option<String>,
}

/// `aclnnScatterPaKvCache`: key `[t, heads, dim]`, value `[t, heads, dim_v]`, slots `[t]`.
pub fn scatter(mut arguments: Arguments<'_>, asked: Scatter) -> Result<Executor, Fail> {
    arguments.not_on_310p()?;
    let [key, key_cache, slots, value, value_cache] = asked.tensors;
    let key = arguments.tensor(key, "key", Role::In)?;
    let key_cache = arguments.tensor(key_cache, "keyCacheRef", Role::InOut)?;
    let slots = arguments.tensor(slots, "slotMapping", Role::In)?;
    let value = arguments.tensor(value, "value", Role::In)?;
    let value_cache = arguments.tensor(value_cache, "valueCacheRef", Role::InOut)?;
    let plain = |mode: &Option<String>, name: &str| mode.as_deref().is_none_or(|mode| mode == name);
    let uncompressed = asked.compressed.iter().all(|handle| *handle == 0);
    if !uncompressed || !plain(&asked.cache_mode, "Norm") || !plain(&asked.scatter_mode, "None") {
        return Err(not_offered(
            "cache modes but Norm and scatter modes but None",
        ));
    }
    typed(&slots, "slotMapping", INDICES)?;
    for (x, cache, what) in [(&key, &key_cache, "key"), (&value, &value_cache, "value")] {
        let [rows, heads, dim] = ranked(x, what)?;
        let [blocks, block_size, _, _] = ranked(cache, what)?;
        typed(x, what, &[ACL_FLOAT16, ACL_BF16, ACL_INT8])?;
        typed(cache, what, &[x.data_type])?;
        shaped(cache, what, &[blocks, block_size, heads, dim])?;
        shaped(&slots, "slotMapping", &[rows])?;
        contiguous(x, what)?;
        contiguous(cache, what)?;
    }
    let bytes = 2 * (key.bytes() + value.bytes());
    Ok(arguments.executor(0, Arc::new(write_slots)).moving(bytes))
}

fn write_slots(access: &mut Access<'_>, tensors: &[Tensor]) -> Result<(), Fail> {
    let [key, key_cache, slots, value, value_cache] = tensors else {
        return Ok(());
    };
    let slots = checked_slots(slots.read_integers(access)?, key_cache)?;
    let blocks: BTreeSet<usize> = slots.iter().map(|slot| slot / key_cache.shape[1]).collect();
    for block in blocks {
        if let Some(text) = access.owners.miswritten((key_cache.address, block)) {
            access.violations.report(access.at.call, &text);
        }
    }
    for (x, cache) in [(key, key_cache), (value, value_cache)] {
        let row = x.elements() / slots.len();
        for (token, slot) in slots.iter().enumerate() {
            let bytes = access.read(x.part(x.offset + token * row, row))?.to_vec();
            let place = cache.part(cache.offset + slot * row, row);
            access.write(place)?.copy_from_slice(&bytes);
        }
    }
    Ok(())
}

/// Slots inside the cache, each once.
fn checked_slots(slots: Vec<i64>, cache: &Tensor) -> Result<Vec<usize>, Fail> {
    let room = cache.shape[0] * cache.shape[1];
    let mut seen = BTreeSet::new();
    for slot in &slots {
        let inside = usize::try_from(*slot).is_ok_and(|slot| slot < room);
        if !inside || !seen.insert(*slot) {
            let what = if inside { "twice" } else { "outside" };
            let text = format!("slot {slot} {what} of {room}");
            return Err(mistake(ACL_ERROR_RT_AICORE_EXCEPTION, text));
        }
    }
    Ok(slots.into_iter().map(|slot| slot as usize).collect())
}
