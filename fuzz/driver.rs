//! A small fuzzer on stable Rust: replays what is kept of earlier hunts, and hunts by seeded changes of it.
//!
//! It knows nothing of coverage. What it finds becomes a file of the corpus.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Changes of the corpus that are tried wherever there is no time for more.
const FEW: u64 = 20_000;
/// No input grows longer.
const LONGEST: usize = 64 << 10;
/// Numbers at which things change.
const EDGES: [u64; 12] =
    [0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, i64::MAX as u64, u64::MAX];

/// Replays a corpus and tries changes of it: a few, the same ones each time, or, where `REPOT_SOAK` is set, for two minutes.
/// How many inputs were tried.
pub fn fuzz(corpus: &Path, target: impl Fn(&[u8])) -> u64 {
    let files = read(corpus);
    assert!(!files.is_empty(), "no corpus in {}", corpus.display());
    for (file, input) in &files {
        attempt(&file.display().to_string(), input, &target);
    }
    let inputs: Vec<_> = files.into_iter().map(|(_, input)| input).collect();
    let (most, period) = match std::env::var("REPOT_SOAK") {
        Ok(_) => (u64::MAX, Duration::from_secs(120)),
        Err(_) => (FEW, Duration::from_secs(1)),
    };
    let (begin, mut tried) = (Instant::now(), 0);
    while tried < most && begin.elapsed() < period {
        let mut dice = Dice(tried);
        let input = changed(&inputs, &mut dice);
        attempt(&format!("change {tried}"), &input, &target);
        tried += 1;
    }
    println!("{}: {} kept, {tried} changes in {:?}", corpus.display(), inputs.len(), begin.elapsed());
    inputs.len() as u64 + tried
}

/// Tries an input; where it panics, it is kept in a file, for the corpus.
fn attempt(what: &str, input: &[u8], target: &impl Fn(&[u8])) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) else { return };
    let file = std::env::temp_dir().join(format!("repot-fuzz-{}", std::process::id()));
    let kept = fs::write(&file, input);
    eprintln!("{what} makes it panic; {} bytes in {} ({kept:?})", input.len(), file.display());
    resume_unwind(panic)
}

fn read(corpus: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files.into_iter().map(|file| (file.clone(), fs::read(file).expect("a file"))).collect()
}

fn changed(inputs: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut input = inputs[dice.below(inputs.len())].clone();
    for _ in 0..=dice.below(6) {
        let other = &inputs[dice.below(inputs.len())];
        change(&mut input, other, dice);
        input.truncate(LONGEST);
    }
    input
}

fn change(input: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    let at = dice.below(input.len() + 1);
    let end = (at + dice.short(8)).min(input.len());
    match dice.below(9) {
        0 if at < input.len() => input[at] ^= 1 << dice.below(8),
        1 if at < input.len() => input[at] = dice.next() as u8,
        2 => drop(input.drain(at..end)),
        3 => {
            let piece = input[at..end].to_vec();
            let to = dice.below(input.len() + 1);
            drop(input.splice(to..to, piece));
        }
        4 => {
            let from = dice.below(other.len() + 1);
            let until = (from + dice.short(10)).min(other.len());
            drop(input.splice(at..end, other[from..until].iter().copied()));
        }
        5 => {
            let number = EDGES[dice.below(EDGES.len())].to_be_bytes();
            let width = [1, 2, 4, 8][dice.below(4)];
            let until = (at + width).min(input.len());
            drop(input.splice(at..until, number[8 - width..].iter().copied()));
        }
        6 => {
            // Numbers in text.
            let number = EDGES[dice.below(EDGES.len())].to_string();
            let digits = input[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            drop(input.splice(at..at + digits, number.bytes()));
        }
        7 => {
            let many = 1 << dice.below(12);
            let piece = input[at..end.min(at + 8)].repeat(many);
            drop(input.splice(at..at, piece));
        }
        _ => input.truncate(at),
    }
}

/// Numbers that follow from a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Mostly small, and below two to this power.
    fn short(&mut self, bits: usize) -> usize {
        let bits = self.below(bits);
        self.below(1 << bits)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}
