//! Stacks of addresses become a profile: names of functions are looked up, and everything that is named twice is written once.

use std::{
    collections::HashMap,
    io::{self, Write},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use flate2::{Compression, write::GzEncoder};
use prost::Message;

use super::message::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};

/// One stack, and how often it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stack {
    /// Addresses of instructions: the one that ran comes first, then those in its callers.
    pub addresses: Vec<u64>,
    /// Name of the thread.
    pub thread: String,
    /// How many samples found it.
    pub count: u64,
}

/// When and how often stacks were taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// When sampling began, by the clock on the wall.
    pub began: SystemTime,
    /// How long it took.
    pub duration: Duration,
    /// Samples in a second of CPU time.
    pub frequency: i64,
}

/// A function at an address, as symbols of the program name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Symbol {
    /// Readable name, without a hash.
    pub name: String,
    /// Name in the table of symbols.
    pub system_name: String,
    /// Source file, where it is known; else empty.
    pub file: String,
    /// Line of the source, where it is known; else 0.
    pub line: i64,
}

/// An executable range of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MappedFile {
    /// First address in memory.
    pub start: u64,
    /// Address in memory after the last.
    pub end: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// Path of the mapped file.
    pub path: String,
}

/// The profile in protobuf and gzip. `symbols` gives the functions at an address, the innermost one first; none where the program
/// has no symbols.
pub(super) fn encode(
    stacks: &[Stack],
    timing: &Timing,
    mapped: &[MappedFile],
    symbols: impl Fn(u64) -> Vec<Symbol>,
) -> io::Result<Vec<u8>> {
    let profile = Builder::new(mapped, symbols).build(stacks, timing);
    let mut out = GzEncoder::new(Vec::new(), Compression::default());
    out.write_all(&profile.encode_to_vec())?;
    out.finish()
}

struct Builder<'a, S> {
    profile: Profile,
    mapped: &'a [MappedFile],
    symbols: S,
    strings: HashMap<String, i64>,
    functions: HashMap<(i64, i64), u64>,
    locations: HashMap<u64, u64>,
}

impl<'a, S: Fn(u64) -> Vec<Symbol>> Builder<'a, S> {
    fn new(mapped: &'a [MappedFile], symbols: S) -> Self {
        let (strings, functions, locations) = Default::default();
        let mut builder =
            Self { profile: Profile::default(), mapped, symbols, strings, functions, locations };
        builder.string("");
        builder
    }

    fn build(mut self, stacks: &[Stack], timing: &Timing) -> Profile {
        let period = 1_000_000_000 / timing.frequency.max(1);
        let (samples, cpu) = (self.value_type("samples", "count"), self.value_type("cpu", "nanoseconds"));
        self.profile.sample_type = vec![samples, cpu];
        self.profile.period_type = Some(cpu);
        self.profile.period = period;
        self.profile.time_nanos = nanoseconds(timing.began.duration_since(UNIX_EPOCH).unwrap_or_default());
        self.profile.duration_nanos = nanoseconds(timing.duration);
        for (index, file) in self.mapped.iter().enumerate() {
            let filename = self.string(&file.path);
            let (memory_start, memory_limit, file_offset) = (file.start, file.end, file.offset);
            let id = index as u64 + 1;
            let mapping =
                Mapping { id, memory_start, memory_limit, file_offset, filename, has_functions: true };
            self.profile.mapping.push(mapping);
        }
        let thread = self.string("thread");
        for stack in stacks {
            let location_id = stack.addresses.iter().map(|address| self.location(*address)).collect();
            let count = i64::try_from(stack.count).unwrap_or(i64::MAX);
            let label = vec![Label { key: thread, str: self.string(&stack.thread) }];
            let value = vec![count, count.saturating_mul(period)];
            self.profile.sample.push(Sample { location_id, value, label });
        }
        self.profile
    }

    fn value_type(&mut self, r#type: &str, unit: &str) -> ValueType {
        ValueType { r#type: self.string(r#type), unit: self.string(unit) }
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(index) = self.strings.get(text) {
            return *index;
        }
        let index = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), index);
        index
    }

    fn location(&mut self, address: u64) -> u64 {
        if let Some(id) = self.locations.get(&address) {
            return *id;
        }
        let line: Vec<Line> = (self.symbols)(address).iter().map(|symbol| self.line(symbol)).collect();
        let mapping = self.mapped.iter().position(|file| (file.start..file.end).contains(&address));
        let mapping_id = mapping.map_or(0, |index| index as u64 + 1);
        if let Some(index) = mapping.filter(|_| line.is_empty()) {
            self.profile.mapping[index].has_functions = false;
        }
        let id = self.profile.location.len() as u64 + 1;
        self.profile.location.push(Location { id, mapping_id, address, line });
        self.locations.insert(address, id);
        id
    }

    fn line(&mut self, symbol: &Symbol) -> Line {
        let (name, system_name) = (self.string(&symbol.name), self.string(&symbol.system_name));
        let filename = self.string(&symbol.file);
        let next = self.profile.function.len() as u64 + 1;
        let function_id = *self.functions.entry((system_name, filename)).or_insert(next);
        if function_id == next {
            self.profile.function.push(Function { id: next, name, system_name, filename });
        }
        Line { function_id, line: symbol.line }
    }
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// The executable ranges in the form of `/proc/self/maps`.
pub(super) fn mapped_files(maps: &str) -> Vec<MappedFile> {
    maps.lines().filter_map(mapped_file).collect()
}

