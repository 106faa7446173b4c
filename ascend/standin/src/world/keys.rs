//! Memory that a process lets others have, by a key: who may, and for how long. Here the other process is this one.

use super::World;
use crate::caller::Caller;
use crate::fail::{Fail, mistake};
use crate::memory::{Home, Span};
use ropeteam_acl_sys::code::{ACL_ERROR_RT_NO_PERMISSION, ACL_ERROR_RT_PARAM_INVALID};

/// Bytes of a key, its end included.
pub const KEY_BYTES: usize = 65;
/// Whoever knows the key may have the memory.
const DISABLE_PID_VALIDATION: u64 = 1;

/// Memory behind a key.
pub struct Shared {
    memory: Span,
    /// Processes that may have it; `None`: all.
    pids: Option<Vec<i32>>,
    /// How often it was taken and not given back.
    imports: u32,
}

impl World {
    /// `aclrtIpcMemGetExportKey`: a key for an allocation of the device.
    pub fn export_memory(
        &mut self,
        caller: &Caller,
        memory: Span,
        flags: u64,
    ) -> Result<String, Fail> {
        self.current(caller)?;
        let found = self.memory.find(memory.address);
        let is_whole = found.is_some_and(|(base, block)| {
            base == memory.address && block.home != Home::Host && memory.len <= block.len()
        });
        if !is_whole {
            let text = format!("{memory} are no allocation of a device");
            return Err(mistake(ACL_ERROR_RT_PARAM_INVALID, text));
        }
        let key = format!("standin-{:x}", self.fresh_handle());
        let shared = Shared {
            memory,
            pids: (flags & DISABLE_PID_VALIDATION == 0).then(Vec::new),
            imports: 0,
        };
        self.keys.insert(key.clone(), shared);
        Ok(key)
    }

    /// `aclrtIpcMemSetImportPid`.
    pub fn allow_import(&mut self, key: &str, pids: &[i32]) -> Result<(), Fail> {
        if let Some(allowed) = &mut self.shared(key)?.pids {
            allowed.extend_from_slice(pids);
        }
        Ok(())
    }

    /// `aclrtIpcMemImportByKey`: where the memory is.
    pub fn import_memory(&mut self, caller: &Caller, key: &str) -> Result<u64, Fail> {
        self.current(caller)?;
        let own = std::process::id() as i32;
        let shared = self.shared(key)?;
        if shared
            .pids
            .as_ref()
            .is_some_and(|pids| !pids.contains(&own))
        {
            return Err(mistake(
                ACL_ERROR_RT_NO_PERMISSION,
                format!("process {own} is none of those that may have the memory"),
            ));
        }
        shared.imports += 1;
        Ok(shared.memory.address)
    }

    /// `aclrtIpcMemClose`: importers first, the exporter last.
    pub fn close_key(&mut self, key: &str) -> Result<(), Fail> {
        let shared = self.shared(key)?;
        match shared.imports {
            0 => drop(self.keys.remove(key)),
            _ => shared.imports -= 1,
        }
        Ok(())
    }

    /// What is wrong with freeing memory that somebody else still has.
    pub fn imported_on(&self, memory: Span) -> Option<&'static str> {
        let mut held = self.keys.values().filter(|shared| shared.imports > 0);
        held.any(|shared| shared.memory.meets(&memory))
            .then_some("another process, which has them by a key and did not close it,")
    }

    fn shared(&mut self, key: &str) -> Result<&mut Shared, Fail> {
        self.keys.get_mut(key).ok_or_else(|| {
            mistake(
                ACL_ERROR_RT_PARAM_INVALID,
                format!("{key:?} is no key (any more)"),
            )
        })
    }
}
