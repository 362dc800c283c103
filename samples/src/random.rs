//! Random numbers from a seed: the same on every machine and in every release, and never from a clock.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const LOWER: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
const HEX: &[u8] = b"0123456789abcdef";
/// Kubernetes' alphabet for generated names: no vowels, so no words.
const NAME: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A generator (xoshiro256++, seeded by splitmix64). Not fit for keys: anybody who knows the seed knows all of it.
#[derive(Clone, Debug)]
pub struct Random {
    words: [u64; 4],
}

impl Random {
    /// The generator of that seed.
    pub fn new(rng_seed: u64) -> Self {
        let mut state = rng_seed;
        Self { words: [(); 4].map(|()| split_mix(&mut state)) }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let words = &mut self.words;
        let result = words[0].wrapping_add(words[3]).rotate_left(23).wrapping_add(words[0]);
        let mixed = words[1] << 17;
        words[2] ^= words[0];
        words[3] ^= words[1];
        words[1] ^= words[2];
        words[0] ^= words[3];
        words[2] ^= mixed;
        words[3] = words[3].rotate_left(45);
        result
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        // The bias is below one in 2^40 for any size used here.
        (self.bits() % end as u64) as usize
    }

    /// Exactly `count` random bytes, from the seed.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend_from_slice(&self.bits().to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }

    /// Base64 text of exactly so many characters, without padding when that is a multiple of four.
    pub fn base64(&mut self, characters: usize) -> String {
        let mut text = STANDARD.encode(self.bytes(characters.div_ceil(4) * 3));
        text.truncate(characters);
        text
    }

    /// Exactly so many hexadecimal digits, in lower case.
    pub fn hex(&mut self, characters: usize) -> String {
        self.text(HEX, characters)
    }

    /// Lower case letters and digits.
    pub fn lower(&mut self, characters: usize) -> String {
        self.text(LOWER, characters)
    }

    /// A suffix as Kubernetes appends to generated names.
    pub fn suffix(&mut self, characters: usize) -> String {
        self.text(NAME, characters)
    }

    /// A UUID of version 4.
    pub fn uuid(&mut self) -> String {
        let digits = self.hex(30);
        let (a, b, c, d) = (&digits[..8], &digits[8..12], &digits[12..15], &digits[15..18]);
        format!("{a}-{b}-4{c}-a{d}-{}", &digits[18..30])
    }

    /// An address in a private range.
    pub fn ip(&mut self) -> String {
        let bits = self.bits();
        format!("10.{}.{}.{}", bits & 0xff, bits >> 8 & 0xff, bits >> 16 & 0xff)
    }

    fn text(&mut self, alphabet: &[u8], characters: usize) -> String {
        (0..characters).map(|_| char::from(alphabet[self.below(alphabet.len())])).collect()
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_itself_for_a_seed_and_differs_for_another() {
        let draw = |rng_seed| {
            let mut random = Random::new(rng_seed);
            [random.base64(41), random.uuid(), random.suffix(5), random.ip()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert_eq!(draw(7)[0].len(), 41);
        assert_eq!(draw(7)[1].len(), 36);
    }
}