/// `START-END PERMISSIONS OFFSET DEVICE INODE PATH`.
fn mapped_file(line: &str) -> Option<MappedFile> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let executable = words.next()?.contains('x');
    let offset = words.next()?;
    let path = words.skip(2).collect::<Vec<_>>().join(" ");
    let number = |text| u64::from_str_radix(text, 16).ok();
    let file = MappedFile { start: number(start)?, end: number(end)?, offset: number(offset)?, path };
    (executable && !file.path.is_empty()).then_some(file)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    const MAPS: &str = "\
        55d0c0000000-55d0c0001000 r--p 00000000 fe:01 12 /usr/local/bin/repot\n\
        55d0c0001000-55d0c0009000 r-xp 00001000 fe:01 12 /usr/local/bin/repot\n\
        7f0000000000-7f0000001000 rw-p 00000000 00:00 0\n\
        7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0 [vdso]\n";

    fn stack(addresses: &[u64], thread: &str, count: u64) -> Stack {
        Stack { addresses: addresses.to_vec(), thread: thread.into(), count }
    }

    fn symbol(name: &str) -> Symbol {
        Symbol { name: name.into(), system_name: format!("_R{name}"), file: "a.rs".into(), line: 7 }
    }

    fn profile(stacks: &[Stack], symbols: impl Fn(u64) -> Vec<Symbol>) -> Profile {
        let timing = Timing { began: UNIX_EPOCH, duration: Duration::from_secs(1), frequency: 100 };
        let packed = encode(stacks, &timing, &mapped_files(MAPS), symbols).expect("a profile");
        let mut bytes = Vec::new();
        GzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).expect("gzip");
        Profile::decode(bytes.as_slice()).expect("a profile")
    }

    #[test]
    fn executable_files_are_mappings() {
        let found = mapped_files(MAPS);
        let paths: Vec<_> = found.iter().map(|file| (file.path.as_str(), file.offset)).collect();
        assert_eq!(paths, [("/usr/local/bin/repot", 0x1000), ("[vdso]", 0)]);
        assert_eq!((found[0].start, found[0].end), (0x55d0_c000_1000, 0x55d0_c000_9000));
    }

    #[test]
    fn functions_and_places_are_written_once_and_inlined_ones_keep_their_order() {
        let (leaf, caller) = (0x55d0_c000_1010, 0x55d0_c000_2000);
        let stacks = [stack(&[leaf, caller], "main", 2), stack(&[caller], "worker", 3)];
        let symbols =
            |address| if address == leaf { vec![symbol("in"), symbol("out")] } else { vec![symbol("out")] };
        let found = profile(&stacks, symbols);
        let text = |index: i64| found.string_table[usize::try_from(index).expect("an index")].as_str();
        let names: Vec<_> = found.function.iter().map(|function| text(function.name)).collect();
        assert_eq!(names, ["in", "out"]);
        let lines: Vec<Vec<u64>> =
            found.location.iter().map(|l| l.line.iter().map(|line| line.function_id).collect()).collect();
        assert_eq!(lines, [vec![1, 2], vec![2]]);
        assert_eq!(found.sample[0].location_id, [1, 2]);
        assert_eq!(found.sample[1].location_id, [2]);
        assert_eq!(found.sample[0].value, [2, 20_000_000]);
        assert_eq!(text(found.sample[1].label[0].str), "worker");
        assert!(found.mapping[0].has_functions);
        assert_eq!(found.location[0].mapping_id, 1);
        assert_eq!((text(0), text(found.sample_type[1].r#type), found.period), ("", "cpu", 10_000_000));
    }

    #[test]
    fn without_symbols_addresses_are_left_to_pprof() {
        let found = profile(&[stack(&[0x55d0_c000_1010, 0x10], "main", 1)], |_| Vec::new());
        assert!(!found.mapping[0].has_functions && found.mapping[1].has_functions);
        assert_eq!(found.location[0].address, 0x55d0_c000_1010);
        assert_eq!(found.location[1].mapping_id, 0, "outside of all files");
    }
}
