//! The paged cache: writing to slots and attending over blocks, and every mistake that real hardware would answer with garbage.

// What a test passes to an official function is the test's own to get wrong.
#![allow(clippy::macro_metavars_in_unsafe)]

mod rig;

use rig::Rig;
use rig::tensors::Held;
use ropeteam_acl_sys::types::*;
use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};

const BLOCKS: i64 = 3;
const BLOCK: i64 = 128;
const DIM: i64 = 16;

/// A cache with one head whose keys are 0, so that an attention is the mean of the values it sees, and a query of two sequences:
/// two rows over three tokens in block 2, one row over 130 tokens in blocks 0 and 1.
struct Paged {
    rig: Rig,
    stream: aclrtStream,
    key_cache: Held,
    value_cache: Held,
    query: Held,
    out: Held,
    mask: Held,
    workspace: *mut c_void,
}

/// What a test changes about the attention.
#[derive(Clone)]
struct Asked {
    ends: Vec<i64>,
    lens: Vec<i64>,
    table: Vec<i32>,
    block_size: i64,
    sparse_mode: i64,
    kv_heads: i64,
}

impl Default for Asked {
    fn default() -> Self {
        Self {
            ends: vec![2, 3],
            lens: vec![3, 130],
            table: vec![2, 0, 0, 1],
            block_size: BLOCK,
            sparse_mode: 3,
            kv_heads: 1,
        }
    }
}

impl Paged {
    fn new() -> Self {
        let rig = Rig::new("");
        let cache = [BLOCKS, BLOCK, 1, DIM];
        let (key_cache, value_cache) = (rig.empty(ACL_BF16, &cache), rig.empty(ACL_BF16, &cache));
        let triangle = (0..2048 * 2048).map(|i| u8::from(i % 2048 > i / 2048));
        let paged = Self {
            stream: rig.stream(),
            query: rig.bf16(&[1.0; 3 * DIM as usize], &[3, 1, DIM]),
            out: rig.empty(ACL_BF16, &[3, 1, DIM]),
            mask: rig.bools(&triangle.collect::<Vec<u8>>(), &[2048, 2048]),
            key_cache,
            value_cache,
            workspace: rig.device(4 << 20),
            rig,
        };
        let first: Vec<i32> = (256..259).collect();
        let second: Vec<i32> = (0..130).collect();
        assert_eq!(paged.scatter(&first), 0, "{}", paged.rig.message());
        assert_eq!(paged.scatter(&second), 0, "{}", paged.rig.message());
        paged
    }

    /// Writes token i, whose value is i, to the i-th slot.
    fn scatter(&self, slots: &[i32]) -> i32 {
        let (rig, count) = (&self.rig, slots.len());
        let values: Vec<f32> = (0..count).flat_map(|t| [t as f32; DIM as usize]).collect();
        let shape = [count as i64, 1, DIM];
        let key = rig.bf16(&vec![0.0; values.len()], &shape);
        let value = rig.bf16(&values, &shape);
        let slots = rig.i32(slots, &[count as i64]);
        let mode = CString::new("Norm").expect("no null");
        compute!(
            rig,
            self.stream,
            aclnnScatterPaKvCacheGetWorkspaceSize,
            aclnnScatterPaKvCache(
                key.tensor,
                self.key_cache.tensor,
                slots.tensor,
                value.tensor,
                self.value_cache.tensor,
                null(),
                null(),
                null(),
                mode.as_ptr().cast_mut(),
                null_mut(),
                null(),
                null()
            )
        )
    }

    fn list(&self, cache: *mut c_void) -> *mut aclTensorList {
        let rig = &self.rig;
        let view = rig.whole(cache, ACL_BF16, &[BLOCKS, BLOCK, DIM]);
        code!(
            rig.meta
                .aclCreateTensorList([view.cast_const()].as_ptr(), 1)
        )
    }

    fn attend(&self, asked: &Asked) -> i32 {
        let rig = &self.rig;
        match self.launch(asked) {
            0 => code!(rig.runtime.aclrtSynchronizeStream(self.stream)),
            code => code,
        }
    }

    /// Both phases, without waiting.
    fn launch(&self, asked: &Asked) -> i32 {
        let rig = &self.rig;
        let (code, size, executor) = self.prepare(asked);
        match code {
            0 => code!(rig.operators.aclnnFusedInferAttentionScoreV4(
                self.workspace,
                size,
                executor,
                self.stream
            )),
            code => code,
        }
    }

