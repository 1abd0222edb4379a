//! Makes new inputs from seeds: the changes that find most bugs in parsers, repeatable by number.

use rowhouse_env::{Random, SeededRandom};

/// The most changes to one input. With more, few inputs would pass the first check of a parser.
const CHANGES_MAX: usize = 4;

/// Splicing and repeating stop here, so that the time of a run stays bounded.
const INPUT_BYTES_MAX: usize = 16 * 1024;

/// Bytes on which parsers decide: ends, quotes, separators, the limits of one byte.
const SPECIAL: &[u8] = b"\0\t\n\r \"#%&'()+,-./09:;<=>?AZ[\\]_az{}\x7f\x80\xc3\xff";

pub(crate) struct Mutator {
    seeds: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
}

impl Mutator {
    /// `words` is a dictionary of libFuzzer: a quoted word per line, `#` for comments.
    pub(crate) fn new(seeds: Vec<Vec<u8>>, words: &str) -> Self {
        assert!(!seeds.is_empty(), "there is no seed to mutate");
        let words = words.lines().filter_map(word).collect();
        Self { seeds, words }
    }

    /// The input with this number.
    pub(crate) fn input(&self, number: u64) -> Vec<u8> {
        let dice = Dice(SeededRandom::new(number));
        let mut data = dice.pick(&self.seeds).clone();
        for _ in 0..=dice.below(CHANGES_MAX) {
            self.change(&dice, &mut data);
        }
        data.truncate(INPUT_BYTES_MAX);
        data
    }

    fn change(&self, dice: &Dice, data: &mut Vec<u8>) {
        let at = dice.below(data.len() + 1);
        let range = at..at + dice.below((data.len() - at).min(32) + 1);
        match dice.below(9) {
            0 => data.truncate(at),
            1 => drop(data.drain(range)),
            2 => drop(data.splice(at..at, [*dice.pick(SPECIAL)])),
            3 => {
                let repeated = data[range].repeat(1 << dice.below(6));
                data.splice(at..at, repeated);
            }
            4 => {
                let other = dice.pick(&self.seeds);
                data.truncate(at);
                data.extend_from_slice(&other[dice.below(other.len() + 1)..]);
            }
            5 => {
                let other = dice.pick(&self.seeds);
                let from = dice.below(other.len() + 1);
                let to = from + dice.below(other.len() - from + 1);
                data.splice(range, other[from..to].iter().copied());
            }
            6 if !self.words.is_empty() => {
                data.splice(range, dice.pick(&self.words).iter().copied());
            }
            7 => {
                if let Some(byte) = data.get_mut(at) {
                    *byte = *dice.pick(SPECIAL);
                }
            }
            _ => {
                if let Some(byte) = data.get_mut(at) {
                    *byte ^= 1 << dice.below(8);
                }
            }
        }
    }
}

/// The bytes between the first and the last quote of a line.
fn word(line: &str) -> Option<Vec<u8>> {
    if line.starts_with('#') || line.trim().is_empty() {
        return None;
    }
    let quoted = line.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"'));
    let (text, _) = quoted.unwrap_or_else(|| panic!("not a word of a dictionary: {line}"));
    assert!(!text.contains('\\'), "escapes are not supported here: {line}");
    Some(text.into())
}

struct Dice(SeededRandom);

impl Dice {
    /// A number below the bound, which is positive. Slightly uneven, which does not matter here.
    fn below(&self, bound: usize) -> usize {
        let mut bytes = [0; 4];
        self.0.fill(&mut bytes);
        u32::from_le_bytes(bytes) as usize % bound
    }

    fn pick<'a, T>(&self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}

#[test]
fn a_number_is_one_input() {
    let mutator = Mutator::new(vec![b"seed".to_vec(), b"other".to_vec()], "# words\n\"eq\"\n");
    let draw = || (0..100).map(|number| mutator.input(number)).collect::<Vec<_>>();
    let (first, again) = (draw(), draw());
    assert_eq!(first, again);
    let mut distinct = first;
    distinct.sort();
    distinct.dedup();
    assert!(50 < distinct.len(), "{} distinct inputs of 100", distinct.len());
}
