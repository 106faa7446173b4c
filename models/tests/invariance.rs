//! A row's logits have the same bits however its sequence is cut into chunks, whatever the block size, the company and
//! the number of threads. Replay after a lost device rests on this.

mod tiny_models;

use ropeteam_device::Precision;
use ropeteam_engine::plan::Want;
use std::path::Path;
use tiny_models::{Goldens, Setup, folder, load};

/// One family of each kind: window, biases and yarn, head norms, partial rotary with post norms.
const MODELS: [&str; 4] = ["mistral", "qwen2-yarn", "qwen3", "glm4"];

fn check_all(check: impl Fn(&Path, Setup, &[u32])) {
    for name in MODELS {
        let folder = folder(name);
        let ids = Goldens::read(&folder)
            .prompts
            .into_iter()
            .map(|prompt| prompt.ids);
        let ids = ids.max_by_key(Vec::len).unwrap();
        for precision in [Precision::F32, Precision::Bf16] {
            check(&folder, Setup::new(precision), &ids);
        }
    }
}

fn bits(rows: &[Vec<f32>]) -> Vec<u32> {
    rows.iter().flatten().map(|value| value.to_bits()).collect()
}

#[test]
fn a_row_does_not_depend_on_how_its_sequence_is_cut() {
    check_all(|folder, setup, ids| {
        let mut model = load(folder, setup).unwrap();
        let whole = bits(&model.all_logits(ids, ids.len()));
        for chunk in [1, 7, 64] {
            assert!(
                bits(&model.all_logits(ids, chunk)) == whole,
                "{folder:?} in chunks of {chunk}"
            );
        }
    });
}

#[test]
fn a_row_does_not_depend_on_the_block_size_or_the_threads() {
    check_all(|folder, setup, ids| {
        let whole = load(folder, setup).unwrap().all_logits(ids, 50);
        for (block_size, threads) in [(16, 1), (32, 2), (64, 1)] {
            let mut model = load(
                folder,
                Setup {
                    block_size,
                    threads,
                    ..setup
                },
            )
            .unwrap();
            let same = bits(&model.all_logits(ids, 50)) == bits(&whole);
            assert!(same, "{folder:?} in blocks of {block_size}");
        }
        // The cache holds positions in groups of sixteen: other block sizes sum in another order, so they are near only.
        for block_size in [1, 5] {
            let mut model = load(
                folder,
                Setup {
                    block_size,
                    ..setup
                },
            )
            .unwrap();
            let rows = model.all_logits(ids, 50).concat();
            let pairs = rows.iter().zip(whole.iter().flatten());
            let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            let tolerance = if setup.precision == Precision::F32 {
                1e-3
            } else {
                0.5
            };
            assert!(
                worst < tolerance,
                "{folder:?} in blocks of {block_size}: {worst}"
            );
        }
    });
}

#[test]
fn a_row_does_not_depend_on_its_company() {
    check_all(|folder, setup, ids| {
        let mut model = load(folder, setup).unwrap();
        let alone = model.all_logits(ids, ids.len());
        // Sequence 3 decodes its last token while the others prefill, decode and want other things.
        let (last, before) = ids.split_last().unwrap();
        let half = before.len() / 2;
        model.step(vec![
            model.chunk(3, 0, before, Want::Nothing),
            model.chunk(1, 0, &before[..half], Want::LastLogits),
        ]);
        let chunks = vec![
            model.chunk(1, half, &before[half..], Want::AllLogits),
            model.chunk(0, 0, &ids[..9], Want::Argmax),
            model.chunk(3, before.len(), &[*last], Want::LastLogits),
            model.chunk(4, 0, &ids[..1], Want::Nothing),
        ];
        let output = model.step(chunks);
        let row = output.row(before.len() - half).to_vec();
        assert!(bits(&[row]) == bits(&alone[ids.len() - 1..]), "{folder:?}");
        let first = output.row(0).to_vec();
        assert!(bits(&[first]) == bits(&alone[half..half + 1]), "{folder:?}");
    });
}