    /// The first phase: its code, the workspace it wants and the executor.
    fn prepare(&self, asked: &Asked) -> (i32, u64, *mut aclOpExecutor) {
        let rig = &self.rig;
        let (key, value) = (
            self.list(self.key_cache.address),
            self.list(self.value_cache.address),
        );
        let (ends, lens) = (rig.numbers(&asked.ends), rig.numbers(&asked.lens));
        let table = rig.i32(&asked.table, &[asked.table.len() as i64 / 2, 2]);
        let layout = CString::new("TND").expect("no null");
        let (no, none) = (null::<aclTensor>(), null::<aclIntArray>());
        let far = i64::from(i32::MAX);
        phase1!(rig.aclnnFusedInferAttentionScoreV4GetWorkspaceSize(
            self.query.tensor,
            key,
            value,
            no,
            self.mask.tensor,
            ends,
            lens,
            no,
            no,
            no,
            no,
            no,
            no,
            no,
            table.tensor,
            no,
            no,
            no,
            no,
            no,
            no,
            no,
            no,
            none,
            no,
            no,
            no,
            no,
            no,
            1,
            1.0,
            far,
            far,
            layout.as_ptr().cast_mut(),
            asked.kv_heads,
            asked.sparse_mode,
            0,
            asked.block_size,
            0,
            false,
            0,
            0,
            0,
            self.out.tensor,
            no
        ))
    }

    #[track_caller]
    fn refused(&self, asked: &Asked, code: i32, text: &str) {
        assert_eq!(self.attend(asked), code, "{}", self.rig.message());
        self.rig.caught(text);
    }
}

#[test]
fn rows_attend_to_what_their_sequence_has_up_to_them() {
    let paged = Paged::new();
    assert_eq!(
        paged.attend(&Asked::default()),
        0,
        "{}",
        paged.rig.message()
    );
    let rows = paged.rig.values(&paged.out);
    let firsts: Vec<f32> = rows.chunks(DIM as usize).map(|row| row[0]).collect();
    assert_eq!(firsts, [0.5, 1.0, 64.5], "means of 0..2, 0..3 and 0..130");
    paged.rig.clean();
}

#[test]
fn a_slot_that_was_never_written_is_caught() {
    let paged = Paged::new();
    let asked = Asked {
        lens: vec![3, 131],
        ..Asked::default()
    };
    assert_eq!(paged.attend(&asked), 0, "the chip would not notice");
    let found = paged.rig.violations();
    assert!(
        found.len() == 2 && found.iter().all(|v| v.contains("never written")),
        "{found:?}"
    );
    assert!(paged.rig.values(&paged.out)[2 * DIM as usize].is_nan());
}

#[test]
fn a_block_that_is_not_there_is_caught() {
    for block in [BLOCKS as i32, -1] {
        let asked = Asked {
            table: vec![2, 0, block, 1],
            ..Asked::default()
        };
        Paged::new().refused(&asked, 507015, "of a cache of 3");
    }
}

#[test]
fn lengths_and_tables_that_do_not_fit_are_refused() {
    let mut paged = Paged::new();
    let asked = |change: &dyn Fn(&mut Asked)| {
        let mut asked = Asked::default();
        change(&mut asked);
        asked
    };
    paged.refused(&asked(&|a| a.ends = vec![2, 4]), 561002, "must ascend to 3");
    paged.refused(&asked(&|a| a.ends = vec![3, 2]), 561002, "must ascend to 3");
    paged.refused(
        &asked(&|a| a.ends = vec![3]),
        561002,
        "1 query ends, 2 lengths",
    );
    paged.refused(
        &asked(&|a| a.lens = vec![1, 130]),
        561002,
        "2 query rows over 1 tokens",
    );
    paged.refused(&asked(&|a| a.table = vec![2, 0]), 561002, "for 2 sequences");
    paged.refused(
        &asked(&|a| a.lens = vec![3, 257]),
        561002,
        "of up to 257 tokens",
    );
    paged.refused(
        &asked(&|a| a.block_size = 64),
        561002,
        "blockSize 64; the cache has 128",
    );
    paged.refused(&asked(&|a| a.kv_heads = 2), 561002, "1 heads over 2");
    paged.query = paged.rig.bf16(&[1.0; 24], &[3, 1, 8]);
    paged.out = paged.rig.empty(ACL_BF16, &[3, 1, 8]);
    paged.refused(&Asked::default(), 561002, "heads of 8; multiples of 16");
}

#[test]
fn a_mask_of_the_wrong_size_or_the_wrong_triangle_is_caught() {
    let mut paged = Paged::new();
    paged.mask = paged.rig.bools(&[0; 64 * 64], &[64, 64]);
    paged.refused(&Asked::default(), 161002, "takes one of 2048 x 2048");
    let upside_down = (0..2048 * 2048).map(|i| u8::from(i % 2048 < i / 2048));
    paged.mask = paged
        .rig
        .bools(&upside_down.collect::<Vec<u8>>(), &[2048, 2048]);
    paged.refused(&Asked::default(), 507015, "attenMask[0][1] is 0, not 1");
}

#[test]
fn a_way_that_is_not_offered_says_so_and_is_no_mistake() {
    let paged = Paged::new();
    let asked = Asked {
        sparse_mode: 4,
        ..Asked::default()
    };
    assert_eq!(paged.attend(&asked), 207000);
    assert!(paged.rig.message().contains("the stand-in does not offer"));
    paged.rig.clean();
}

#[test]
fn an_attention_cannot_be_repeated_with_its_lengths_inside() {
    let paged = Paged::new();
    let rig = &paged.rig;
    let (code, _, executor) = paged.prepare(&Asked::default());
    assert_eq!(code, 0, "{}", rig.message());
    assert_eq!(
        code!(rig.meta.aclSetAclOpExecutorRepeatable(executor)),
        161002
    );
    rig.caught("holds numbers of the host");
}

#[test]
fn slots_outside_the_cache_or_given_twice_are_caught() {
    for (slots, text) in [
        ([0, BLOCKS as i32 * BLOCK as i32], "slot 384 outside of 384"),
        ([-1, 0], "slot -1 outside"),
        ([5, 5], "slot 5 twice"),
    ] {
        let paged = Paged::new();
        assert_eq!(paged.scatter(&slots), 507015);
        paged.rig.caught(text);
    }
}

#[test]
fn keys_of_another_type_than_the_cache_are_refused() {
    let mut paged = Paged::new();
    paged.key_cache = paged.rig.empty(ACL_FLOAT16, &[BLOCKS, BLOCK, 1, DIM]);
    assert_eq!(paged.scatter(&[0]), 161002);
    paged.rig.caught("key has type 1");
}

#[test]
fn a_sequence_that_reads_anothers_block_is_caught() {
    let paged = Paged::new();
    let keys = paged.key_cache.address;
    for (block, owner) in [(2, 7), (0, 8), (1, 8)] {
        paged.rig.tag_block(keys, block, owner);
    }
    paged.rig.read_as(&[7, 8]);
    assert_eq!(paged.attend(&Asked::default()), 0);
    paged.rig.clean();
    paged.rig.tag_block(keys, 2, 0);
    assert_eq!(paged.attend(&Asked::default()), 0);
    paged.rig.clean();
    paged.rig.read_as(&[7, 9]);
    let crossed = Asked {
        table: vec![2, 0, 0, 2],
        ..Asked::default()
    };
    assert_eq!(paged.scatter(&(256..259).collect::<Vec<i32>>()), 0);
    paged
        .rig
        .caught("block 2, which several sequences share, is written");
    paged.rig.tag_block(keys, 2, 7);
    paged.attend(&crossed);
    let found = paged.rig.violations();
    assert!(
        found[0].contains("sequence 1, of owner 9, reads block 0 of owner 8"),
        "{found:?}"
    );
    assert!(found[1].contains("reads block 2 of owner 7"), "{found:?}");
}

#[test]
fn a_replay_with_the_lengths_of_the_last_one_is_caught() {
    let paged = Paged::new();
    let (rig, stream) = (&paged.rig, paged.stream);
    let (mut graph, mut group) = (aclmdlRI::NULL, aclrtTaskGrp::NULL);
    let relaxed = ACL_MODEL_RI_CAPTURE_MODE_RELAXED;
    ok!(rig.graphs.aclmdlRICaptureBegin(stream, relaxed));
    ok!(rig.graphs.aclmdlRICaptureTaskGrpBegin(stream));
    assert_eq!(paged.launch(&Asked::default()), 0);
    ok!(rig.graphs.aclmdlRICaptureTaskGrpEnd(stream, &mut group));
    ok!(rig.graphs.aclmdlRICaptureEnd(stream, &mut graph));
    let replay = || {
        ok!(rig.graphs.aclmdlRIExecuteAsync(graph, stream));
        rig.finish(stream);
    };
    replay();
    rig.clean();
    ok!(rig.graphs.aclmdlRICaptureTaskUpdateBegin(stream, group));
    assert_eq!(paged.launch(&Asked::default()), 0);
    ok!(rig.graphs.aclmdlRICaptureTaskUpdateEnd(stream));
    replay();
    rig.clean();
    replay();
    rig.caught("they were not updated");
}
